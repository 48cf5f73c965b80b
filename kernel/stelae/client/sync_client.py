"""The synchronous client. It runs the ``async`` client on an event loop in a thread."""

from __future__ import annotations

import atexit
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from stelae.client.arguments import Compression
from stelae.client.async_client import Addresses, AsyncClient, Tables, connect_async
from stelae.client.contacts import Contacts
from stelae.client.epoch import AsyncEpoch
from stelae.client.failures import FAILURES_MAX, RowFailure, WriteResult
from stelae.client.feed_methods import FeedMethods
from stelae.client.filters import Filter
from stelae.client.lazy_rows import is_lazy
from stelae.client.loop_thread import LoopThread
from stelae.client.scan import AsyncScan, Record, as_pandas, as_polars
from stelae.client.session import FINISH_S, AsyncSession, SessionOptions, each_row
from stelae.client.session_warnings import opening_line
from stelae.client.sync_masters import Masters
from stelae.client.sync_replicas import Replicas
from stelae.client.table import AsyncTable
from stelae.client.table_definition import Columns
from stelae.client.times import At
from stelae.client.tokens import ScanToken
from stelae.client.write_methods import TIMEOUT_S, WriteMethods, write_in_thread
from stelae.partition.schema import KeyRange
from stelae.protocol.master_messages import AlterStep
from stelae.spi.ids import TabletId
from stelae.spi.schema import Schema
from stelae.spi.write import OpKind, SourceFence


def connect(
    addresses: Addresses,
    *,
    tables: Tables = None,
    location: str = "",
    contacts: Contacts | None = None,
    compression: Compression = "none",
    timeout_s: float = 10.0,
) -> Client:
    """Connect to a cluster. Close the client, or use ``with``. See ``connect_async``."""
    loop_thread = LoopThread()
    try:
        connecting = connect_async(
            addresses, tables=tables, location=location, contacts=contacts, compression=compression, timeout_s=timeout_s
        )
        return Client(loop_thread, loop_thread.run(connecting))
    except BaseException:
        loop_thread.close()
        raise


_left_open: WeakKeyDictionary[AsyncSession, LoopThread] = WeakKeyDictionary()


@atexit.register
def _finish_all() -> None:
    """Send the buffered rows of open sessions when the program ends. The loops still run in their threads then."""
    for session, loop_thread in list(_left_open.items()):
        if session.unreported.is_pending and loop_thread.is_usable:
            loop_thread.run(session.finish(FINISH_S))


