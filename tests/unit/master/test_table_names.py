"""Names of tables that could be taken for something else."""

from __future__ import annotations

import pytest

from stelae.protocol.master_messages import AlterTable, DeleteTable, RecallTable, RenameTable
from tests.unit.master.company import Company, create
from tests.unit.master.test_changes import company, refused

__all__ = ["company"]


@pytest.mark.parametrize("way", ["create", "rename", "recall"])
def test_no_table_gets_a_name_in_the_form_of_an_id(company: Company, way: str) -> None:
    """Clients look a table that they know up by its id. A table of this name would take its place."""
    company.create_running()
    table_id = company.core.catalog.names["readings"]
    if way == "create":
        found = refused(company, create(table_id))
    elif way == "rename":
        found = refused(company, AlterTable(table="readings", steps=(RenameTable(to="0123456789abcdef" * 2),)))
    else:
        company.ask(DeleteTable(table="readings", keep_ms=1000), 10)
        company.commit()
        found = refused(company, RecallTable(table_id=table_id, name=table_id), 11)
    assert found.code == "BAD_CHANGE" and "the form of a table's id" in found.detail
