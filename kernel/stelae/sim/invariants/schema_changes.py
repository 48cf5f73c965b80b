"""The schema of a tablet changes one version at a time, in the same way on all replicas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from stelae.sim.history import SCHEMA
from stelae.sim.invariants.base import AppliedRequest, Invariant
from stelae.sim.world import ObservedNode, World
from stelae.spi.ids import OpId
from stelae.spi.schema import Schema


class SchemaChanges(Invariant):
    """A schema takes effect only if its version is the next one. Of two schemas with the same version, one is refused.

    Rows that were made for another version than the one in force at their entry have no effect. Every replica applies
    the same schema at the same entry. An acknowledged change is in force, and a refused change never is."""

    name: ClassVar[str] = "schema_changes"
    source: ClassVar[str] = "durability.md rules 10 and 27; behaviours.md D4"

    def __init__(self, world: World, report: Callable[[str, str], None]) -> None:
        super().__init__(world, report)
        self._changes: dict[int, tuple[OpId, Schema]] = {}
        """The applied schema changes, by index of their entry."""
        self._refused: list[Schema] = []

    def on_schema(self, node: ObservedNode, op_id: OpId, schema: Schema) -> None:
        """Compare with the schema before, and with the schema that other replicas applied at this entry."""
        what = f"node {node.position} applies schema version {schema.version} at {op_id}"
        first = self._changes.setdefault(op_id.index, (op_id, schema))
        if first != (op_id, schema):
            self.fail(f"{what}, but another replica applied version {first[1].version} at {first[0]}")
            return
        before = [known for index, (_, known) in self._changes.items() if index < op_id.index]
        in_force = max([SCHEMA, *before], key=lambda known: known.version)
        if schema.version != in_force.version + 1:
            self.fail(f"{what}, but version {in_force.version} was in force")
        elif schema in self._refused:
            self.fail(f"{what}, but the change was refused to its client")

    def on_applied(self, node: ObservedNode, op_id: OpId, requests: Sequence[AppliedRequest]) -> None:
        """Check that rows which take effect were made for the version in force."""
        for request in requests:
            version = self.world.agreed.schema(op_id.index).version
            if not request.skipped and request.version != version:
                what = f"{request.client}/{request.sequence} of schema version {request.version}"
                self.fail(f"node {node.position} applies {what} at {op_id}, where version {version} is in force")

    def on_altered(self, schema: Schema, *, taken: bool) -> None:
        """Check the answer to a schema change."""
        applied = any(known == schema for _, known in self._changes.values())
        if taken and not applied:
            self.fail(f"schema version {schema.version} is acknowledged, but no replica has applied it")
        elif not taken:
            self._refused.append(schema)
            if applied:
                self.fail(f"schema version {schema.version} is refused, but it is in force")
