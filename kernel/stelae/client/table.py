"""One table, as an ``async`` client sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any
from weakref import WeakSet

import msgspec

from stelae.client.arguments import BadArgument, flag, kind_of_write, seconds, text, whole
from stelae.client.definition import range_of
from stelae.client.failures import RowsFailed, WriteResult
from stelae.client.filters import Filter, predicates
from stelae.client.key_values import bound_of, key_of, keys_of
from stelae.client.locations import TableLocation
from stelae.client.lookup import KeyLookup
from stelae.client.relocated_tablet import RelocatedTablet
from stelae.client.row_input import unknown_columns
from stelae.client.scan import AsyncScan, Record
from stelae.client.session import AsyncSession, SessionOptions
from stelae.client.table_writer import TableWriter
from stelae.client.tablet_access import Newer, Reopen, TabletAccess
from stelae.client.times import At, from_wall_us, hybrid, to_datetime
from stelae.client.tokens import BadToken, ScanToken, TokenPart, checked_token
from stelae.client.writer_core import TIMEOUT_S_MAX
from stelae.partition.partitioning import NO_PARTITION, NoPartition
from stelae.partition.pruning import prune
from stelae.partition.schema import KeyRange
from stelae.protocol.tablet_messages import NoSuchTablet
from stelae.rows.batch_building import build_batch
from stelae.rows.changes import FLAG_ID, changes_layout
from stelae.rows.keys import encode_key, encode_keys
from stelae.spi.errors import CallerError, SchemaMismatch
from stelae.spi.ids import TabletId
from stelae.spi.rows import RowBatch
from stelae.spi.scan import Order, ScanSpec
from stelae.spi.schema import Schema
from stelae.spi.write import OpKind

TIMEOUT_S = 30.0
"""How long a write or a page of a scan is retried by default, in seconds."""


class AsyncTable:
    """A table. Made by ``AsyncClient.table``.

    Args:
        location: where it is, and its schema.
        tablets: its tablets, in the order of the partitions.
        addresses: where its cluster was found; tokens carry them.
        wall_timestamp: the hybrid timestamp of now, by this machine's clock.
        reopen: looks the table up again; ``None``: it stays as it is.
        newer: the same, if tablets have come or gone; ``None``: none does.
    """

    def __init__(
        self,
        location: TableLocation,
        tablets: Sequence[TabletAccess],
        addresses: Sequence[str],
        wall_timestamp: Callable[[], int],
        reopen: Reopen | None = None,
        newer: Newer | None = None,
    ) -> None:
        self.name = location.name
        self._tablets = tablets
        self._addresses = tuple(addresses)
        self._wall_timestamp = wall_timestamp
        self.partitioning = location.partitioning()
        self._location = location
        self._reopen = reopen
        self._newer = newer
        self._writer = TableWriter(location.name, self.partitioning, tablets)
        self._writer.renew = lambda timeout_s: self.refresh(timeout_s=timeout_s)
        self._by_id = {tablet.tablet_id: tablet for tablet in tablets}
        self.sessions: WeakSet[AsyncSession] = WeakSet()
        """Sessions that were opened; the client ends them when it is closed."""

    def __repr__(self) -> str:
        columns = ", ".join(f"{name} {kind}" for name, kind in self.columns.items())
        return f"<table {self.name}: {columns}; key {', '.join(self.key)}>"

    async def refresh(self, *, timeout_s: float = TIMEOUT_S) -> bool:
        """Look the table up again, as its name, columns and ranges are by now; returns whether anything has changed.

        Writes do so by themselves when the table has been altered, and scans when they begin, if ranges have come or
        gone. Scans that have begun go on as they were.

        Raises:
            NoSuchTable: it is gone.
            Unavailable: not in time, or it is being altered all the time.
        """
        timeout_s = seconds("timeout_s", timeout_s)
        if self._reopen is None:
            return False
        before = self._location
        location, tablets = await self._reopen(before, timeout_s)
        if self._location is before and location != before:
            self._become(location, tablets)
        return self._location is not before  # Others that looked it up meanwhile have told the table.

    def _become(self, location: TableLocation, tablets: Sequence[TabletAccess]) -> None:
        self._location, self.name, self._tablets = location, location.name, tablets
        self.partitioning = location.partitioning()
        self._writer.name = location.name
        self._writer.altered(self.partitioning, tablets)
        self._by_id.update({tablet.tablet_id: tablet for tablet in tablets})

    @property
    def schema(self) -> Schema:
        """Columns and key, as they were when the table was looked up last: at opening, or at :meth:`refresh`."""
        return self.partitioning.schema

    @property
    def columns(self) -> Mapping[str, str]:
        """Type of each column by name, in order."""
        return {column.name: column.type for column in self.schema.columns}

    @property
    def key(self) -> Sequence[str]:
        """Names of the key columns, in key order."""
        return [column.name for column in self.schema.key_layout.columns]

    @property
    def retries(self) -> int:
        """How many operations had to be sent again, since the table was opened."""
        return sum(tablet.retries for tablet in self._by_id.values())

    def key_range(self, start: Any = None, end: Any = None) -> KeyRange:
        """Return the range of keys from ``start`` to before ``end``, as ``AddRange`` and ``DropRange`` want it.

        Args:
            start: one value, or a list of one for each range column; ``None``: from the least.
            end: the same; ``None``: to the greatest.

        Raises:
            BadPartitioning: the table has no ranges, or a bound does not fit.
        """
        return range_of(self.schema, self.partitioning.partition_schema, start, end)

    # -- writes ----------------------------------------------------------------------------------

    async def insert(self, rows: Any, *, errors: str = "raise", timeout_s: float = TIMEOUT_S) -> WriteResult:
        """Write new rows; a key that exists is a failure, and stays as it is. See :meth:`write`."""
        return await self.write(OpKind.INSERT, rows, errors=errors, timeout_s=timeout_s)

    async def upsert(self, rows: Any, *, errors: str = "raise", timeout_s: float = TIMEOUT_S) -> WriteResult:
        """Write new rows, or replace the given columns of those that exist. See :meth:`write`."""
        return await self.write(OpKind.UPSERT, rows, errors=errors, timeout_s=timeout_s)

    async def update(self, rows: Any, *, errors: str = "raise", timeout_s: float = TIMEOUT_S) -> WriteResult:
        """Replace the given columns of rows that exist; a missing one is a failure. See :meth:`write`."""
        return await self.write(OpKind.UPDATE, rows, errors=errors, timeout_s=timeout_s)

    async def delete(self, rows: Any, *, errors: str = "raise", timeout_s: float = TIMEOUT_S) -> WriteResult:
        """Delete rows by key; a missing one is a failure. See :meth:`write`."""
        return await self.write(OpKind.DELETE, rows, errors=errors, timeout_s=timeout_s)

    async def insert_ignore(self, rows: Any, *, errors: str = "raise", timeout_s: float = TIMEOUT_S) -> WriteResult:
        """Write new rows and leave those that exist alone, without a failure. See :meth:`write`."""
        return await self.write(OpKind.INSERT_IGNORE, rows, errors=errors, timeout_s=timeout_s)

    async def update_ignore(self, rows: Any, *, errors: str = "raise", timeout_s: float = TIMEOUT_S) -> WriteResult:
        """Update rows that exist and skip those that do not, without a failure. See :meth:`write`."""
        return await self.write(OpKind.UPDATE_IGNORE, rows, errors=errors, timeout_s=timeout_s)

    async def delete_ignore(self, rows: Any, *, errors: str = "raise", timeout_s: float = TIMEOUT_S) -> WriteResult:
        """Delete rows by key and skip those that are missing, without a failure. See :meth:`write`."""
        return await self.write(OpKind.DELETE_IGNORE, rows, errors=errors, timeout_s=timeout_s)

    async def write(
        self, kind: OpKind, rows: Any, *, errors: str = "raise", timeout_s: float = TIMEOUT_S
    ) -> WriteResult:
        """Write rows and wait until a majority of each tablet has made them durable.

        Args:
            kind: what to do with them.
            rows: a dict, a tuple (values in the order of the schema; for deletes, of the key), an iterable of these, a
                pyarrow ``Table``, ``RecordBatch`` or ``RecordBatchReader``, or a pandas or polars ``DataFrame``.
                Absent columns get their default, or null; updates leave them alone.
            errors: ``"raise"``, or ``"return"``: failures stand in the result alone.
            timeout_s: how long each batch is retried, up to 300 s.

        Raises:
            RowsFailed: some rows were not taken; all others are written. It has the list, with reasons.
            SchemaMismatch: columns of a frame are unknown, missing, or of another kind of type.
            CallerError: ``rows`` cannot be read.
        """
        if errors not in ("raise", "return"):
            raise BadArgument("errors", "'raise' or 'return'", errors)
        timeout_s = seconds("timeout_s", timeout_s, above_0=True, most=TIMEOUT_S_MAX)
        result = (await self._writer.write(kind_of_write(kind), rows, timeout_s)).result()
        if result.failed and errors == "raise":
            raise RowsFailed(result)
        return result

    def session(self, options: SessionOptions | None = None) -> AsyncSession:
        """Open a session, which takes rows one by one and sends them in batches. Close it, or use ``async with``."""
        if options is not None and not isinstance(options, SessionOptions):
            raise BadArgument("options", "SessionOptions, or None", options)
        session = AsyncSession(self._writer, options or SessionOptions())
        self.sessions.add(session)
        return session

    # -- reads -----------------------------------------------------------------------------------

    async def get(self, key: Any, *, at: At | None = None, timeout_s: float = TIMEOUT_S) -> Record | None:
        """Return the row of a key, or ``None``; linearizable unless ``at`` is given.

        Args:
            key: one value, a tuple in key order, a dict by column, or a row of a pandas frame.

        Raises:
            SchemaMismatch: a value does not fit its key column.
            NoPartition: the key lies in none of the table's ranges.
        """
        timeout_s = seconds("timeout_s", timeout_s)
        values = key_of(self.schema, key)
        encoded = encode_key(self.schema, values)
        spec = ScanSpec(columns=self.schema.layout.ids, key_from=encoded, key_until=encoded + b"\0", limit=1)
        for attempt in count():
            partitioning = self.partitioning
            try:
                place = partitioning.partition_of_key(values)
                part = TokenPart(self._tablets[place].tablet_id, None if at is None else hybrid(at))
                found = await self._open(self._token(spec, (part,)), timeout_s).to_pylist()
                break
            except (NoPartition, NoSuchTablet):
                # A range has come, or gone and come again, since the table was looked up.
                if attempt or not (await self.refresh(timeout_s=timeout_s) or partitioning is not self.partitioning):
                    raise
        return found[0] if found else None

    async def get_many(
        self, keys: Iterable[Any], *, at: At | None = None, timeout_s: float = TIMEOUT_S
    ) -> list[Record | None]:
        """Return the row of each key, or ``None``, in the order of the keys; a frame's rows are keys, too.

        Keys whose rows are neighbours are read together: a thousand of them cost about as much as a page of a scan.
        Each row is read linearizably, unless ``at`` is given; not all of them are of one time then.

        Raises:
            SchemaMismatch: a value does not fit its key column.
        """
        timeout_s = seconds("timeout_s", timeout_s)
        values = keys_of(self.schema, keys)
        if not values:
            return []
        rows = build_batch(self.schema.key_layout, values)
        if NO_PARTITION in self.partitioning.partitions_of(rows):
            await self._look(timeout_s)
        for attempt in count():
            partitioning = self.partitioning
            try:
                return await self._find(rows, None if at is None else hybrid(at), timeout_s)
            except NoSuchTablet:
                if attempt or not (await self.refresh(timeout_s=timeout_s) or partitioning is not self.partitioning):
                    raise
        raise AssertionError("unreachable")

    async def _find(self, rows: RowBatch, snapshot: int | None, timeout_s: float) -> list[Record | None]:
        """The row of each key, as the table is divided now, whatever becomes of it while its tablets are read."""
        schema, tablets = self.schema, self._tablets
        encoded = encode_keys(schema, rows)
        wanted: dict[int, set[bytes]] = {}
        for place, key in zip(self.partitioning.partitions_of(rows), encoded, strict=True):
            if place != NO_PARTITION:
                wanted.setdefault(place, set()).add(key)

        def read(place: int, spec: ScanSpec) -> AsyncScan:
            return self._open(self._token(spec, (TokenPart(tablets[place].tablet_id, snapshot),)), timeout_s)

        found = await KeyLookup(schema, read).find(wanted)
        return [found.get(key) for key in encoded]

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: Filter | Iterable[Filter] | None = None,
        *,
        limit: int | None = None,
        order: str = "any",
        start: Any = None,
        end: Any = None,
        at: At | None = None,
        staleness_s: float | None = None,
        own_writes: bool = False,
        timeout_s: float = TIMEOUT_S,
    ) -> AsyncScan:
        """Describe a scan; it is carried out when its rows are taken.

        Args:
            columns: names, in the order wanted; ``None``: all.
            where: ``(column, operation, value)``, or a list of these, of which all must hold.
            limit: most rows to return.
            order: ``"any"``, ``"key"`` or ``"key_descending"``.
            start: the first key, or values for the first key columns of it.
            end: the same; rows from here on are left out.
            at: read a snapshot: a ``datetime`` (local time if it has no zone), or the timestamp of a write's result.
            staleness_s: let any replica serve that is at most so far behind, by this machine's clock.
            own_writes: let any replica serve that has what this table object wrote.
            timeout_s: how long a page is retried.

        Without ``at``, ``staleness_s`` and ``own_writes`` each tablet is read linearizably: it shows every write that
        was acknowledged before its first page. With ``at`` all tablets show the same time.

        Raises:
            SchemaMismatch: a column is unknown, or a filter does not fit.
            CallerError: options that do not go together, or are out of range.
        """
        timeout_s = seconds("timeout_s", timeout_s)
        if [at is not None, staleness_s is not None, flag("own_writes", own_writes)].count(True) > 1:
            raise CallerError("at, staleness_s and own_writes are three ways to read: choose one")
        known = [*Order]
        if order not in known:
            raise CallerError(f"order is {order!r}; known: {', '.join(known)}")
        spec = ScanSpec(
            columns=self._column_ids(columns),
            predicates=predicates(self.schema, where),
            key_from=bound_of(self.schema, start),
            key_until=bound_of(self.schema, end),
            limit=_checked_limit(limit),
            order=Order(order),
        )
        snapshot = None if at is None else hybrid(at)
        at_least = self._at_least(staleness_s, own_writes, prune(self.partitioning, spec))
        return self._open(self._token(spec, None, at_least, snapshot), timeout_s)

    def diff(
        self,
        since: At,
        until: At | None = None,
        columns: Sequence[str] | None = None,
        *,
        limit: int | None = None,
        order: str = "any",
        start: Any = None,
        end: Any = None,
        timeout_s: float = TIMEOUT_S,
    ) -> AsyncScan:
        """Describe a scan of what has changed between two times; it is carried out when its rows are taken.

        Its rows are those that were written after ``since`` and are there at ``until``, as they are then, and the keys
        of those that were there at ``since`` and are not any more: the column ``is_deleted`` (with ``_`` behind it if
        the table has one of that name) is true for these, and all but the key is null. A row that came and went in
        between is not told; one that was written and has the values that it had may be. Applied to the table of
        ``since``, row by row, they give that of ``until``.

        Args:
            since: a ``datetime``, or a hybrid timestamp, such as that of a write's result or ``at`` of the diff before.
            until: the same; ``None``: :meth:`now`.
            columns: names, in the order wanted; those of the key come first if they are not among them.
            limit: most rows to return.
            order: ``"any"`` or ``"key"``.
            start: the first key, or values for the first key columns of it.
            end: the same; rows from here on are left out.
            timeout_s: how long a page is retried.

        Rows of a range that was dropped in between are not told.

        Raises:
            SchemaMismatch: a column is unknown.
            CallerError: options that do not go together, or are out of range.
        """
        timeout_s = seconds("timeout_s", timeout_s)
        begin = hybrid(since)
        # Who gave out ``since`` may have a clock that is ahead of this one.
        finish = max(self.now(), begin) if until is None else hybrid(until)
        if begin > finish:
            times = f"{to_datetime(begin).isoformat()} is after {to_datetime(finish).isoformat()}"
            raise CallerError(f"a diff goes from a time to a later one; {times}: exchange them")
        if order not in (Order.ANY, Order.KEY):
            raise CallerError(f"order of a diff is {order!r}; known: any, key")
        ids = tuple(i for i in changes_layout(self.schema, self._column_ids(columns)).ids if i != FLAG_ID)
        spec = ScanSpec(
            columns=ids,
            key_from=bound_of(self.schema, start),
            key_until=bound_of(self.schema, end),
            limit=_checked_limit(limit),
            order=Order(order),
        )
        return self._open(msgspec.structs.replace(self._token(spec, None, at=finish), since=begin), timeout_s)

    def open(self, token: ScanToken, *, timeout_s: float = TIMEOUT_S) -> AsyncScan:
        """Carry on a scan, or a part of one, from its token.

        Raises:
            BadToken: it is of another table, or reads a range that is gone.
            SchemaMismatch: a column that it reads was dropped.
        """
        checked_token(token).check(self.name, self._location.table_id, self.schema, self._by_id)
        return self._open(token, seconds("timeout_s", timeout_s))

    def now(self) -> int:
        """Return a hybrid timestamp for ``scan(at=...)``: of now, and not before any write of this table object.

        It is of this machine's clock: a node whose clock is behind serves it once its own has come so far."""
        return max(self._wall_timestamp(), *self._writer.written.values(), 0)

    # -- inside ----------------------------------------------------------------------------------

    def _open(self, token: ScanToken, timeout_s: float) -> AsyncScan:
        return AsyncScan(
            token, self.schema, partial(RelocatedTablet, _Scanned(self), self.schema), timeout_s, self._begin
        )

    def _token(
        self, spec: ScanSpec, parts: tuple[TokenPart, ...] | None, at_least: int | None = None, at: int | None = None
    ) -> ScanToken:
        schema, table_id = self.schema.to_bytes(), self._location.table_id
        return ScanToken(self._addresses, self.name, schema, spec, parts, at_least, table_id=table_id, at=at)

    async def _begin(self, token: ScanToken, timeout_s: float) -> ScanToken:
        """Return a token with the tablets that it reads, all of which are known.

        A scan that begins reads the ranges that the table has by then, whoever added or dropped them."""
        if token.parts is not None:
            if token.strangers(self._by_id):
                await self._look(timeout_s)
            for gone in token.strangers(self._by_id):
                fact = (
                    f"the token reads tablet {gone!r}, which table {self.name!r} does not have: its range was dropped"
                )
                raise BadToken(f"{fact}; make a new token")
            return token
        await self._look(timeout_s)
        visited = prune(self.partitioning, token.spec)
        parts = tuple(TokenPart(self._tablets[place].tablet_id, token.at) for place in visited)
        return msgspec.structs.replace(token, parts=parts)

    async def _look(self, timeout_s: float) -> None:
        """See that all tablets of a table whose ranges may come and go are known."""
        if self._newer is None or self.partitioning.range_columns is None:
            return
        before = self._location
        found = await self._newer(before, timeout_s)
        if found is not None and self._location is before:
            self._become(*found)

    def _column_ids(self, columns: Sequence[str] | None) -> tuple[int, ...]:
        schema = self.schema
        if columns is None:
            return schema.layout.ids
        if isinstance(columns, bytes) or not isinstance(columns, Iterable):
            raise BadArgument("columns", "a list of names, or None for all", columns)
        names = [columns] if isinstance(columns, str) else [text("a column to read", name) for name in columns]
        unknown = [str(name) for name in names if name not in schema.by_name]
        if unknown:
            raise SchemaMismatch(unknown_columns(schema, unknown))
        if not names or len(set(names)) != len(names):
            raise SchemaMismatch(f"columns to read are one or more different ones, not {names!r:.120}")
        return tuple(schema.by_name[name].id for name in names)

    def _at_least(self, staleness_s: float | None, own_writes: bool, visited: Sequence[int]) -> int | None:
        if own_writes:
            written = self._writer.written
            return max((written.get(self._tablets[place].tablet_id, 0) for place in visited), default=0)
        if staleness_s is None:
            return None
        staleness_s = seconds("staleness_s", staleness_s)
        return max(0, self._wall_timestamp() - from_wall_us(int(staleness_s * 1_000_000)))


class _Scanned:
    """The tablets of a table for scans of it (``ScannedTable``)."""

    def __init__(self, table: AsyncTable) -> None:
        self._table = table

    @property
    def name(self) -> str:
        return self._table.name

    @property
    def schema(self) -> Schema:
        return self._table.schema

    def tablet(self, tablet_id: TabletId) -> TabletAccess:
        return self._table._by_id[tablet_id]

    def has_tablet(self, tablet_id: TabletId) -> bool:
        return any(tablet.tablet_id == tablet_id for tablet in self._table._tablets)

    async def refresh(self, *, timeout_s: float) -> bool:
        return await self._table.refresh(timeout_s=timeout_s)


def _checked_limit(limit: int | None) -> int | None:
    return None if limit is None else whole("limit", limit, 0, or_none="for all rows")
