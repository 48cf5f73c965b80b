"""A table as its scans and change feeds see it: lookups of its tablets, and reads of single ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

import msgspec

from stelae.client.locations import TableLocation
from stelae.client.relocated_tablet import RelocatedTablet
from stelae.client.scan import AsyncScan
from stelae.client.tablet_access import TabletAccess
from stelae.client.tokens import ScanToken, TokenPart, checked_token
from stelae.partition.partitioning import Partitioning
from stelae.spi.ids import TabletId
from stelae.spi.scan import ScanSpec
from stelae.spi.schema import Schema


class OpenedTable(Protocol):
    """What a ``PresentTable`` needs of ``AsyncTable``, which imports this module. The two share internal parts."""

    name: str
    partitioning: Partitioning
    _location: TableLocation
    _tablets: Sequence[TabletAccess]
    _by_id: dict[TabletId, TabletAccess]
    _present_ids: frozenset[TabletId]

    @property
    def schema(self) -> Schema:
        """Columns and key as of the last lookup."""
        ...

    async def refresh(self, *, timeout_s: float) -> bool:
        """Look the table up again and return whether it has changed."""
        ...

    async def _refresh_tablets(self, timeout_s: float) -> None: ...

    def now(self) -> int:
        """Return a hybrid timestamp of now, by this machine's clock."""
        ...

    async def _begin(self, token: ScanToken, timeout_s: float) -> ScanToken: ...

    def _token(
        self, spec: ScanSpec, parts: tuple[TokenPart, ...] | None, at_least: int | None = None, at: int | None = None
    ) -> ScanToken: ...


class PresentTable:
    """The present state of a table. It changes whenever the table is looked up. Implements ``ScannedTable``."""

    def __init__(self, table: OpenedTable) -> None:
        self._table = table

    @property
    def name(self) -> str:
        """Name of the table as of the last lookup."""
        return self._table.name

    @property
    def identity(self) -> str:
        """Id of the table, or its name in a cluster without masters."""
        return self._table._location.table_id or self._table.name

    @property
    def schema(self) -> Schema:
        """Columns and key as of the last lookup."""
        return self._table.schema

    @property
    def tablet_ids(self) -> Sequence[TabletId]:
        """Ids of the tablets as of the last lookup, in the order of their partitions."""
        return [tablet.tablet_id for tablet in self._table._tablets]

    @property
    def may_change_tablets(self) -> bool:
        """Whether the table may get and lose tablets: it has ranges, and masters that can change them."""
        return self._table.partitioning.range_columns is not None and bool(self._table._location.table_id)

    def tablet(self, tablet_id: TabletId) -> TabletAccess:
        """Return a tablet as of the last lookup that had it; its range may have been dropped since."""
        return self._table._by_id[tablet_id]

    def has_tablet(self, tablet_id: TabletId) -> bool:
        """Return whether the tablet belongs to the table as of the last lookup."""
        return tablet_id in self._table._present_ids

    async def refresh(self, *, timeout_s: float) -> bool:
        """Look the table up again and return whether it has changed."""
        return await self._table.refresh(timeout_s=timeout_s)

    async def refresh_tablets(self, *, timeout_s: float) -> None:
        """Look the table up again if its ranges, and so its tablets, may have changed."""
        await self._table._refresh_tablets(timeout_s)

    def now(self) -> int:
        """Return a hybrid timestamp of now, by this machine's clock."""
        return self._table.now()

    def scan(self, token: ScanToken, schema: Schema, timeout_s: float) -> AsyncScan:
        """Return the scan or the diff of a token, with the columns of ``schema``."""
        tablet = partial(RelocatedTablet, self, schema)
        return AsyncScan(token, schema, tablet, timeout_s, self._table._begin)

    def token(self, schema: Schema, spec: ScanSpec, part: TokenPart, since: int | None = None) -> ScanToken:
        """Return the token of a scan of one tablet at the time of ``part``, or of a diff from ``since`` to it."""
        token = self._table._token(spec, (part,), at=part.at)
        return msgspec.structs.replace(token, schema=schema.to_bytes(), since=since)

    def check(self, token: ScanToken) -> None:
        """Check that a token is one of this table.

        Raises:
            BadToken: it is of another table.
            SchemaMismatch: a column that it reads was dropped.
        """
        table = self._table
        checked_token(token).check(table.name, table._location.table_id, table.schema, table._by_id)
