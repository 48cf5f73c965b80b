"""The ``async`` table: writes rows, reads them by key, and describes scans and diffs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any
from weakref import WeakSet

import msgspec

from stelae.client.arguments import flag, seconds
from stelae.client.bounded_calls import each
from stelae.client.epoch import EPOCH_MAX, AsyncEpoch, begun
from stelae.client.failures import FAILURES_MAX, WriteResult
from stelae.client.feed_methods import AsyncFeedMethods
from stelae.client.filters import Filter, predicates
from stelae.client.key_encoder import KeyEncoder, LocatedKeys
from stelae.client.key_values import bound_of, key_of, keys_of
from stelae.client.latest_time import latest_time
from stelae.client.locations import TableLocation
from stelae.client.present_table import PresentTable
from stelae.client.read_options import checked_limit, column_ids
from stelae.client.relocated_tablet import RelocatedTablet
from stelae.client.scan import AsyncScan, Record
from stelae.client.session import AsyncSession, SessionOptions, checked_options
from stelae.client.table_definition import range_of
from stelae.client.table_lookup import TableLookup
from stelae.client.table_writer import TableWriter
from stelae.client.tablet_access import Newer, Reopen, TabletAccess, retries_of
from stelae.client.times import At, from_wall_us, hybrid, to_datetime
from stelae.client.tokens import BadToken, ScanToken, TokenPart, checked_token
from stelae.client.write_methods import TIMEOUT_S, AsyncWriteMethods, write_rows
from stelae.partition.partitioning import NO_PARTITION, NoPartition
from stelae.partition.plain_partitioning import partition_schema_to_plain
from stelae.partition.pruning import prune
from stelae.partition.schema import KeyRange
from stelae.protocol.tablet_messages import NoSuchTablet
from stelae.rows.changes import FLAG_ID, changes_layout
from stelae.spi.errors import CallerError
from stelae.spi.ids import TabletId
from stelae.spi.rows import RowBatch
from stelae.spi.scan import Order, ScanSpec
from stelae.spi.schema import Schema
from stelae.spi.write import OpKind, checked_fence

TABLETS_AT_ONCE = 16
"""The most tablets that one call of ``get_many`` asks at the same time."""

Bound = Callable[[], int | None]
"""Returns what a token's ``at_least`` has to be now."""