class Client:
    """Tables of one cluster. Made by :func:`connect`; may be used from several threads."""

    def __init__(self, loop_thread: LoopThread, client: AsyncClient) -> None:
        self._loop_thread = loop_thread
        self._client = client

    def tables(self, *, staleness_s: float = 0.0, timeout_s: float = TIMEOUT_S) -> list[str]:
        """Return the names of all tables, sorted; see ``AsyncClient.tables``."""
        return self._loop_thread.run(self._client.tables(staleness_s=staleness_s, timeout_s=timeout_s))

    def table(self, name: str, *, timeout_s: float = TIMEOUT_S) -> Table:
        """Open a table; see ``AsyncClient.table``."""
        return Table(self._loop_thread, self._loop_thread.run(self._client.table(name, timeout_s=timeout_s)))

    def create_table(
        self,
        name: str,
        columns: Columns,
        key: str | Sequence[str],
        *,
        partition: Mapping[str, Any] | None = None,
        replicas: int = 3,
        timeout_s: float = TIMEOUT_S,
    ) -> Table:
        """Create a table and open it; see ``AsyncClient.create_table``."""
        created = self._client.create_table(
            name, columns, key, partition=partition, replicas=replicas, timeout_s=timeout_s
        )
        return Table(self._loop_thread, self._loop_thread.run(created))

    def alter_table(self, name: str, *steps: AlterStep, timeout_s: float = TIMEOUT_S) -> Table:
        """Change a table and open it; see ``AsyncClient.alter_table``."""
        return Table(
            self._loop_thread, self._loop_thread.run(self._client.alter_table(name, *steps, timeout_s=timeout_s))
        )

    def drop_table(self, name: str, *, keep_s: float = 0.0, timeout_s: float = TIMEOUT_S) -> None:
        """Delete a table; see ``AsyncClient.drop_table``."""
        self._loop_thread.run(self._client.drop_table(name, keep_s=keep_s, timeout_s=timeout_s))

    def recall_table(self, table_id: str, *, name: str | None = None, timeout_s: float = TIMEOUT_S) -> Table:
        """Bring back a table that was dropped with ``keep_s``; see ``AsyncClient.recall_table``."""
        recalled = self._client.recall_table(table_id, name=name, timeout_s=timeout_s)
        return Table(self._loop_thread, self._loop_thread.run(recalled))

    def tablet_ids(self, *, timeout_s: float = TIMEOUT_S) -> list[TabletId]:
        """Return the ids of all tablets; see ``AsyncClient.tablet_ids``."""
        return self._loop_thread.run(self._client.tablet_ids(timeout_s=timeout_s))

    @property
    def masters(self) -> Masters:
        """The masters of the cluster; see ``AsyncClient.masters``."""
        return Masters(self._loop_thread, self._client.masters)

    def replicas(self, tablet_id: str, *, timeout_s: float = TIMEOUT_S) -> Replicas:
        """Return the replicas of a tablet; see ``AsyncClient.replicas``."""
        return Replicas(self._loop_thread, self._loop_thread.run(self._client.replicas(tablet_id, timeout_s=timeout_s)))

    def contacts(self) -> Contacts:
        """Return nodes by which a later client finds the cluster again; see ``AsyncClient.contacts``."""
        return self._loop_thread.run(self._client.contacts())

    def open(self, token: ScanToken, *, timeout_s: float = TIMEOUT_S) -> Scan:
        """Return the scan of a token; see ``AsyncClient.open``."""
        return Scan(self._loop_thread, self._loop_thread.run(self._client.open(token, timeout_s=timeout_s)))

    def close(self) -> None:
        """Close the connections. Calls without an answer fail. A second call has no effect."""
        if not self._loop_thread.closed:
            self._loop_thread.run(self._client.close())
            self._loop_thread.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Table(WriteMethods, FeedMethods):
    """A table. Each method blocks until the method of ``AsyncTable`` with the same name is done."""

    _table: AsyncTable

    def __init__(self, loop_thread: LoopThread, table: AsyncTable) -> None:
        self._loop_thread = loop_thread
        self._table = table

    def refresh(self, *, timeout_s: float = TIMEOUT_S) -> bool:
        """Look the table up again; see ``AsyncTable.refresh``."""
        return self._loop_thread.run(self._table.refresh(timeout_s=timeout_s))

    def __repr__(self) -> str:
        return repr(self._table)

    @property
    def name(self) -> str:
        """Name of the table as of the last lookup."""
        return self._table.name

    @property
    def schema(self) -> Schema:
        """Columns and key as of the last lookup; see ``AsyncTable.schema``."""
        return self._table.schema

    @property
    def table_id(self) -> str:
        """Id of the table, which survives renames. Empty in a cluster without masters."""
        return self._table.table_id

    @property
    def replicas(self) -> int:
        """Number of replicas of each tablet; see ``AsyncTable.replicas``."""
        return self._table.replicas

    @property
    def partition(self) -> Mapping[str, Any]:
        """How rows are distributed over tablets, in the form that :meth:`Client.create_table` takes."""
        return self._table.partition

    @property
    def retries(self) -> Mapping[str, int]:
        """How many times an operation was sent again since the table was opened; see ``AsyncTable.retries``."""
        return self._table.retries

    @property
    def columns(self) -> Mapping[str, str]:
        """Type of each column by name, in order."""
        return self._table.columns

    @property
    def key(self) -> Sequence[str]:
        """Names of the key columns, in key order."""
        return self._table.key

    def key_range(self, start: Any = None, end: Any = None) -> KeyRange:
        """Return a range of keys for ``AddRange`` and ``DropRange``; see ``AsyncTable.key_range``."""
        return self._table.key_range(start, end)

    def write(
        self,
        kind: OpKind,
        rows: Any,
        *,
        errors: str = "raise",
        timeout_s: float = TIMEOUT_S,
        failures_max: int = FAILURES_MAX,
    ) -> WriteResult:
        """Write rows, and wait until they are durable. See ``AsyncWriteMethods.write`` and :class:`WriteMethods`."""
        return write_in_thread(self._loop_thread, self._table, kind, rows, errors, timeout_s, failures_max)

    def epoch(self, source: str, epoch: int) -> Epoch:
        """Return an epoch of a source, to write exactly once over restarts of the program; see ``AsyncTable.epoch``."""
        return Epoch(self._loop_thread, self._table.epoch(source, epoch))

    def session(self, options: SessionOptions | None = None) -> Session:
        """Open a session, which takes single rows and sends many in one request. Close it, or use ``with``."""
        return _open_session(self._loop_thread, self._table, options)

    def get(self, key: Any, *, at: At | None = None, timeout_s: float = TIMEOUT_S) -> Record | None:
        """Return the row of a key, or ``None``; see ``AsyncTable.get``."""
        return self._loop_thread.run(self._table.get(key, at=at, timeout_s=timeout_s))

    def get_many(
        self, keys: Iterable[Any], *, at: At | None = None, timeout_s: float = TIMEOUT_S
    ) -> list[Record | None]:
        """Return the row of each key, or ``None``; see ``AsyncTable.get_many``.

        The keys of an iterator are taken in the caller's thread."""
        keys = [*keys] if is_lazy(keys) else keys
        return self._loop_thread.run(self._table.get_many(keys, at=at, timeout_s=timeout_s))

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
    ) -> Scan:
        """Describe a scan. It runs when its rows are read. See ``AsyncTable.scan``."""
        scan = self._table.scan(
            columns,
            where,
            limit=limit,
            order=order,
            start=start,
            end=end,
            at=at,
            staleness_s=staleness_s,
            own_writes=own_writes,
            timeout_s=timeout_s,
        )
        return Scan(self._loop_thread, scan)

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
    ) -> Scan:
        """Describe a scan of the rows that changed between two times. See ``AsyncTable.diff``."""
        described = self._table.diff(
            since, until, columns, limit=limit, order=order, start=start, end=end, timeout_s=timeout_s
        )
        return Scan(self._loop_thread, described)

    def open(self, token: ScanToken, *, timeout_s: float = TIMEOUT_S) -> Scan:
        """Return the scan of a token; see ``AsyncTable.open``."""
        return Scan(self._loop_thread, self._table.open(token, timeout_s=timeout_s))

    def now(self) -> int:
        """Return a hybrid timestamp for ``scan(at=...)``; see ``AsyncTable.now``."""
        return self._table.now()

    def latest(self, *, tablets: Iterable[TabletId] | None = None, timeout_s: float = TIMEOUT_S) -> int:
        """Return a hybrid timestamp for ``scan(at=...)`` of now; see ``AsyncTable.latest``."""
        return self._loop_thread.run(self._table.latest(tablets=tablets, timeout_s=timeout_s))


