"""No table gets a schema that one of its tablets could not take."""

from __future__ import annotations

from typing import ClassVar

from stelae.server.master.core.catalog import Catalog
from stelae.server.master.core.records import TableRecord, TabletRecord
from stelae.sim.masters.invariants.base import MastersInvariant
from stelae.sim.masters.world import Committed


class SchemasInReach(MastersInvariant):
    """A tablet takes one schema version after the other, and the catalog has the newest alone. So a version is put on
    record only once every tablet of the table has the one before, or will begin with it."""

    name: ClassVar[str] = "schemas_in_reach"
    source: ClassVar[str] = "behaviour M1: an operation ends; durability.md rule 27"

    def on_committed(self, before: Catalog, entry: Committed) -> None:
        """Compare each new version with what the tablets have."""
        for record in () if entry.batch is None else entry.batch.puts:
            table = before.tables.get(record.table_id) if isinstance(record, TableRecord) else None
            if table is None or not isinstance(record, TableRecord) or record.terminal or table.terminal:
                continue
            version = record.newest.version
            behind = [t.tablet_id for t in before.live_tablets(record.table_id) if self._version_of(t) < version - 1]
            if version > table.newest.version and behind:
                self.fail(f"{entry.op_id}: {record.name} gets schema {version}, out of reach of tablets {behind}")

    def _version_of(self, tablet: TabletRecord) -> int:
        """What a tablet has; of one that is not yet there, what it begins with."""
        group = self.groups.groups.get(tablet.tablet_id)
        return tablet.first_schema if group is None else group.schema_version
