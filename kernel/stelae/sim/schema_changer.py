"""Changes the table's schema while clients write, step by step and with the masters' own code.

The changer sends each change to the leader until it gets an answer. Sometimes it also sends another schema with the
same version, as a deposed master may do; exactly one of the two takes effect. Clients use the newest acknowledged
schema."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from stelae.partition.schema import PartitionSchema
from stelae.protocol.catalog_names import TableId, TableState
from stelae.protocol.master_messages import AddColumn, AlterStep, AlterTable, DropColumn, RenameColumn
from stelae.server.master.core.alter import Altered
from stelae.server.master.core.catalog import Catalog
from stelae.server.master.core.records import TableRecord
from stelae.sim.client_gateway import ClientGateway
from stelae.sim.coverage import Coverage
from stelae.sim.draw import below, between, chance, pick, skewed
from stelae.sim.fact_feed import FactFeed
from stelae.sim.history import SCHEMA
from stelae.sim.profile import Profile
from stelae.sim.scheduler import ScheduledEvent, Scheduler
from stelae.sim.table import KEY, VALUE
from stelae.spi.errors import NotLeader, SchemaMismatch, StelaeError
from stelae.spi.ids import NodeId
from stelae.spi.schema import Column, Schema

NUMBER: Final = 80
"""Position of the schema changer on the network, above all writers."""

COLUMNS_MAX: Final = 6
STEPS_MAX: Final = 3
RIVALS: Final = 0.3
"""Share of the changes with a rival: another change of the same version."""

DROPS: Final = True
"""True if changes may drop columns."""

NAMES: Final = ("a", "b", "c", "d", "e", "f", "g")
KINDS: Final[tuple[tuple[str, bool, int | str | None], ...]] = (
    ("int64", True, None),
    ("int64", False, 7),
    ("string", True, "-"),
    ("string", False, "none"),
)
"""Type, nullable and default of the columns that are added."""


@dataclass(slots=True)
class TableView:
    """The table as clients see it.

    Attributes:
        schema: the newest acknowledged schema.
        next_column_id: higher than every column id that was ever assigned.
    """

    schema: Schema = SCHEMA
    next_column_id: int = field(default=len(SCHEMA.columns) + 1)

    def changed(self, steps: Sequence[AlterStep]) -> tuple[Schema, int]:
        """Return the next schema after some steps, and the next column id."""
        record = TableRecord(
            table_id=TableId("table"),
            name="table",
            state=TableState.RUNNING,
            schema=self.schema.to_bytes(),
            partition_schema=PartitionSchema().to_bytes(),
            replication_factor=3,
            consensus="raft",
            next_column_id=self.next_column_id,
            changed_us=0,
        )
        altered = Altered(Catalog.empty(), record)
        altered.take(AlterTable(table="table", steps=tuple(steps)))
        return altered.schema(), altered.next_column_id


class SchemaChanger:
    """Changes the schema at random times.

    Args:
        table: gets every schema that is acknowledged.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        gateway: ClientGateway,
        table: TableView,
        facts: FactFeed,
        profile: Profile,
        rng: random.Random,
        coverage: Coverage,
    ) -> None:
        self._scheduler = scheduler
        self._gateway = gateway
        self._table = table
        self._facts = facts
        self._profile = profile
        self._rng = rng
        self._coverage = coverage
        self._target = below(rng, profile.nodes)
        self._open: list[Schema] = []
        self._timers: dict[bytes, ScheduledEvent] = {}
        self.stopping = False

    @property
    def idle(self) -> bool:
        """True when no change waits for an answer."""
        return not self._open

    def start(self) -> None:
        """Begin to change the schema at random times until ``stopping``. Runs without schema changes do nothing."""
        if self._profile.alter_us is not None:
            pause_us = skewed(self._rng, *self._profile.alter_us)
            self._scheduler.after(pause_us, "alterer.act", self._act)

    def swap(self) -> None:
        """Add one column and drop another in one change, so that the number of columns stays the same.

        Only runs with schema changes do this."""
        columns = list(self._table.schema.columns)
        extra = [column for column in columns if column.id not in (KEY, VALUE)]
        if self._profile.alter_us is not None and self.idle and extra and DROPS:
            self._coverage.hit("alter.swap")
            kind, nullable, default = pick(self._rng, KINDS)
            name = _draw_free_name(self._rng, columns)
            self._start_changes([AddColumn(name, kind, nullable, default), DropColumn(pick(self._rng, extra).name)])

    def _act(self) -> None:
        if self.stopping:
            return
        if self.idle:
            rival = chance(self._rng, RIVALS)
            self._start_changes(self._steps(), self._steps() if rival else None)
        self.start()

    def _start_changes(self, steps: Sequence[AlterStep], rival: Sequence[AlterStep] | None = None) -> None:
        changes = [self._table.changed(steps)]
        if rival is not None:
            changes.append(self._table.changed(rival))
        self._table.next_column_id = max(next_id for _, next_id in changes)
        self._open = [*{schema.to_bytes(): schema for schema, _ in changes if schema != self._table.schema}.values()]
        for schema in self._open:
            self._send(schema)

    def _send(self, schema: Schema) -> None:
        data = schema.to_bytes()

        def answered(error: StelaeError | None) -> None:
            self._answered(schema, error)

        self._gateway.alter(NUMBER, self._target, data, answered)
        t_us = self._profile.election_timeout_ms * 1_000
        self._retry_after(schema, between(self._rng, t_us // 2, t_us * 2), elsewhere=True)

    def _retry_after(self, schema: Schema, wait_us: int, *, elsewhere: bool) -> None:
        data = schema.to_bytes()
        if data in self._timers:
            self._timers[data].cancel()

        def resend() -> None:
            self._coverage.hit("alter.retry")
            if elsewhere:
                self._target = below(self._rng, self._profile.nodes)
            self._send(schema)

        self._timers[data] = self._scheduler.after(wait_us, "alterer.retry", resend)

    def _answered(self, schema: Schema, error: StelaeError | None) -> None:
        if schema not in self._open:
            return
        if error is not None and not isinstance(error, SchemaMismatch):
            leader = error.leader if isinstance(error, NotLeader) else None
            nodes = self._gateway.node_ids
            self._target = below(self._rng, len(nodes)) if leader is None else nodes.index(NodeId(leader))
            self._retry_after(schema, skewed(self._rng, 1_000, 60_000), elsewhere=False)
            return
        self._open.remove(schema)
        self._timers.pop(schema.to_bytes()).cancel()
        self._coverage.hit("alter.done" if error is None else "alter.refused")
        if error is None:
            self._table.schema = schema
        self._facts.altered(schema, taken=error is None)

    def _steps(self) -> list[AlterStep]:
        """Draw the steps of one change. A dropped name may be used again, with another column id."""
        columns = list(self._table.schema.columns)
        steps: list[AlterStep] = []
        for _ in range(between(self._rng, 1, STEPS_MAX)):
            step = self._step(columns)
            if step is not None:
                steps.append(step)
                self._coverage.hit(f"alter.{type(step).__name__.lower()}")
        kinds = {type(step) for step in steps}
        if {AddColumn, DropColumn} <= kinds:
            self._coverage.hit("alter.add_and_drop")
        return steps or [RenameColumn(columns[-1].name, _draw_free_name(self._rng, columns))]

    def _step(self, columns: list[Column]) -> AlterStep | None:
        """Draw one step and carry it out on ``columns``; ``None`` if the drawn step is impossible."""
        extra = [column for column in columns if column.id not in (KEY, VALUE)]
        share = self._rng.random()
        if share < 0.45 and len(columns) < COLUMNS_MAX:
            kind, nullable, default = pick(self._rng, KINDS)
            name = _draw_free_name(self._rng, columns)
            # The id of a new column only has to differ from the ids of the two fixed columns here.
            columns.append(Column(id=1 << 30 | len(columns), name=name, type=kind, nullable=nullable, default=default))
            return AddColumn(name, kind, nullable, default)
        if share < 0.8 and extra and DROPS:
            dropped = pick(self._rng, extra)
            columns.remove(dropped)
            return DropColumn(dropped.name)
        if share >= 0.8:
            position = between(self._rng, 1, len(columns) - 1)
            before, name = columns[position], _draw_free_name(self._rng, columns)
            columns[position] = Column(
                id=before.id, name=name, type=before.type, nullable=before.nullable, default=before.default
            )
            return RenameColumn(before.name, name)
        return None


def _draw_free_name(rng: random.Random, columns: Sequence[Column]) -> str:
    """Draw a name that no column has."""
    taken = {column.name for column in columns}
    return pick(rng, [name for name in NAMES if name not in taken])