class Epoch(WriteMethods):
    """One epoch of a source; see ``AsyncEpoch``. With ``with`` it begins, and is completed at the end of the block."""

    def __init__(self, loop_thread: LoopThread, epoch: AsyncEpoch) -> None:
        self._loop_thread = loop_thread
        self._epoch = epoch

    @property
    def fence(self) -> SourceFence:
        """The source and the number of the epoch."""
        return self._epoch.fence

    @property
    def is_complete(self) -> bool:
        """Whether the epoch was complete when it was begun. Then there is nothing to write."""
        return self._epoch.is_complete

    @property
    def tablets(self) -> Sequence[TabletId]:
        """Ids of the tablets to which this object has written."""
        return self._epoch.tablets

    def begin(self, *, timeout_s: float = TIMEOUT_S) -> bool:
        """Begin the epoch, and return whether its rows have to be written; see ``AsyncEpoch.begin``."""
        return self._loop_thread.run(self._epoch.begin(timeout_s=timeout_s))

    def complete(
        self, tablets: Iterable[TabletId] | None = None, *, ends: bool = False, timeout_s: float = TIMEOUT_S
    ) -> None:
        """Complete the epoch; see ``AsyncEpoch.complete``."""
        self._loop_thread.run(self._epoch.complete(tablets, ends=ends, timeout_s=timeout_s))

    def write(
        self,
        kind: OpKind,
        rows: Any,
        *,
        errors: str = "raise",
        timeout_s: float = TIMEOUT_S,
        failures_max: int = FAILURES_MAX,
    ) -> WriteResult:
        """Write rows of the epoch; see ``AsyncEpoch.write``."""
        return write_in_thread(self._loop_thread, self._epoch, kind, rows, errors, timeout_s, failures_max)

    def session(self, options: SessionOptions | None = None) -> Session:
        """Open a session that writes rows of the epoch. Close it before the epoch is completed."""
        return _open_session(self._loop_thread, self._epoch, options)

    def __enter__(self) -> Epoch:
        self.begin()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.complete()


def _open_session(loop_thread: LoopThread, target: AsyncTable | AsyncEpoch, options: SessionOptions | None) -> Session:
    import pyarrow as pa

    # This call makes pyarrow import its modules now. When the program ends, rows may have to be sent, and nothing can
    # be imported any more.
    pa.array([0])

    async def open_session() -> AsyncSession:
        return target.session(options)

    session = loop_thread.run(open_session())
    session.unreported.opened = opening_line()
    _left_open[session] = loop_thread
    return Session(loop_thread, session)


