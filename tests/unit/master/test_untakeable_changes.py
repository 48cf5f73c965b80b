"""Changes of a table that every tablet would refuse: the masters refuse them first, and nothing stays ALTERING."""

from __future__ import annotations

import pytest

from stelae.protocol.master_messages import AddColumn, AlterTable, SetDefault
from tests.unit.master.master_with_servers import MasterWithServers, bring_along, leading
from tests.unit.master.test_changes import altered, refused


@pytest.fixture
def cluster() -> MasterWithServers:
    """A leader that hears three servers."""
    return leading()


def test_a_change_that_no_tablet_could_take_is_refused(cluster: MasterWithServers) -> None:
    """Each step was fine alone; together they added a column for which older rows have no value. Every tablet refused
    it, and the table stayed ALTERING for ever."""
    cluster.create_running()
    before = cluster.core.catalog.tables
    steps = (AddColumn(name="w", type="int64", nullable=False, default=5), SetDefault(name="w", default=None))
    found = refused(cluster, AlterTable(table="readings", steps=steps))
    assert found.code == "SCHEMA_MISMATCH" and "no value for the new column 'w'" in found.detail
    assert cluster.core.catalog.tables is before
    altered(cluster, steps[0], sequence=2)
    bring_along(cluster, 2)
    altered(cluster, steps[1], sequence=3)
    (table,) = cluster.core.catalog.tables.values()
    assert table.newest.by_name["w"].required, "rows between the two changes have the default of then"
