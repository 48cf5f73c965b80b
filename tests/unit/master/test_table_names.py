"""Names of tables that could be taken for something else."""

from __future__ import annotations

import pytest

from stelae.protocol.master_messages import AlterTable, DeleteTable, RecallTable, RenameTable
from tests.unit.master.master_with_servers import MasterWithServers, create
from tests.unit.master.test_changes import cluster, refused

__all__ = ["cluster"]


@pytest.mark.parametrize("way", ["create", "rename", "recall"])
def test_no_table_gets_a_name_in_the_form_of_an_id(cluster: MasterWithServers, way: str) -> None:
    """Clients look a table that they know up by its id. A table of this name would take its place."""
    cluster.create_running()
    table_id = cluster.core.catalog.names["readings"]
    if way == "create":
        found = refused(cluster, create(table_id))
    elif way == "rename":
        found = refused(cluster, AlterTable(table="readings", steps=(RenameTable(to="0123456789abcdef" * 2),)))
    else:
        cluster.ask(DeleteTable(table="readings", keep_ms=1000), 10)
        cluster.commit()
        found = refused(cluster, RecallTable(table_id=table_id, name=table_id), 11)
    assert found.code == "BAD_CHANGE" and "the form of a table's id" in found.detail