class Scan:
    """A description of a scan or a diff; see ``AsyncScan``. Iteration yields ``pyarrow.RecordBatch`` objects."""

    def __init__(self, loop_thread: LoopThread, scan: AsyncScan) -> None:
        self._loop_thread = loop_thread
        self._scan = scan

    @property
    def columns(self) -> Sequence[str]:
        """Names of the columns that the scan returns, in order."""
        return self._scan.columns

    @property
    def at(self) -> int | None:
        """The hybrid timestamp at which the scan reads, if it was described with one; see ``AsyncScan.at``."""
        return self._scan.at

    @property
    def arrow_schema(self) -> Any:
        """The ``pyarrow.Schema`` of the scan's batches."""
        return self._scan.arrow_schema

    def __iter__(self) -> Iterator[Any]:
        return self._loop_thread.each(self._scan.batches(), self._scan.put_back)

    def tokens(self, *, target_bytes: int | None = None) -> list[ScanToken]:
        """Divide the scan into one token for each tablet, or into smaller ones; see ``AsyncScan.tokens``."""
        return self._loop_thread.run(self._scan.tokens(target_bytes=target_bytes))

    def token(self) -> ScanToken | None:
        """Return a token for the rest of the scan behind the last batch that was yielded; ``None``: at its end."""
        return self._scan.token()

    def to_arrow(self) -> Any:
        """Return all rows as a ``pyarrow.Table``."""
        return self._loop_thread.run(self._scan.to_arrow())

    def to_pandas(self, **options: Any) -> Any:
        """Return all rows as a ``pandas.DataFrame``; see ``AsyncScan.to_pandas``."""
        return as_pandas(self.to_arrow(), options)

    def to_polars(self) -> Any:
        """Return all rows as a ``polars.DataFrame``."""
        return as_polars(self.to_arrow())

    def to_pylist(self) -> list[Record]:
        """Return all rows as dicts."""
        return self._loop_thread.run(self._scan.to_pylist())

    def count(self) -> int:
        """Return the number of rows. Only the key columns are read, and they are not decoded."""
        return self._loop_thread.run(self._scan.count())


class Session:
    """Takes single rows, and sends many in one request; see ``AsyncSession``. Used by one thread at a time."""

    def __init__(self, loop_thread: LoopThread, session: AsyncSession) -> None:
        self._loop_thread = loop_thread
        self._session = session

    def insert(self, rows: Any) -> None:
        """Add new rows. A row whose key exists becomes a failure."""
        self.apply(OpKind.INSERT, rows)

    def upsert(self, rows: Any) -> None:
        """Add rows that are inserted, or replace the given columns of existing rows."""
        self.apply(OpKind.UPSERT, rows)

    def update(self, rows: Any) -> None:
        """Add rows that replace the given columns of existing rows. A key that does not exist becomes a failure."""
        self.apply(OpKind.UPDATE, rows)

    def delete(self, rows: Any) -> None:
        """Add keys whose rows are deleted. A key that does not exist becomes a failure."""
        self.apply(OpKind.DELETE, rows)

    def insert_ignore(self, rows: Any) -> None:
        """Add new rows. Rows whose key exists are skipped."""
        self.apply(OpKind.INSERT_IGNORE, rows)

    def update_ignore(self, rows: Any) -> None:
        """Add rows as ``update`` does. Rows whose key does not exist are skipped."""
        self.apply(OpKind.UPDATE_IGNORE, rows)

    def delete_ignore(self, rows: Any) -> None:
        """Add keys as ``delete`` does. Keys that do not exist are skipped."""
        self.apply(OpKind.DELETE_IGNORE, rows)

    def apply(self, kind: OpKind, rows: Any) -> None:
        """Add one row or several. Blocks while the buffer is full. ``Unavailable``: this process was forked since."""
        self._loop_thread.check_process()
        for row in each_row(rows):
            # Only a full buffer needs a call on the loop's thread.
            if not self._session.try_add(kind, row):
                self._loop_thread.run(self._session.apply(kind, [row]))

    def flush(self) -> None:
        """Send all buffered rows, and wait for the answers. Failed rows are collected in ``failures``, not raised."""
        self._loop_thread.run(self._session.flush())

    @property
    def failures(self) -> tuple[RowFailure, ...]:
        """The first ``FAILURES_MAX`` rows that were not written since the last :meth:`take_failures`."""
        return self._session.failures

    def take_failures(self) -> WriteResult:
        """Return the result of the rows that were answered since the last call, and clear ``failures``."""
        return self._session.take_failures()

    def close(self) -> None:
        """Flush the session and close it; ``RowsFailed``: rows were not written; see ``AsyncSession.close``."""
        self._loop_thread.run(self._session.close())

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._loop_thread.run(self._session.close() if kind is None else self._session.abandon())
