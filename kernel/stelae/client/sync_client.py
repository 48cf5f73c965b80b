"""The synchronous client. It is the ``async`` one, whose loop runs in a thread; nothing is done twice."""

from __future__ import annotations

import atexit
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from stelae.client.async_client import Addresses, AsyncClient, Tables, connect_async
from stelae.client.definition import Columns
from stelae.client.failures import RowFailure, RowsFailed, WriteResult, joined
from stelae.client.filters import Filter
from stelae.client.lazy_rows import is_lazy, pieces
from stelae.client.loop_thread import LoopThread
from stelae.client.scan import AsyncScan, Record, as_pandas, as_polars
from stelae.client.session import FINISH_S, AsyncSession, SessionOptions, each_row
from stelae.client.session_warnings import caller
from stelae.client.table import TIMEOUT_S, AsyncTable
from stelae.client.times import At
from stelae.client.tokens import ScanToken
from stelae.partition.schema import KeyRange
from stelae.protocol.master_messages import AlterStep
from stelae.spi.schema import Schema
from stelae.spi.write import OpKind


def connect(addresses: Addresses, *, tables: Tables = None, timeout_s: float = 10.0) -> Client:
    """Connect to a cluster; see ``connect_async``. Close the client, or use ``with``."""
    portal = LoopThread()
    try:
        return Client(portal, portal.run(connect_async(addresses, tables=tables, timeout_s=timeout_s)))
    except BaseException:
        portal.close()
        raise


_left_open: WeakKeyDictionary[AsyncSession, LoopThread] = WeakKeyDictionary()


@atexit.register
def _finish_all() -> None:
    """Send what sessions hold when the program ends: their loops still run in their threads."""
    for session, portal in list(_left_open.items()):
        if session.account.is_owing and portal.is_usable:
            portal.run(session.finish(FINISH_S))


