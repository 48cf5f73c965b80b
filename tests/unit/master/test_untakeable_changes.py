"""Changes of a table that every tablet would refuse: the masters refuse them first, and nothing stays ALTERING."""

from __future__ import annotations

import pytest

from stelae.protocol.master_messages import AddColumn, AlterTable, SetDefault
from tests.unit.master.company import Company, bring_along, leading
from tests.unit.master.test_changes import altered, refused


@pytest.fixture
def company() -> Company:
    """A leader that hears three servers."""
    return leading()


def test_a_change_that_no_tablet_could_take_is_refused(company: Company) -> None:
    """Each step was fine alone; together they added a column for which older rows have no value. Every tablet refused
    it, and the table stayed ALTERING for ever."""
    company.create_running()
    before = company.core.catalog.tables
    steps = (AddColumn(name="w", type="int64", nullable=False, default=5), SetDefault(name="w", default=None))
    found = refused(company, AlterTable(table="readings", steps=steps))
    assert found.code == "SCHEMA_MISMATCH" and "no value for the new column 'w'" in found.detail
    assert company.core.catalog.tables is before
    altered(company, steps[0], sequence=2)
    bring_along(company, 2)
    altered(company, steps[1], sequence=3)
    (table,) = company.core.catalog.tables.values()
    assert table.newest.by_name["w"].required, "rows between the two changes have the default of then"
