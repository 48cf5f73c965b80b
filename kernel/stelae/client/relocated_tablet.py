"""Reads one tablet of a table for a scan, and looks the table up again when the tablet's replicas have moved."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Protocol

from stelae.client.page_rows import PageRows
from stelae.client.page_streams import ReadableTablet
from stelae.client.tokens import check_columns
from stelae.protocol.tablet_messages import NoSuchTablet, ScanPage, SplitKeys
from stelae.spi.errors import SchemaMismatch
from stelae.spi.ids import TabletId
from stelae.spi.rows import RowBatch
from stelae.spi.scan import ScanSpec
from stelae.spi.schema import Schema


class ScannedTable(Protocol):
    """What a scan of one tablet needs of the table."""

    @property
    def name(self) -> str:
        """Name of the table as of the last lookup."""
        ...

    @property
    def schema(self) -> Schema:
        """Columns and key as of the last lookup."""
        ...

    def tablet(self, tablet_id: TabletId) -> ReadableTablet:
        """Return a tablet as of the last lookup that had it; its range may have been dropped since."""
        ...

    def has_tablet(self, tablet_id: TabletId) -> bool:
        """Return whether the tablet belongs to the table as of the last lookup."""
        ...

    async def refresh(self, *, timeout_s: float) -> bool:
        """Look the table up again and return whether it has changed."""
        ...


class RelocatedTablet:
    """A ``ReadableTablet`` that survives moves of its replicas.

    Args:
        table: the table of the scan.
        schema: the schema for which the scan was made.
        tablet_id: the tablet to read.
    """

    def __init__(self, table: ScannedTable, schema: Schema, tablet_id: TabletId) -> None:
        self._table = table
        self._schema = schema
        self.tablet_id = tablet_id

    async def page(
        self, spec: ScanSpec, *, at: int | None, at_least: int | None, reader: PageRows, timeout_s: float
    ) -> tuple[ScanPage, Awaitable[RowBatch | None]]:
        """Read a page.

        Raises:
            NoSuchTablet: the range of the tablet was dropped.
            SchemaMismatch: a column that the scan reads was dropped.
        """
        table, tablet_id = self._table, self.tablet_id
        arguments: Any = {"at": at, "at_least": at_least, "reader": reader, "timeout_s": timeout_s}
        tried = table.tablet(tablet_id)
        try:
            return await tried.page(spec, **arguments)
        except SchemaMismatch:
            # The tablet names columns by id. After a lookup the error can name the dropped column.
            await table.refresh(timeout_s=timeout_s)
            check_columns(spec, self._schema, table.schema)
            raise
        except NoSuchTablet as error:
            await found_again(table, tablet_id, tried, error, timeout_s)
            return await table.tablet(tablet_id).page(spec, **arguments)

    async def split_keys(self, spec: ScanSpec, bytes_max: int, *, timeout_s: float) -> SplitKeys:
        """Return keys that divide the key range of a scan; see ``ConnectedTablet.split_keys``."""
        table, tablet_id = self._table, self.tablet_id
        tried = table.tablet(tablet_id)
        try:
            return await tried.split_keys(spec, bytes_max, timeout_s=timeout_s)
        except NoSuchTablet:
            await table.refresh(timeout_s=timeout_s)
            if table.tablet(tablet_id) is tried:
                raise
            return await table.tablet(tablet_id).split_keys(spec, bytes_max, timeout_s=timeout_s)


async def found_again(
    table: ScannedTable, tablet_id: TabletId, tried: ReadableTablet, error: NoSuchTablet, timeout_s: float
) -> None:
    """Look a table up again after the members that it had for a tablet have answered that they do not have it.

    Args:
        table: has the tablet at its new place afterwards.
        tablet_id: id of the tablet.
        tried: the tablet at its old place.
        error: the answer.
        timeout_s: how long the masters are asked.

    Raises:
        NoSuchTablet: the range of the tablet was dropped, or the table is as before.
    """
    if not await table.refresh(timeout_s=timeout_s) and table.tablet(tablet_id) is tried:
        raise error
    if not table.has_tablet(tablet_id):
        fact = f"table {table.name!r} has no tablet {tablet_id!r} any more: its range was dropped"
        raise NoSuchTablet(f"{fact} while it was read; read again") from None
