"""One tablet of a table for those who scan it, whatever becomes of the table meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from stelae.client.page_rows import PageRows
from stelae.client.tokens import check_columns
from stelae.protocol.tablet_messages import NoSuchTablet, ScanPage
from stelae.spi.errors import SchemaMismatch
from stelae.spi.ids import TabletId
from stelae.spi.rows import RowBatch
from stelae.spi.scan import ScanSpec
from stelae.spi.schema import Schema

if TYPE_CHECKING:
    from stelae.client.table import AsyncTable


class FollowedTablet:
    """One tablet of a table, found again when its replicas have moved. ``schema`` is what scans of it are made for."""

    def __init__(self, table: AsyncTable, schema: Schema, tablet_id: TabletId) -> None:
        self._table = table
        self._schema = schema
        self.tablet_id = tablet_id

    async def page(
        self, spec: ScanSpec, *, at: int | None, at_least: int | None, reader: PageRows, timeout_s: float
    ) -> tuple[ScanPage, Awaitable[RowBatch | None]]:
        """Read a page; ``NoSuchTablet``: the tablet's range was dropped. ``SchemaMismatch``: a column was."""
        table, tablet_id = self._table, self.tablet_id
        given: Any = {"at": at, "at_least": at_least, "reader": reader, "timeout_s": timeout_s}
        tried = table._by_id[tablet_id]
        try:
            return await tried.page(spec, **given)
        except SchemaMismatch:
            # A tablet knows columns by id; people know them by name.
            await table.refresh(timeout_s=timeout_s)
            check_columns(spec, self._schema, table.schema)
            raise
        except NoSuchTablet:
            if not await table.refresh(timeout_s=timeout_s) and table._by_id[tablet_id] is tried:
                raise
            if tablet_id not in {tablet.tablet_id for tablet in table._tablets}:
                fact = f"table {table.name!r} has no tablet {tablet_id!r} any more: its range was dropped"
                raise NoSuchTablet(f"{fact} while it was read; scan again") from None
            return await table._by_id[tablet_id].page(spec, **given)
