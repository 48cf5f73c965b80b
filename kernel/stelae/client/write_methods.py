"""The methods that write rows, for tables and for the epochs of their sources."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from stelae.client.arguments import BadArgument, kind_of_write, seconds, whole
from stelae.client.failures import FAILURES_MAX, RowsFailed, WriteResult, combined, tell_result
from stelae.client.lazy_rows import is_lazy, lists_of_rows
from stelae.client.loop_thread import LoopThread
from stelae.client.table_writer import TableWriter
from stelae.client.writer_core import TIMEOUT_S_MAX
from stelae.spi.write import OpKind

TIMEOUT_S = 30.0
"""Time for which a write or a page of a scan is retried by default, in seconds."""


class AsyncWriteMethods(ABC):
    """The methods that write rows."""

    @abstractmethod
    async def write(
        self,
        kind: OpKind,
        rows: Any,
        *,
        errors: str = "raise",
        timeout_s: float = TIMEOUT_S,
        failures_max: int = FAILURES_MAX,
    ) -> WriteResult:
        """Write rows, and wait until a majority of each tablet has made them durable.

        Args:
            kind: the kind of write.
            rows: a dict, a tuple (values in the order of the schema; for deletes, of the key), an iterable of these, a
                pyarrow ``Table``, ``RecordBatch`` or ``RecordBatchReader``, a list of Arrow tables or batches, which
                may have different columns, or a pandas or polars ``DataFrame``. Absent columns get their default, or
                null; updates and upserts of existing rows do not change them.
            errors: ``"raise"``: failures raise ``RowsFailed``; ``"return"``: they are only in the result.
            timeout_s: how long each operation is retried, up to 300 s.
            failures_max: how many failed rows the result has with values and reasons. Further ones are only counted.

        Raises:
            RowsFailed: some rows were not written; all others are. The error has the list, with reasons.
            SchemaMismatch: columns of a frame are unknown, missing, or of another kind of type.
            CallerError: ``rows`` cannot be read.

        If the rows cannot be read to their end, those before are written, and the error has their ``result``. Its text
        names those of them that failed.
        """
        ...

    async def insert(self, rows: Any, *, errors: str = "raise", timeout_s: float = TIMEOUT_S) -> WriteResult:
        """Write new rows. A row whose key exists is a failure and changes nothing. See :meth:`write`."""
        return await self.write(OpKind.INSERT, rows, errors=errors, timeout_s=timeout_s)

    async def upsert(self, rows: Any, *, errors: str = "raise", timeout_s: float = TIMEOUT_S) -> WriteResult:
        """Write new rows, or replace the given columns of existing rows. See :meth:`write`."""
        return await self.write(OpKind.UPSERT, rows, errors=errors, timeout_s=timeout_s)

    async def update(self, rows: Any, *, errors: str = "raise", timeout_s: float = TIMEOUT_S) -> WriteResult:
        """Replace the given columns of existing rows. A key that does not exist is a failure. See :meth:`write`."""
        return await self.write(OpKind.UPDATE, rows, errors=errors, timeout_s=timeout_s)

    async def delete(self, rows: Any, *, errors: str = "raise", timeout_s: float = TIMEOUT_S) -> WriteResult:
        """Delete rows by key. A key that does not exist is a failure. See :meth:`write`."""
        return await self.write(OpKind.DELETE, rows, errors=errors, timeout_s=timeout_s)

    async def insert_ignore(self, rows: Any, *, errors: str = "raise", timeout_s: float = TIMEOUT_S) -> WriteResult:
        """Write new rows, and skip rows whose key exists. See :meth:`write`."""
        return await self.write(OpKind.INSERT_IGNORE, rows, errors=errors, timeout_s=timeout_s)

    async def update_ignore(self, rows: Any, *, errors: str = "raise", timeout_s: float = TIMEOUT_S) -> WriteResult:
        """Update existing rows, and skip rows whose key does not exist. See :meth:`write`."""
        return await self.write(OpKind.UPDATE_IGNORE, rows, errors=errors, timeout_s=timeout_s)

    async def delete_ignore(self, rows: Any, *, errors: str = "raise", timeout_s: float = TIMEOUT_S) -> WriteResult:
        """Delete rows by key, and skip keys that do not exist. See :meth:`write`."""
        return await self.write(OpKind.DELETE_IGNORE, rows, errors=errors, timeout_s=timeout_s)


class WriteMethods(ABC):
    """The methods that write rows, for the synchronous client.

    The rows of an iterator are taken in the caller's thread, ``LIST_ROWS`` at a time."""

    @abstractmethod
    def write(
        self,
        kind: OpKind,
        rows: Any,
        *,
        errors: str = "raise",
        timeout_s: float = TIMEOUT_S,
        failures_max: int = FAILURES_MAX,
    ) -> WriteResult:
        """Write rows, and wait until they are durable; see :meth:`AsyncWriteMethods.write`."""
        ...

    def insert(self, rows: Any, *, errors: str = "raise", timeout_s: float = TIMEOUT_S) -> WriteResult:
        """Write new rows. A row whose key exists is a failure and changes nothing."""
        return self.write(OpKind.INSERT, rows, errors=errors, timeout_s=timeout_s)

    def upsert(self, rows: Any, *, errors: str = "raise", timeout_s: float = TIMEOUT_S) -> WriteResult:
        """Write new rows, or replace the given columns of existing rows."""
        return self.write(OpKind.UPSERT, rows, errors=errors, timeout_s=timeout_s)

    def update(self, rows: Any, *, errors: str = "raise", timeout_s: float = TIMEOUT_S) -> WriteResult:
        """Replace the given columns of existing rows. A key that does not exist is a failure."""
        return self.write(OpKind.UPDATE, rows, errors=errors, timeout_s=timeout_s)

    def delete(self, rows: Any, *, errors: str = "raise", timeout_s: float = TIMEOUT_S) -> WriteResult:
        """Delete rows by key. A key that does not exist is a failure."""
        return self.write(OpKind.DELETE, rows, errors=errors, timeout_s=timeout_s)

    def insert_ignore(self, rows: Any, *, errors: str = "raise", timeout_s: float = TIMEOUT_S) -> WriteResult:
        """Write new rows, and skip rows whose key exists."""
        return self.write(OpKind.INSERT_IGNORE, rows, errors=errors, timeout_s=timeout_s)

    def update_ignore(self, rows: Any, *, errors: str = "raise", timeout_s: float = TIMEOUT_S) -> WriteResult:
        """Update existing rows, and skip rows whose key does not exist."""
        return self.write(OpKind.UPDATE_IGNORE, rows, errors=errors, timeout_s=timeout_s)

    def delete_ignore(self, rows: Any, *, errors: str = "raise", timeout_s: float = TIMEOUT_S) -> WriteResult:
        """Delete rows by key, and skip keys that do not exist."""
        return self.write(OpKind.DELETE_IGNORE, rows, errors=errors, timeout_s=timeout_s)


