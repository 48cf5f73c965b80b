"""Finds the table that a user names, and says what is near when there is none."""

from __future__ import annotations

from stelae.cli.kit.naming import pick
from stelae.client.catalog import CatalogClient
from stelae.protocol.master_errors import NoTable
from stelae.protocol.master_messages import TableDescription


async def described(catalog: CatalogClient, name: str, timeout_s: float) -> TableDescription:
    """Ask the masters for a table, by its name, its id or the beginning of its id.

    Raises:
        UnknownName: there is none; with the nearest names.
        Unavailable: no master could say in time.
    """
    try:
        return await catalog.get_table(name, timeout_s=timeout_s)
    except NoTable:
        listed = (await catalog.list_tables(timeout_s=timeout_s)).tables
        names = {str(table.table_id): str(table.table_id) for table in listed}
        # Nobody begins a name and means the table: only ids are completed.
        found = pick("table", name, names, "stelae table list", shown=[table.name for table in listed])
        return await catalog.get_table(found, timeout_s=timeout_s)
