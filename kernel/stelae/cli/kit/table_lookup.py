"""Lookup of the table that a user names, with suggestions if there is no match."""

from __future__ import annotations

from stelae.cli.kit.name_lookup import pick
from stelae.client.catalog import CatalogClient
from stelae.protocol.master_errors import NoTable
from stelae.protocol.master_messages import TableDescription


async def describe_table(
    catalog: CatalogClient, name: str, timeout_s: float, *, staleness_ms: int = 0
) -> TableDescription:
    """Ask the masters for a table by its name, its id or the beginning of its id.

    ``staleness_ms`` is that of ``CatalogClient.list_tables``.

    Raises:
        UnknownName: there is no such table. The message has the nearest names.
        Unavailable: no master answered in time.
    """
    try:
        return await catalog.get_table(name, staleness_ms=staleness_ms, timeout_s=timeout_s)
    except NoTable:
        listed = (await catalog.list_tables(staleness_ms=staleness_ms, timeout_s=timeout_s)).tables
        names = {str(table.table_id): str(table.table_id) for table in listed}
        # Only the beginning of an id is completed, not that of a name.
        found = pick("table", name, names, "stelae table list", shown=[table.name for table in listed])
        return await catalog.get_table(found, staleness_ms=staleness_ms, timeout_s=timeout_s)
