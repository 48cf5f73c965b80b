"""A table is never partly visible."""

from __future__ import annotations

from typing import ClassVar

from stelae.protocol.catalog_names import TabletState
from stelae.protocol.master_messages import TableDescription
from stelae.server.master.core.catalog import Catalog
from stelae.server.master.core.mutations import partitions_of
from stelae.server.master.core.records import TableRecord
from stelae.sim.masters.invariants.base import MastersInvariant
from stelae.sim.masters.master import SimMaster


class NeverHalfVisible(MastersInvariant):
    """In every catalog of every master, and in every answer, each table has one tablet for each of its partitions.

    A removed table has no live tablet. A running tablet has members."""

    name: ClassVar[str] = "never_half_visible"
    source: ClassVar[str] = "issue: a table is never half visible; behaviours.md M1; source, appendix B"

    def on_applied(self, master: SimMaster, before: Catalog) -> None:
        """Check every table whose record or tablets have changed."""
        now = master.core.catalog
        for table_id, table in now.tables.items():
            if before.tables.get(table_id) is not table or before.of_table.get(table_id) != now.of_table.get(table_id):
                wrong = self._wrong(now, table)
                if wrong:
                    self.fail(f"{master.endpoint.name} at {now.applied}: table {table.name}, {table.state}, {wrong}")
        lost = [t for t in now.of_table if t not in now.tables]
        if lost:
            self.fail(f"{master.endpoint.name} at {now.applied}: tablets of tables without a record: {lost}")

    def on_description(self, description: TableDescription) -> None:
        """Check that the running tablets of an answer have members, and the others have none."""
        for tablet in description.tablets:
            if (tablet.state is TabletState.RUNNING) != bool(tablet.members):
                self.fail(
                    f"tablet {tablet.tablet_id} of {description.name} is {tablet.state} with members {tablet.members}"
                )

    def _wrong(self, catalog: Catalog, table: TableRecord) -> str:
        tablets = catalog.live_tablets(table.table_id)
        if table.terminal:
            return f"has live tablets {[t.tablet_id for t in tablets]}" if tablets else ""
        wanted = set(partitions_of(table.newest, table.partitioning))
        found = [tablet.partition for tablet in tablets]
        if len(found) != len(wanted) or set(found) != wanted:
            return f"has {len(wanted)} partitions and {len(found)} tablets, {len(set(found))} of them different"
        return ""