class AsyncTable(AsyncWriteMethods, AsyncFeedMethods):
    """A table. Made by ``AsyncClient.table``.

    Args:
        location: the schema, partitioning and tablets of the table.
        tablets: the tablets, by partition.
        addresses: addresses of the cluster, for scan tokens.
        wall_timestamp: returns the hybrid timestamp of now by this machine's clock.
        reopen: looks the table up again; ``None``: the table never changes.
        newer: looks the table up again if its tablets have changed; ``None``: they never change.
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
        self._writer.refresh = lambda timeout_s: self.refresh(timeout_s=timeout_s)
        self._by_id = {tablet.tablet_id: tablet for tablet in tablets}
        self._present_ids = frozenset(self._by_id)
        """All tablets that the table has had since it was opened: scans that have begun may still read them."""
        self.sessions: WeakSet[AsyncSession] = WeakSet()
        """The open sessions. The client ends them when it is closed."""
        self._epochs: WeakSet[AsyncEpoch] = WeakSet()
        self._keys = KeyEncoder(location.schema)
        self._lookup = TableLookup(self._present(), location.schema)

    def __repr__(self) -> str:
        columns = ", ".join(f"{name} {kind}" for name, kind in self.columns.items())
        return f"<table {self.name}: {columns}; key {', '.join(self.key)}>"

    async def refresh(self, *, timeout_s: float = TIMEOUT_S) -> bool:
        """Look the table up again, with its present name, columns and ranges; return whether it has changed.

        A write looks the table up by itself when a tablet refuses it because the table was altered. A scan does so when
        it begins, if ranges were added or dropped. A scan that has begun is not changed.

        Raises:
            NoSuchTable: the table was dropped.
            Unavailable: the masters did not answer in time, or the table was being altered all the time.
        """
        timeout_s = seconds("timeout_s", timeout_s)
        if self._reopen is None:
            return False
        before = self._location
        location, tablets = await self._reopen(before, timeout_s)
        if self._location is before and location != before:
            self._update(location, tablets)
        return self._location is not before  # A concurrent lookup may have updated the table, too.

    def _update(self, location: TableLocation, tablets: Sequence[TabletAccess]) -> None:
        self._location, self.name, self._tablets = location, location.name, tablets
        self.partitioning = location.partitioning()
        self._lookup = TableLookup(self._present(), location.schema)
        self._writer.name = location.name
        self._writer.update_table(self.partitioning, tablets)
        found = {tablet.tablet_id: tablet for tablet in tablets}
        self._by_id.update(found)
        self._present_ids = frozenset(found)
        for epoch in self._epochs:
            epoch.update_table(location.name, self.partitioning, tablets)

    @property
    def schema(self) -> Schema:
        """Columns and key as of the last lookup, which is the opening, or a :meth:`refresh`."""
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
    def table_id(self) -> str:
        """Id of the table, which survives renames. Empty in a cluster without masters."""
        return self._location.table_id

    @property
    def replicas(self) -> int:
        """Number of replicas of each tablet, as the masters have it; 0: the cluster has no masters."""
        return self._location.replicas

    @property
    def partition(self) -> Mapping[str, Any]:
        """How rows are distributed over tablets, in the form that ``AsyncClient.create_table`` takes."""
        return partition_schema_to_plain(self.schema, self.partitioning.partition_schema)

    @property
    def retries(self) -> Mapping[str, int]:
        """How many times an operation was sent again since the table was opened, by the code of the error."""
        return retries_of(self._by_id.values())

    def key_range(self, start: Any = None, end: Any = None) -> KeyRange:
        """Return the range of keys from ``start`` to before ``end``, for ``AddRange`` and ``DropRange``.

        Args:
            start: one value, or a list with one value for each range column; ``None``: from the least key.
            end: the same, exclusive; ``None``: to the greatest key.

        Raises:
            BadPartitioning: the table has no ranges, or a bound does not fit.
        """
        return range_of(self.schema, self.partitioning.partition_schema, start, end)

    # -- writes ----------------------------------------------------------------------------------

    async def write(
        self,
        kind: OpKind,
        rows: Any,
        *,
        errors: str = "raise",
        timeout_s: float = TIMEOUT_S,
        failures_max: int = FAILURES_MAX,
    ) -> WriteResult:
        """Write rows, and wait until they are durable. See ``AsyncWriteMethods.write``."""
        return await write_rows(self._writer, kind, rows, errors, timeout_s, failures_max)

    def session(self, options: SessionOptions | None = None) -> AsyncSession:
        """Open a session, which takes single rows and sends many in one request. Close it, or use ``async with``."""
        session = AsyncSession(self._writer, checked_options(options))
        self.sessions.add(session)
        return session

    def epoch(self, source: str, epoch: int) -> AsyncEpoch:
        """Return an epoch of a source, through which rows are written exactly once over restarts of the program.

        Args:
            source: name of a job, a query or a script whose runs follow each other: 1 to 200 printable characters.
            epoch: number of the run or of the batch, from 0 to 2**62 - 2. Each one is higher than the one before.

        Raises:
            BadIdentifier, CallerError: the source is no such text, or the epoch no such number.
        """
        fence = checked_fence(source, epoch)
        if epoch > EPOCH_MAX:
            raise CallerError(f"an epoch is at most 2**62 - 2, not {epoch}")
        writer = TableWriter(self.name, self.partitioning, self._tablets, begun(fence))
        writer.refresh, writer.find = self._writer.refresh, self._find_rows
        writer.written = self._writer.written
        opened = AsyncEpoch(writer, fence, self.sessions)
        self._epochs.add(opened)
        return opened

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
        snapshot = None if at is None else hybrid(at)
        values = key_of(self.schema, key)
        for attempt in count():
            partitioning = self.partitioning
            number, encoded = self._keys.locate(partitioning, values)
            try:
                if number == NO_PARTITION:
                    raise NoPartition(partitioning.explain_no_partition(values))
                (found,) = await self._lookup.rows(self._tablets[number].tablet_id, [encoded], snapshot, timeout_s)
                return found
            except (NoPartition, NoSuchTablet):
                # A range was added, or dropped and added again, since the last lookup of the table.
                if attempt or not (await self.refresh(timeout_s=timeout_s) or partitioning is not self.partitioning):
                    raise
        raise AssertionError("unreachable")

    async def get_many(
        self, keys: Iterable[Any], *, at: At | None = None, timeout_s: float = TIMEOUT_S
    ) -> list[Record | None]:
        """Return the row of each key, or ``None``, in the order of the keys. The rows of a frame can be the keys.

        Keys of one tablet are read together, up to 1 024 of them with one request. Without ``at``, each row is read
        linearizably, but the rows may be of different times.

        Raises:
            SchemaMismatch: a value does not fit its key column.
        """
        timeout_s = seconds("timeout_s", timeout_s)
        values = keys_of(self.schema, keys)
        if not values:
            return []
        snapshot = None if at is None else hybrid(at)
        partitioning = self.partitioning
        located = self._keys.locate_all(partitioning, values)
        if NO_PARTITION in located.partitions:
            await self._refresh_tablets(timeout_s)
        for attempt in count():
            if self.partitioning is not partitioning:
                partitioning = self.partitioning
                located = self._keys.locate_all(partitioning, values)
            try:
                return await self._find(located, snapshot, timeout_s)
            except NoSuchTablet:
                if attempt or not (await self.refresh(timeout_s=timeout_s) or partitioning is not self.partitioning):
                    raise
        raise AssertionError("unreachable")

    async def _find_rows(self, keys: RowBatch, timeout_s: float) -> Sequence[Mapping[int, Any] | None]:
        """Return the row of each key by column id, or ``None``."""
        while True:
            schema = self.schema
            found = await self.get_many(keys.to_rows(), timeout_s=timeout_s)
            if self.schema is schema:  # Else the table was looked up meanwhile, and the names may be those of before.
                ids = {column.name: column.id for column in schema.columns}
                return [None if row is None else {ids[name]: row[name] for name in row} for row in found]

    async def _find(self, located: LocatedKeys, snapshot: int | None, timeout_s: float) -> list[Record | None]:
        """Return the row of each key, from the tablets as they are now, even if the table is looked up meanwhile."""
        lookup, tablets = self._lookup, self._tablets
        only, *others = {*located.partitions}
        if not others and only != NO_PARTITION:
            return await lookup.many(tablets[only].tablet_id, located.encoded, snapshot, timeout_s)
        wanted: dict[int, list[int]] = {}
        for position, partition in enumerate(located.partitions):
            if partition != NO_PARTITION:
                wanted.setdefault(partition, []).append(position)

        async def rows(number: int) -> list[Record | None]:
            keys = [located.encoded[position] for position in wanted[number]]
            return await lookup.many(tablets[number].tablet_id, keys, snapshot, timeout_s)

        found: list[Record | None] = [None] * len(located.encoded)
        for number, records in zip(wanted, await each([*wanted], rows, at_once=TABLETS_AT_ONCE), strict=True):
            for position, record in zip(wanted[number], records, strict=True):
                found[position] = record
        return found

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
        """Describe a scan. It runs when its rows are read.

        Args:
            columns: names of columns, in the order of the result; ``None``: all.
            where: ``(column, operation, value)``, or a list of these, which must all hold.
            limit: the most rows to return.
            order: ``"any"``, ``"key"`` or ``"key_descending"``.
            start: the first key, inclusive, or values of its first columns.
            end: the last key, exclusive, or values of its first columns.
            at: read a snapshot: a ``datetime`` (local time if it has no zone), or the timestamp of a write's result.
            staleness_s: let any replica serve that is at most this far behind, by this machine's clock.
            own_writes: let any replica serve that has applied the writes of this table object.
            timeout_s: how long a page is retried.

        Without ``at``, ``staleness_s`` and ``own_writes``, each tablet is read linearizably: it shows every write that
        was acknowledged before its first page. With ``at``, all tablets show the same time.

        Raises:
            SchemaMismatch: a column is unknown, or a filter does not fit.
            CallerError: options exclude each other, or are out of range.
        """
        timeout_s = seconds("timeout_s", timeout_s)
        if [at is not None, staleness_s is not None, flag("own_writes", own_writes)].count(True) > 1:
            raise CallerError("at, staleness_s and own_writes exclude each other; give at most one")
        known = [*Order]
        if order not in known:
            raise CallerError(f"order is {order!r}; known: {', '.join(known)}")
        spec = ScanSpec(
            columns=column_ids(self.schema, columns),
            predicates=predicates(self.schema, where),
            key_from=bound_of(self.partitioning.key_columns, start),
            key_until=bound_of(self.partitioning.key_columns, end),
            limit=checked_limit(limit),
            order=Order(order),
        )
        snapshot = None if at is None else hybrid(at)
        bound = partial(self._at_least, staleness_s, own_writes, spec)
        return self._open(self._token(spec, None, bound(), snapshot), timeout_s, bound)

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
        """Describe a diff: a scan of the rows that changed between two times. It runs when its rows are read.

        A row that was written after ``since`` and exists at ``until`` appears with its values at ``until``. A row that
        existed at ``since`` and was deleted appears with its key: the column ``is_deleted`` (with ``_`` appended if the
        table has a column of that name) is true, and all other columns are null. Rows inserted and deleted between the
        two times do not appear. A row that was written with the values that it already had appears. The diff,
        applied row by row to the table at ``since``, gives the table at ``until``.

        Args:
            since: a ``datetime`` or a hybrid timestamp, such as that of a write's result, or ``at`` of the last diff.
            until: the same; ``None``: :meth:`now`.
            columns: names of columns, in the order of the result. Key columns that are not among them come first.
            limit: the most rows to return.
            order: ``"any"`` or ``"key"``.
            start: the first key, inclusive, or values of its first columns.
            end: the last key, exclusive, or values of its first columns.
            timeout_s: how long a page is retried.

        Rows of a range that was dropped between the two times do not appear.

        Raises:
            SchemaMismatch: a column is unknown.
            CallerError: options exclude each other, or are out of range.
        """
        timeout_s = seconds("timeout_s", timeout_s)
        begin = hybrid(since)
        # The clock that issued ``since`` may be ahead of this machine's.
        finish = max(self.now(), begin) if until is None else hybrid(until)
        if begin > finish:
            times = f"{to_datetime(begin).isoformat()} is after {to_datetime(finish).isoformat()}"
            raise CallerError(f"since must not be after until, but {times}; exchange them")
        if order not in (Order.ANY, Order.KEY):
            raise CallerError(f"order of a diff is {order!r}; known: any, key")
        ids = tuple(i for i in changes_layout(self.schema, column_ids(self.schema, columns)).ids if i != FLAG_ID)
        spec = ScanSpec(
            columns=ids,
            key_from=bound_of(self.partitioning.key_columns, start),
            key_until=bound_of(self.partitioning.key_columns, end),
            limit=checked_limit(limit),
            order=Order(order),
        )
        return self._open(msgspec.structs.replace(self._token(spec, None, at=finish), since=begin), timeout_s)

    def open(self, token: ScanToken, *, timeout_s: float = TIMEOUT_S) -> AsyncScan:
        """Return the scan of a token.

        Raises:
            BadToken: the token is of another table, or reads a range that was dropped.
            SchemaMismatch: a column that the token reads was dropped.
        """
        checked_token(token).check(self.name, self._location.table_id, self.schema, self._by_id)
        return self._open(token, seconds("timeout_s", timeout_s))

    def now(self) -> int:
        """Return a hybrid timestamp of now for ``scan(at=...)``, not before any write of this table object.

        It comes from this machine's clock. A node whose clock is behind serves the scan when its clock has reached the
        time."""
        return max(self._wall_timestamp(), *self._writer.written.values(), 0)

    async def latest(self, *, tablets: Iterable[TabletId] | None = None, timeout_s: float = TIMEOUT_S) -> int:
        """Return a hybrid timestamp for ``scan(at=...)`` that shows every write acknowledged before, to any client.

        The leader of each tablet is asked. This machine's clock is not used, so it may be behind those of the nodes.

        Args:
            tablets: ids of the tablets to ask, of whose writes the time is then; ``None``: all. Without any: 0.
            timeout_s: how long a leader is asked.

        Raises:
            Unavailable: the leader of a tablet did not answer in time.
        """
        timeout_s, only = seconds("timeout_s", timeout_s), None if tablets is None else {*tablets}
        await self._refresh_tablets(timeout_s)
        ids = [tablet.tablet_id for tablet in self._tablets if only is None or tablet.tablet_id in only]
        present, schema = self._present(), self.schema
        return await latest_time(schema, [RelocatedTablet(present, schema, one) for one in ids], timeout_s)

    # -- lookups of the table --------------------------------------------------------------------

    def _present(self) -> PresentTable:
        return PresentTable(self)

    def _open(self, token: ScanToken, timeout_s: float, bound: Bound | None = None) -> AsyncScan:
        tablet, begin = partial(RelocatedTablet, self._present(), self.schema), partial(self._begin, bound=bound)
        return AsyncScan(token, self.schema, tablet, timeout_s, begin)

    def _token(
        self, spec: ScanSpec, parts: tuple[TokenPart, ...] | None, at_least: int | None = None, at: int | None = None
    ) -> ScanToken:
        schema, table_id = self.schema.to_bytes(), self._location.table_id
        return ScanToken(self._addresses, self.name, schema, spec, parts, at_least, table_id=table_id, at=at)

    async def _begin(self, token: ScanToken, timeout_s: float, *, bound: Bound | None = None) -> ScanToken:
        """Return a token with the tablets that it reads, which the table all knows.

        A scan reads the ranges that the table has when the scan begins, whichever client added or dropped them. So does
        ``bound`` count from then, and not from when the scan was described."""
        if token.parts is not None:
            if token.unknown_tablets(self._by_id):
                await self._refresh_tablets(timeout_s)
            for gone in token.unknown_tablets(self._by_id):
                fact = f"the token reads tablet {gone!r}, whose range was dropped from table {self.name!r}"
                raise BadToken(f"{fact}; make a new token")
            return token
        await self._refresh_tablets(timeout_s)
        visited = prune(self.partitioning, token.spec)
        parts = tuple(TokenPart(self._tablets[number].tablet_id, token.at) for number in visited)
        return msgspec.structs.replace(token, parts=parts, at_least=token.at_least if bound is None else bound())

    async def _refresh_tablets(self, timeout_s: float) -> None:
        """Look the table up again if its ranges, and so its tablets, may have changed."""
        if self._newer is None or self.partitioning.range_columns is None:
            return
        before = self._location
        found = await self._newer(before, timeout_s)
        if found is not None and self._location is before:
            self._update(*found)

    def _at_least(self, staleness_s: float | None, own_writes: bool, spec: ScanSpec) -> int | None:
        """Return the timestamp that a replica must have applied to serve a scan."""
        if own_writes:
            written, visited = self._writer.written, prune(self.partitioning, spec)
            return max((written.get(self._tablets[number].tablet_id, 0) for number in visited), default=0)
        if staleness_s is None:
            return None
        staleness_s = seconds("staleness_s", staleness_s)
        return max(0, self._wall_timestamp() - from_wall_us(int(staleness_s * 1_000_000)))
