"""SQL over tables: DuckDB runs the query and reads each table through a scan of the client.

DuckDB passes a scan the columns that the query needs and its filters. The tablets apply the filters that ``pushdown``
can translate. All filters are applied to the returned rows again. All scans of a query read the same snapshot time."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from threading import Lock
from typing import Any

from stelae.client import AsyncClient, AsyncTable
from stelae.client.times import At, hybrid
from stelae.protocol.nearest_names import listed
from stelae.spi.errors import StelaeError
from stelae_transfer.pushdown import Filter, pushed
from stelae_transfer.sql_names import SqlFailed, import_duckdb, require_distinct_names, tables_of

BATCH_ROWS = 8192
"""Rows in a batch of the result: as many as in a page of a scan."""

_NO_TABLE = re.compile(r"Table with name (.+) does not exist")


class ScanReport:
    """What one scan of a query asked of the tablets, for ``stelae sql --explain``.

    Attributes:
        table: the name of the table.
        columns: the columns that were read.
        filters: the filters that the tablets applied.
        rows: the number of rows that arrived so far.
    """

    def __init__(self, table: str, columns: Sequence[str], filters: Sequence[Filter]) -> None:
        self.table = table
        self.columns = [*columns]
        self.filters = [*filters]
        self.rows = 0


class Query:
    """A prepared query. :meth:`run` is called in a worker thread while the event loop of the client runs.

    Attributes:
        scans: the scans that have started, in order.
        at: the hybrid timestamp that all scans read.
        loop: the event loop of the client.
    """

    def __init__(
        self, text: str, tables: Sequence[AsyncTable], at: int, timeout_s: float, known: Sequence[str] = ()
    ) -> None:
        self.scans: list[ScanReport] = []
        self.at = at
        self._text = text
        self._tables = tables
        self._known_tables = known or [table.name for table in tables]
        self._timeout_s = timeout_s
        self.loop = asyncio.get_running_loop()
        self._problem: StelaeError | None = None
        self._open: list[_ScanBatches] = []
        self._connection: Any = None
        self._lock = Lock()

    def run(self, take: Callable[[Any, Iterator[Any]], None]) -> None:
        """Run the query. Call ``take`` with the schema of the result and an iterator of its batches.

        Raises:
            SqlFailed: the query is wrong.
            StelaeError: a table cannot be read.
        """
        duckdb = import_duckdb()
        connection = duckdb.connect(config={"python_enable_replacements": "false"})
        self._connection = connection
        try:
            for table in self._tables:
                connection.register(table.name, self._dataset(table))
            statements = connection.extract_statements(self._text)
            if [statement.type.name for statement in statements] != ["SELECT"]:
                raise SqlFailed(
                    "stelae sql runs one SELECT; to write rows use `stelae import`, to write a file use --output"
                )
            result = connection.sql(self._text)
            reader = result.to_arrow_reader(BATCH_ROWS)
            take(reader.schema, iter(reader))
        except StelaeError:
            raise
        except Exception as error:
            if self._problem is not None:
                raise self._problem from error
            if type(error).__module__.partition(".")[0] not in ("duckdb", "_duckdb", "pyarrow"):
                raise
            raise SqlFailed(f"{error}{self._known(str(error))}") from error
        finally:
            with self._lock:
                self._connection = None
            connection.close()
            # DuckDB may have stopped before the end of a scan.
            for batches in self._open:
                batches.close()

    def _known(self, problem: str) -> str:
        missing = _NO_TABLE.search(problem)
        return f"\nthe tables are: {listed(self._known_tables, missing[1] if missing else '')}"

    def _dataset(self, table: AsyncTable) -> Any:
        names = [column.name for column in table.schema.columns]
        step = f"rename one with stelae table alter {table.name} --rename OLD:NEW"
        require_distinct_names("columns", names, step, of=f" of table {table.name!r}")
        return dataset_of(table.schema.layout.arrow, lambda columns, where: self._scanner(table, columns, where))

    def _scanner(self, table: AsyncTable, columns: Sequence[str] | None, where: Any) -> Any:
        from pyarrow import dataset

        wanted = [column.name for column in table.schema.columns] if columns is None else [*columns]
        found = pushed(table.schema, where)
        needed = [*table.columns] if found.columns is None else [*dict.fromkeys([*wanted, *found.columns])]
        if not needed:
            needed = [table.key[0]]
        report = ScanReport(table.name, needed, found.filters)
        self.scans.append(report)
        scan = table.scan(needed, found.filters or None, at=self.at, timeout_s=self._timeout_s)
        schema = table.schema.project(tuple(table.schema.by_name[name].id for name in needed)).arrow
        batches = _ScanBatches(self, scan.batches(), report)
        self._open.append(batches)
        return dataset.Scanner.from_batches(batches, schema=schema, columns=wanted, filter=where)

    def failed(self, problem: StelaeError) -> None:
        """Keep the error of a scan, because DuckDB turns it into an error of its own."""
        self._problem = problem

    def stop(self) -> None:
        """Interrupt the query, from another thread. Call it again until the query ends: a step that has not started yet
        misses the interrupt."""
        for batches in self._open:
            batches.stopped = True
        with self._lock:
            if self._connection is not None:
                self._connection.interrupt()


class _ScanBatches:
    """Iterator over the batches of a scan, for the threads of DuckDB and Arrow, which read ahead."""

    def __init__(self, query: Query, batches: AsyncGenerator[Any, None], report: ScanReport) -> None:
        self._query = query
        self._batches = batches
        self._report = report
        self._loop = query.loop
        self._lock = Lock()
        self.stopped = False

    def __iter__(self) -> _ScanBatches:
        return self

    def __next__(self) -> Any:
        with self._lock:
            if self.stopped:
                raise SqlFailed("the query was stopped")
            batch = self._run_on_loop(self._next_batch())
            if batch is None:
                raise StopIteration
            self._report.rows += len(batch)
            return batch

    def close(self) -> None:
        """End the scan. The iterator returns no batch afterwards."""
        with self._lock:
            self.stopped = True
            self._run_on_loop(self._batches.aclose())

    async def _next_batch(self) -> Any:
        try:
            return await anext(self._batches, None)
        except StelaeError as error:
            self._query.failed(error)
            raise

    def _run_on_loop(self, step: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(step, self._loop).result()


async def prepare(client: AsyncClient, text: str, at: At | None, timeout_s: float) -> Query:
    """Prepare a query: find the tables that it names, and choose its snapshot time.

    Args:
        client: the client that reads the tables. The event loop must be running.
        text: the SQL text.
        at: the time to read. ``None``: the query shows every write that was acknowledged before the call.
        timeout_s: how long each request is retried.

    Raises:
        SqlFailed: DuckDB is not installed, or the names of two tables differ only in case.
        Unavailable, SchemaMismatch: see ``AsyncClient.table``.
    """
    import_duckdb()
    known = await client.tables()
    names = await asyncio.to_thread(tables_of, text, known)
    tables = [await client.table(name, timeout_s=timeout_s) for name in names]
    if at is None:
        time = max(await asyncio.gather(*(table.latest(timeout_s=timeout_s) for table in tables)), default=0)
    else:
        time = hybrid(at)
    return Query(text, tables, time, timeout_s, known)


def dataset_of(schema: Any, scanner: Callable[[Sequence[str] | None, Any], Any]) -> Any:
    """Return a pyarrow dataset. DuckDB pushes columns and filters down only to an object of this type."""
    from pyarrow import dataset

    class TableDataset(dataset.Dataset):  # type: ignore[misc]
        def __init__(self) -> None:
            """Skip the constructor of pyarrow, which expects files."""

        @property
        def schema(self) -> Any:
            return schema

        def scanner(self, columns: Sequence[str] | None = None, filter: Any = None, **_: Any) -> Any:
            return scanner(columns, filter)

    return TableDataset()