async def write_rows(
    writer: TableWriter, kind: OpKind, rows: Any, errors: str, timeout_s: float, failures_max: int
) -> WriteResult:
    """Write rows; see :meth:`AsyncWriteMethods.write`."""
    if errors not in ("raise", "return"):
        raise BadArgument("errors", "'raise' or 'return'", errors)
    timeout_s = seconds("timeout_s", timeout_s, above_0=True, most=TIMEOUT_S_MAX)
    whole("failures_max", failures_max, 0)
    result = (await writer.write(kind_of_write(kind), rows, timeout_s, failures_max)).result()
    if result.failed and errors == "raise":
        raise RowsFailed(result)
    return result


def write_in_thread(
    loop_thread: LoopThread,
    writes: AsyncWriteMethods,
    kind: OpKind,
    rows: Any,
    errors: str,
    timeout_s: float,
    failures_max: int,
) -> WriteResult:
    """Write rows on the thread of an event loop; see :class:`WriteMethods`."""

    def write(some: Any, errors: str) -> WriteResult:
        return loop_thread.run(writes.write(kind, some, errors=errors, timeout_s=timeout_s, failures_max=failures_max))

    if not is_lazy(rows):
        return write(rows, errors)
    total = write([], errors)
    try:
        for listed in lists_of_rows(rows):
            total = combined(total, write(listed, "return"), failures_max)
    except Exception as error:
        tell_result(error, total, failures_max)
        raise
    if total.failed and errors == "raise":
        raise RowsFailed(total)
    return total