class Client:
    """Tables of one cluster. Made by :func:`connect`; may be used from several threads."""

    def __init__(self, portal: LoopThread, client: AsyncClient) -> None:
        self._portal = portal
        self._client = client

    def tables(self) -> list[str]:
        """Return the names of all tables, sorted."""
        return self._portal.run(self._client.tables())

    def table(self, name: str, *, timeout_s: float = TIMEOUT_S) -> Table:
        """Open a table; see ``AsyncClient.table``."""
        return Table(self._portal, self._portal.run(self._client.table(name, timeout_s=timeout_s)))

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
        made = self._client.create_table(
            name, columns, key, partition=partition, replicas=replicas, timeout_s=timeout_s
        )
        return Table(self._portal, self._portal.run(made))

    def alter_table(self, name: str, *steps: AlterStep, timeout_s: float = TIMEOUT_S) -> Table:
        """Change a table and open it; see ``AsyncClient.alter_table``."""
        return Table(self._portal, self._portal.run(self._client.alter_table(name, *steps, timeout_s=timeout_s)))

    def drop_table(self, name: str, *, keep_s: float = 0.0, timeout_s: float = TIMEOUT_S) -> None:
        """Delete a table; see ``AsyncClient.drop_table``."""
        self._portal.run(self._client.drop_table(name, keep_s=keep_s, timeout_s=timeout_s))

    def recall_table(self, table_id: str, *, name: str | None = None, timeout_s: float = TIMEOUT_S) -> Table:
        """Bring back a table that was dropped with ``keep_s``; see ``AsyncClient.recall_table``."""
        recalled = self._client.recall_table(table_id, name=name, timeout_s=timeout_s)
        return Table(self._portal, self._portal.run(recalled))

    def open(self, token: ScanToken, *, timeout_s: float = TIMEOUT_S) -> Scan:
        """Carry on the scan of a token; see ``AsyncTable.open``."""
        return Scan(self._portal, self._portal.run(self._client.open(token, timeout_s=timeout_s)))

    def close(self) -> None:
        """Close the connections; what is unanswered fails. Closing twice is harmless."""
        if not self._portal.closed:
            self._portal.run(self._client.close())
            self._portal.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Table:
    """A table. Every method does what the one of ``AsyncTable`` does, and returns when it is done."""

    def __init__(self, portal: LoopThread, table: AsyncTable) -> None:
        self._portal = portal
        self._table = table

    def refresh(self, *, timeout_s: float = TIMEOUT_S) -> bool:
        """Look the table up again; see ``AsyncTable.refresh``."""
        return self._portal.run(self._table.refresh(timeout_s=timeout_s))

    def __repr__(self) -> str:
        return repr(self._table)

    @property
    def name(self) -> str:
        """Its name."""
        return self._table.name

    @property
    def schema(self) -> Schema:
        """Columns and key, as they were when the table was opened."""
        return self._table.schema

    @property
    def retries(self) -> int:
        """How many operations had to be sent again, since the table was opened."""
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
        """Return a range of keys, as ``AddRange`` and ``DropRange`` want it; see ``AsyncTable.key_range``."""
        return self._table.key_range(start, end)

    def insert(self, rows: Any, *, errors: str = "raise", timeout_s: float = TIMEOUT_S) -> WriteResult:
        """Write new rows; a key that exists is a failure, and stays as it is."""
        return self.write(OpKind.INSERT, rows, errors=errors, timeout_s=timeout_s)

    def upsert(self, rows: Any, *, errors: str = "raise", timeout_s: float = TIMEOUT_S) -> WriteResult:
        """Write new rows, or replace the given columns of those that exist."""
        return self.write(OpKind.UPSERT, rows, errors=errors, timeout_s=timeout_s)

    def update(self, rows: Any, *, errors: str = "raise", timeout_s: float = TIMEOUT_S) -> WriteResult:
        """Replace the given columns of rows that exist; a missing one is a failure."""
        return self.write(OpKind.UPDATE, rows, errors=errors, timeout_s=timeout_s)

    def delete(self, rows: Any, *, errors: str = "raise", timeout_s: float = TIMEOUT_S) -> WriteResult:
        """Delete rows by key; a missing one is a failure."""
        return self.write(OpKind.DELETE, rows, errors=errors, timeout_s=timeout_s)

    def insert_ignore(self, rows: Any, *, errors: str = "raise", timeout_s: float = TIMEOUT_S) -> WriteResult:
        """Write new rows and leave those that exist alone, without a failure."""
        return self.write(OpKind.INSERT_IGNORE, rows, errors=errors, timeout_s=timeout_s)

    def update_ignore(self, rows: Any, *, errors: str = "raise", timeout_s: float = TIMEOUT_S) -> WriteResult:
        """Update rows that exist and skip those that do not, without a failure."""
        return self.write(OpKind.UPDATE_IGNORE, rows, errors=errors, timeout_s=timeout_s)

    def delete_ignore(self, rows: Any, *, errors: str = "raise", timeout_s: float = TIMEOUT_S) -> WriteResult:
        """Delete rows by key and skip those that are missing, without a failure."""
        return self.write(OpKind.DELETE_IGNORE, rows, errors=errors, timeout_s=timeout_s)

    def write(self, kind: OpKind, rows: Any, *, errors: str = "raise", timeout_s: float = TIMEOUT_S) -> WriteResult:
        """Write rows and wait until they are durable; see ``AsyncTable.write``.

        What an iterator makes is taken in the caller's thread, ``PIECE_ROWS`` at a time."""
        if not is_lazy(rows):
            return self._portal.run(self._table.write(kind, rows, errors=errors, timeout_s=timeout_s))
        total = self._portal.run(self._table.write(kind, [], errors=errors, timeout_s=timeout_s))
        for piece in pieces(rows):
            result = self._portal.run(self._table.write(kind, piece, errors="return", timeout_s=timeout_s))
            total = joined(total, result)
        if total.failed and errors == "raise":
            raise RowsFailed(total)
        return total

    def session(self, options: SessionOptions | None = None) -> Session:
        """Open a session, which takes rows one by one and sends them in batches. Close it, or use ``with``."""

        import pyarrow as pa

        # What this imports could not be imported when the program ends, and rows may have to be sent then.
        pa.array([0])

        async def opened() -> AsyncSession:
            return self._table.session(options)

        session = self._portal.run(opened())
        session.account.opened = caller()
        _left_open[session] = self._portal
        return Session(self._portal, session)

    def get(self, key: Any, *, at: At | None = None, timeout_s: float = TIMEOUT_S) -> Record | None:
        """Return the row of a key, or ``None``; see ``AsyncTable.get``."""
        return self._portal.run(self._table.get(key, at=at, timeout_s=timeout_s))

    def get_many(
        self, keys: Iterable[Any], *, at: At | None = None, timeout_s: float = TIMEOUT_S
    ) -> list[Record | None]:
        """Return the row of each key, or ``None``; see ``AsyncTable.get_many``."""
        return self._portal.run(self._table.get_many(keys, at=at, timeout_s=timeout_s))

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
        """Describe a scan; it is carried out when its rows are taken. See ``AsyncTable.scan``."""
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
        return Scan(self._portal, scan)

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
        """Describe a scan of what has changed between two times. See ``AsyncTable.diff``."""
        described = self._table.diff(
            since, until, columns, limit=limit, order=order, start=start, end=end, timeout_s=timeout_s
        )
        return Scan(self._portal, described)

    def open(self, token: ScanToken, *, timeout_s: float = TIMEOUT_S) -> Scan:
        """Carry on a scan, or a part of one, from its token; see ``AsyncTable.open``."""
        return Scan(self._portal, self._table.open(token, timeout_s=timeout_s))

    def now(self) -> int:
        """Return a hybrid timestamp for ``scan(at=...)``; see ``AsyncTable.now``."""
        return self._table.now()


