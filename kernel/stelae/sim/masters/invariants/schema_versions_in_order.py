"""No table gets a schema version that one of its tablets could not apply."""

from __future__ import annotations

from typing import ClassVar

from stelae.server.master.core.catalog import Catalog
from stelae.server.master.core.records import TableRecord, TabletRecord
from stelae.sim.masters.invariants.base import MastersInvariant
from stelae.sim.masters.world import Committed


class SchemaVersionsInOrder(MastersInvariant):
    """A schema version is recorded only once every tablet of the table has the version before, or starts with it.

    A tablet applies schema versions one by one, and the catalog has only the newest."""

    name: ClassVar[str] = "schema_versions_in_order"
    source: ClassVar[str] = "behaviour M1: an operation ends; durability.md rule 27"

    def on_committed(self, before: Catalog, entry: Committed) -> None:
        """Compare each new version with the versions of the tablets."""
        for record in () if entry.batch is None else entry.batch.puts:
            table = before.tables.get(record.table_id) if isinstance(record, TableRecord) else None
            if table is None or not isinstance(record, TableRecord) or record.terminal or table.terminal:
                continue
            version = record.newest.version
            behind = [t.tablet_id for t in before.live_tablets(record.table_id) if self._version_of(t) < version - 1]
            if version > table.newest.version and behind:
                self.fail(
                    f"{entry.op_id}: {record.name} gets schema {version}, but tablets {behind} lack the one before"
                )

    def _version_of(self, tablet: TabletRecord) -> int:
        """Return the version of a tablet, or the one it will start with if it does not exist yet."""
        group = self.groups.groups.get(tablet.tablet_id)
        return tablet.first_schema if group is None else group.schema_version
