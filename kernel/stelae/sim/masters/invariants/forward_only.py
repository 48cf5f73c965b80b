"""The records of the committed catalog only move forward along their state tables, even with two leader masters."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

from stelae.protocol.catalog_names import TableState
from stelae.server.master.core.catalog import Catalog
from stelae.server.master.core.records import ClusterRecord, Record, TableRecord, TabletRecord
from stelae.server.master.core.states import table_may_become, tablet_may_become
from stelae.sim.masters.invariants.base import MastersInvariant
from stelae.sim.masters.world import Committed
from stelae.spi.ids import ZERO


class ForwardOnly(MastersInvariant):
    """Each entry moves each record along its state table. Terminal states stay. Versions and configs only increase.

    No two tables that clients see have the same name. A schema change is recorded as complete only once every tablet
    has the schema."""

    name: ClassVar[str] = "forward_only"
    source: ClassVar[str] = "issue: two leader masters do no harm; durability.md rules 26 and 27"

    def on_committed(self, before: Catalog, entry: Committed) -> None:
        """Compare each record with the record before."""
        for record in () if entry.batch is None else entry.batch.puts:
            wrong = self._wrong(before, record)
            if wrong:
                self.fail(f"{entry.op_id}: {'/'.join(record.key)} {wrong}")
        seen = Counter(
            table.name
            for table in self.world.committed_catalog.tables.values()
            if table.state in (TableState.RUNNING, TableState.ALTERING)
        )
        twice = [name for name, count in seen.items() if count > 1]
        if twice:
            self.fail(f"{entry.op_id}: more than one table has the name {twice}")

    def _wrong(self, before: Catalog, record: Record) -> str:
        if isinstance(record, TableRecord):
            table = before.tables.get(record.table_id)
            if not table_may_become(None if table is None else table.state, record.state):
                return f"changes from {'nothing' if table is None else table.state} to {record.state}"
            if table is not None and not record.terminal and record.newest.version < table.newest.version:
                return f"changes from schema {table.newest.version} back to {record.newest.version}"
            if table is not None and (table.state, record.state) == (TableState.ALTERING, TableState.RUNNING):
                return self._unsettled(record)
            if table is not None and not record.terminal and record.next_column_id < table.next_column_id:
                return "assigns a column id again"
        elif isinstance(record, ClusterRecord):
            return "" if before.cluster is None else "is written again"
        elif isinstance(record, TabletRecord):
            return self._wrong_tablet(before.tablets.get(record.tablet_id), record)
        return ""

    def _unsettled(self, table: TableRecord) -> str:
        """Check a table whose schema change is recorded as complete: every tablet must have the schema."""
        for tablet in self.world.committed_catalog.live_tablets(table.table_id):
            group = self.groups.groups.get(tablet.tablet_id)
            if group is None or group.schema_version < table.newest.version:
                return f"completes schema {table.newest.version}, but tablet {tablet.tablet_id} does not have it"
        return ""

    def _wrong_tablet(self, old: TabletRecord | None, record: TabletRecord) -> str:
        if not tablet_may_become(None if old is None else old.state, record.state):
            return f"changes from {'nothing' if old is None else old.state} to {record.state}"
        if old is None or old.config is None:
            return ""
        op_id = ZERO if record.config is None else record.config.op_id
        if op_id < old.config.op_id:
            return f"changes from config {old.config.op_id} back to {op_id}"
        if not record.terminal and record.partition != old.partition:
            return "moves to another partition"
        return ""