class Scan:
    """A scan that has not begun; see ``AsyncScan``. Iterating over it gives ``pyarrow.RecordBatch`` objects."""

    def __init__(self, portal: LoopThread, scan: AsyncScan) -> None:
        self._portal = portal
        self._scan = scan

    @property
    def columns(self) -> Sequence[str]:
        """Names of the columns that the scan returns, in order."""
        return self._scan.columns

    @property
    def at(self) -> int | None:
        """The hybrid timestamp that it reads at, if it was described with one; see ``AsyncScan.at``."""
        return self._scan.at

    @property
    def arrow_schema(self) -> Any:
        """The ``pyarrow.Schema`` of its batches."""
        return self._scan.arrow_schema

    def __iter__(self) -> Iterator[Any]:
        batches = self._scan.batches()

        async def following() -> Any:
            return await anext(batches, None)

        try:
            while (batch := self._portal.run(following())) is not None:
                yield batch
        finally:
            if not self._portal.closed:
                self._portal.run(batches.aclose())

    def tokens(self) -> list[ScanToken]:
        """Return the scan in parts, one for each tablet it reads by now; see ``AsyncScan.tokens``."""
        return self._portal.run(self._scan.tokens())

    def token(self) -> ScanToken | None:
        """Return what is left of the scan behind the last batch that was taken; ``None``: nothing is."""
        return self._scan.token()

    def to_arrow(self) -> Any:
        """Return all rows as a ``pyarrow.Table``."""
        return self._portal.run(self._scan.to_arrow())

    def to_pandas(self, **options: Any) -> Any:
        """Return all rows as a ``pandas.DataFrame``; options are those of ``pyarrow.Table.to_pandas``."""
        return as_pandas(self.to_arrow(), options)

    def to_polars(self) -> Any:
        """Return all rows as a ``polars.DataFrame``."""
        return as_polars(self.to_arrow())

    def to_pylist(self) -> list[Record]:
        """Return all rows as dicts."""
        return self._portal.run(self._scan.to_pylist())

    def count(self) -> int:
        """Return the number of rows, reading the key columns alone."""
        return self._portal.run(self._scan.count())


class Session:
    """Rows one by one, sent in batches; see ``AsyncSession``. For one thread at a time."""

    def __init__(self, portal: LoopThread, session: AsyncSession) -> None:
        self._portal = portal
        self._session = session

    def insert(self, rows: Any) -> None:
        """Hand in one row or several; a key that exists becomes a failure."""
        self.apply(OpKind.INSERT, rows)

    def upsert(self, rows: Any) -> None:
        """Hand in rows that are inserted, or replace the given columns of the row that exists."""
        self.apply(OpKind.UPSERT, rows)

    def update(self, rows: Any) -> None:
        """Hand in rows whose given columns replace those of the row that exists; a missing one becomes a failure."""
        self.apply(OpKind.UPDATE, rows)

    def delete(self, rows: Any) -> None:
        """Hand in keys whose rows go; a missing one becomes a failure."""
        self.apply(OpKind.DELETE, rows)

    def insert_ignore(self, rows: Any) -> None:
        """As ``insert``; rows that exist are left alone, without a failure."""
        self.apply(OpKind.INSERT_IGNORE, rows)

    def update_ignore(self, rows: Any) -> None:
        """As ``update``; rows that are missing are skipped, without a failure."""
        self.apply(OpKind.UPDATE_IGNORE, rows)

    def delete_ignore(self, rows: Any) -> None:
        """As ``delete``; rows that are missing are skipped, without a failure."""
        self.apply(OpKind.DELETE_IGNORE, rows)

    def apply(self, kind: OpKind, rows: Any) -> None:
        """Hand in one row or several; blocks while the session holds as much as it may."""
        for row in each_row(rows):
            # Only a full buffer is worth a visit to the loop's thread.
            if not self._session.try_add(kind, row):
                self._portal.run(self._session.apply(kind, [row]))

    def flush(self) -> None:
        """Send what is held and wait until all of it has been answered. Failures are kept, not raised."""
        self._portal.run(self._session.flush())

    @property
    def failures(self) -> tuple[RowFailure, ...]:
        """Rows that were not taken, the first ones since they were last taken away."""
        return self._session.failures

    def take_failures(self) -> WriteResult:
        """Return what has come of the rows answered so far, and forget it."""
        return self._session.take_failures()

    def close(self) -> None:
        """Flush and end; ``RowsFailed``: there are failures that nobody has taken away."""
        self._portal.run(self._session.close())

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._portal.run(self._session.close() if kind is None else self._session.abandon())
