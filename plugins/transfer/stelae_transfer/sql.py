"""SQL over tables: DuckDB carries out the query, and reads each table through a scan of the client.

DuckDB hands a scan the columns that it needs and the filters that it can state; both travel to the tablets
(``pushdown``), and rows are judged by the filters once more on their way back. All scans of a query show one time."""

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
from stelae_transfer.snapshot import latest
from stelae_transfer.sql_names import SqlFailed, import_duckdb, refuse_twins, tables_of

BATCH_ROWS = 8192
"""Rows of a batch of the result: as many as a page of a scan."""

_NO_TABLE = re.compile(r"Table with name (.+) does not exist")


class ScanNote:
    """One scan of a query, for those who want to know what was pushed down."""

    def __init__(self, table: str, columns: Sequence[str], filters: Sequence[Filter]) -> None:
        self.table = table
        self.columns = [*columns]
        self.filters = [*filters]
        self.rows = 0


class Query:
    """A query that was made ready. Used in a thread of its own, while the loop of the client runs.

    Attributes:
        scans: the scans that were begun so far, in their order.
        at: the time that all of them show.
    """

    def __init__(
        self, text: str, tables: Sequence[AsyncTable], at: int, timeout_s: float, known: Sequence[str] = ()
    ) -> None:
        self.scans: list[ScanNote] = []
        self.at = at
        self._text = text
        self._tables = tables
        self._known_tables = known or [table.name for table in tables]
        self._timeout_s = timeout_s
        self.loop = asyncio.get_running_loop()
        self._problem: StelaeError | None = None
        self._open: list[_Batches] = []
        self._connection: Any = None
        self._lock = Lock()

    def run(self, take: Callable[[Any, Iterator[Any]], None]) -> None:
        """Carry the query out; ``take`` gets the schema of the result, and its batches as they come.

        Raises:
            SqlFailed: the query is wrong. StelaeError: a table cannot be read."""
        duckdb = import_duckdb()
        connection = duckdb.connect(config={"python_enable_replacements": "false"})
        self._connection = connection
        try:
            for table in self._tables:
                connection.register(table.name, self._dataset(table))
            statements = connection.extract_statements(self._text)
            if [statement.type.name for statement in statements] != ["SELECT"]:
                raise SqlFailed("a query is one SELECT; rows are written with `stelae import`, files with --output")
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
            # Some of them may be left half read.
            for batches in self._open:
                batches.close()

    def _known(self, problem: str) -> str:
        missing = _NO_TABLE.search(problem)
        return f"\nthe tables are: {listed(self._known_tables, missing[1] if missing else '')}"

    def _dataset(self, table: AsyncTable) -> Any:
        names = [column.name for column in table.schema.columns]
        step = f"rename one with stelae table alter {table.name} --rename OLD:NEW"
        refuse_twins("columns", names, step, of=f" of table {table.name!r}")
        return dataset_of(table.schema.layout.arrow, lambda columns, where: self._scanner(table, columns, where))

    def _scanner(self, table: AsyncTable, columns: Sequence[str] | None, where: Any) -> Any:
        from pyarrow import dataset

        wanted = [column.name for column in table.schema.columns] if columns is None else [*columns]
        found = pushed(table.schema, where)
        needed = [*table.columns] if found.columns is None else [*dict.fromkeys([*wanted, *found.columns])]
        if not needed:
            needed = [table.key[0]]
        note = ScanNote(table.name, needed, found.filters)
        self.scans.append(note)
        scan = table.scan(needed, found.filters or None, at=self.at, timeout_s=self._timeout_s)
        schema = table.schema.project(tuple(table.schema.by_name[name].id for name in needed)).arrow
        batches = _Batches(self, scan.batches(), note)
        self._open.append(batches)
        return dataset.Scanner.from_batches(batches, schema=schema, columns=wanted, filter=where)

    def failed(self, problem: StelaeError) -> None:
        """Keep what a scan raised: it comes back as an error of DuckDB's, its kind lost."""
        self._problem = problem

    def stop(self) -> None:
        """Ask the query to end, from another thread. What it is about to begin does not hear that: ask again."""
        for batches in self._open:
            batches.stopped = True
        with self._lock:
            if self._connection is not None:
                self._connection.interrupt()


class _Batches:
    """Batches of a scan, for threads that are not the loop's: DuckDB and Arrow take them in theirs, and ahead."""

    def __init__(self, query: Query, batches: AsyncGenerator[Any, None], note: ScanNote) -> None:
        self._query = query
        self._batches = batches
        self._note = note
        self._loop = query.loop
        self._lock = Lock()
        self.stopped = False

    def __iter__(self) -> _Batches:
        return self

    def __next__(self) -> Any:
        with self._lock:
            if self.stopped:
                raise SqlFailed("the query was stopped")
            batch = self._wait(self._following())
            if batch is None:
                raise StopIteration
            self._note.rows += len(batch)
            return batch

    def close(self) -> None:
        """End the scan; nothing is taken from it afterwards."""
        with self._lock:
            self.stopped = True
            self._wait(self._batches.aclose())

    async def _following(self) -> Any:
        try:
            return await anext(self._batches, None)
        except StelaeError as error:
            self._query.failed(error)
            raise

    def _wait(self, step: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(step, self._loop).result()


async def prepare(client: AsyncClient, text: str, at: At | None, timeout_s: float) -> Query:
    """Make a query ready: find the tables that it names, and the time that it shows.

    Args:
        at: ``None``: everything that was acknowledged before the call.

    Raises:
        SqlFailed: DuckDB is not installed, or names of tables differ only in case.
        Unavailable, SchemaMismatch: see ``AsyncClient.table``.
    """
    import_duckdb()
    known = await client.tables()
    names = await asyncio.to_thread(tables_of, text, known)
    tables = [await client.table(name, timeout_s=timeout_s) for name in names]
    time = await latest(client, names, timeout_s) if at is None else hybrid(at)
    return Query(text, tables, time, timeout_s, known)


def dataset_of(schema: Any, scanner: Callable[[Sequence[str] | None, Any], Any]) -> Any:
    """Return what DuckDB takes for a dataset of pyarrow: it asks such a one, and no other, for columns and filters."""
    from pyarrow import dataset

    class TableDataset(dataset.Dataset):  # type: ignore[misc]
        def __init__(self) -> None:
            """A dataset of pyarrow's own begins in C++; this one has no files there."""

        @property
        def schema(self) -> Any:
            return schema

        def scanner(self, columns: Sequence[str] | None = None, filter: Any = None, **_: Any) -> Any:
            return scanner(columns, filter)

    return TableDataset()
