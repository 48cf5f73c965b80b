"""Looks up rows of a table by encoded key, and the table itself again when a tablet or a column has gone."""

from __future__ import annotations

from collections.abc import Sequence

from stelae.client.bounded_calls import each
from stelae.client.found_parts import FoundPart
from stelae.client.lookup_requests import divided, fit_together
from stelae.client.plain_records import LacksColumns, PlainRecords, Record
from stelae.client.present_table import PresentTable
from stelae.client.relocated_tablet import found_again
from stelae.client.tokens import check_columns
from stelae.protocol.tablet_messages import NoSuchTablet
from stelae.spi.errors import SchemaMismatch
from stelae.spi.ids import TabletId
from stelae.spi.scan import ScanSpec
from stelae.spi.schema import Schema

REQUESTS_AT_ONCE = 4
"""The most requests of one call to one tablet that are in flight at the same time."""


class TableLookup:
    """Looks up rows.

    Args:
        table: the table as it is at any time.
        schema: the rows have its columns.
    """

    def __init__(self, table: PresentTable, schema: Schema) -> None:
        self._table = table
        self._records = PlainRecords(schema)

    async def many(
        self, tablet_id: TabletId, keys: Sequence[bytes], at: int | None, timeout_s: float
    ) -> list[Record | None]:
        """Return the rows of any number of keys; see :meth:`rows`. Several requests are in flight at the same time."""
        if fit_together(keys):
            return await self.rows(tablet_id, keys, at, timeout_s)
        requests = [*divided(keys, _alone)]
        found = await each(requests, lambda some: self.rows(tablet_id, some, at, timeout_s), at_once=REQUESTS_AT_ONCE)
        return [record for records in found for record in records]

    async def rows(
        self, tablet_id: TabletId, keys: Sequence[bytes], at: int | None, timeout_s: float
    ) -> list[Record | None]:
        """Return the row of each encoded key of a tablet, or ``None``.

        Args:
            tablet_id: a tablet that the table has, or has had since it was opened.
            keys: 1 to ``LOOKUP_KEYS_MAX`` encoded keys.
            at: hybrid timestamp; ``None``: each row is read linearizably.
            timeout_s: how long a request is repeated.

        Raises:
            NoSuchTablet: the range of the tablet was dropped.
            SchemaMismatch: a column of the schema was dropped.
            Unavailable: no replica could serve in time.
            TooOld: ``at`` is below the history floor.
        """
        table = self._table
        tried = table.tablet(tablet_id)
        try:
            parts: Sequence[FoundPart] = await tried.look_up(keys, at=at, timeout_s=timeout_s)
        except NoSuchTablet as error:
            await found_again(table, tablet_id, tried, error, timeout_s)
            parts = await table.tablet(tablet_id).look_up(keys, at=at, timeout_s=timeout_s)
        try:
            if len(parts) == 1:
                return self._records.of(parts[0])
            return [record for part in parts for record in self._records.of(part)]
        except LacksColumns:
            await table.refresh(timeout_s=timeout_s)
            schema = self._records.schema
            check_columns(ScanSpec(columns=schema.layout.ids), schema, table.schema)
            raise SchemaMismatch(f"columns of table {table.name!r} were dropped; read again") from None


def _alone(key: bytes) -> tuple[bytes]:
    return (key,)
