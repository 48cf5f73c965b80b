"""Writes of one epoch of a source: exactly once, even if the program that writes is started again.

The exactly-once results of tablets let one client repeat a request. They do not help a program that was killed and
starts again, under another client id. For that, a program names its *source* and numbers its runs: each is an *epoch*.

- Every operation carries source and epoch. A tablet that has applied an operation of a later epoch refuses it
  (``STALE_EPOCH``). So a writer of an earlier epoch that is still alive changes nothing any more.
- The writes of an epoch may be repeated, in other batches and by other processes: an upsert or an update that is
  repeated leaves the same row, an insert that meets a row with the same values counts as written, and so does a
  delete that finds no row. This holds if no one else has written the row since. Otherwise a write that is repeated
  while the epoch is not complete has its effect again, on the row of the other writer.
- ``complete`` makes the completion known to the tablets. An epoch is complete if any tablet knows that: no other record
  is needed, and none can be lost apart from the rows. Once a later epoch has begun, tablets do not know any more
  whether an earlier one was complete, and ``begin`` refuses it.

For a tablet, an epoch is two numbers: it has begun, and it is complete. The second one fences off those who still write
it, as a later epoch does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any
from weakref import WeakSet

from stelae.client.arguments import seconds
from stelae.client.failures import FAILURES_MAX, WriteResult
from stelae.client.planned_write import WritableTablet
from stelae.client.session import AsyncSession, SessionOptions, checked_options
from stelae.client.table_writer import RESENDS_MAX, TableWriter
from stelae.client.write_methods import TIMEOUT_S, AsyncWriteMethods, write_rows
from stelae.client.writer_core import TIMEOUT_S_MAX
from stelae.partition.partitioning import Partitioning
from stelae.rows.operation_encoding import operation
from stelae.spi.errors import CallerError, StelaeError, Unavailable
from stelae.spi.ids import TabletId
from stelae.spi.write import EPOCH_LAST, OpKind, OpResult, SourceFence, StaleEpoch

EPOCH_MAX = (EPOCH_LAST - 3) // 2
"""The highest number of an epoch. Both of its numbers for tablets are below that of a source that has ended."""


class LaterEpoch(CallerError, code="LATER_EPOCH"):
    """A later epoch has begun, or the source has ended, and it is not known whether this epoch was complete.

    Nothing of it is written."""

    def __init__(self, fence: SourceFence) -> None:
        fact = (
            f"epoch {fence.epoch} of source {fence.source!r} is not written: a later one has begun, or the source ended"
        )
        known = "it is not known whether this one was complete"
        super().__init__(f"{fact}; {known}; if it was not, write its rows with a higher epoch or another source")


class EpochComplete(CallerError, code="EPOCH_COMPLETE"):
    """The epoch is complete: its rows were written before, and a later epoch may have changed them since."""

    def __init__(self, fence: SourceFence) -> None:
        fact = f"epoch {fence.epoch} of source {fence.source!r} is complete"
        super().__init__(f"{fact}; nothing was written now; check is_complete before you write")


class AsyncEpoch(AsyncWriteMethods):
    """One epoch of a source. Made by ``AsyncTable.epoch``.

    With ``async with`` it begins, and is completed at the end of a block that raises nothing:

    .. code-block:: python

        async with table.epoch("nightly-load", 17) as epoch:
            if not epoch.is_complete:
                await epoch.upsert(frame)

    Processes that write one epoch together call :meth:`write` without beginning it. One of them begins it before, and
    completes it when all have written."""

    def __init__(self, writer: TableWriter, fence: SourceFence, sessions: WeakSet[AsyncSession]) -> None:
        self._writer = writer
        self._sessions = sessions
        self._own_sessions: WeakSet[AsyncSession] = WeakSet()
        self.fence = fence
        """The source and the number of the epoch."""
        self.is_complete = False
        """Whether the epoch was complete when it was begun. Then there is nothing to write."""

    @property
    def tablets(self) -> Sequence[TabletId]:
        """Ids of the tablets to which this object has written."""
        return sorted(self._writer.fenced)

    def update_table(self, name: str, partitioning: Partitioning, tablets: Sequence[WritableTablet]) -> None:
        """Use the partitioning and tablets of a new lookup of the table."""
        self._writer.name = name
        self._writer.update_table(partitioning, tablets)

    async def begin(self, *, timeout_s: float = TIMEOUT_S) -> bool:
        """Begin the epoch on all tablets, and return whether its rows have to be written.

        Writers of earlier epochs are refused from now on. ``False``: the epoch is complete.

        Raises:
            LaterEpoch: a later epoch has begun, or the source has ended.
            Unavailable: a tablet does not answer in time.
        """
        timeout_s = seconds("timeout_s", timeout_s, above_0=True, most=TIMEOUT_S_MAX)
        self.is_complete = False
        beyond = await self._raise_to(begun(self.fence), None, timeout_s)
        # They know that it is complete, or a later epoch. The other tablets are not asked, so they learn nothing of it.
        if beyond and await self._raise_to(_complete(self.fence), beyond, timeout_s):
            raise LaterEpoch(self.fence)
        self.is_complete = bool(beyond)
        return not self.is_complete

    async def complete(
        self, tablets: Iterable[TabletId] | None = None, *, ends: bool = False, timeout_s: float = TIMEOUT_S
    ) -> None:
        """Complete the epoch: :meth:`begin` returns false from now on, and its writers are refused.

        Call it when every row of the epoch is written. Open sessions of this object are closed first. Completing an
        epoch again has no effect.

        Args:
            tablets: ids of the tablets to which rows of this epoch were written; ``None``: all tablets.
            ends: the source ends: no later epoch of it can be written. Tablets forget it a day afterwards, and not
                after seven days, so a job that never repeats its source leaves little behind.
            timeout_s: how long it is retried.

        Raises:
            RowsFailed: rows of an open session were not written. The epoch is not complete.
            Unavailable: a tablet does not answer in time. The epoch may be complete; complete it again.
        """
        timeout_s = seconds("timeout_s", timeout_s, above_0=True, most=TIMEOUT_S_MAX)
        for session in [*self._own_sessions]:
            await session.close()
        known = SourceFence(self.fence.source, EPOCH_LAST) if ends else _complete(self.fence)
        await self._raise_to(known, None if tablets is None else {*tablets}, timeout_s)

    async def _raise_to(self, known: SourceFence, only: set[TabletId] | None, timeout_s: float) -> set[TabletId]:
        """Make a number of the epoch known to tablets, and return those that know a higher one.

        A tablet that refuses an operation for its schema, or is gone, does not know the epoch: the table was altered,
        and is looked up again.

        Raises:
            Unavailable: a tablet does not know the epoch.
        """
        if only is not None and not only <= {tablet.tablet_id for tablet in self._writer.tablets}:
            await self._looked_up(self._writer.partitioning, timeout_s)  # Another process knows newer ranges.
        for attempt in range(RESENDS_MAX + 1):
            partitioning = self._writer.partitioning
            answers = await self._send_empty(known, only, timeout_s)
            problems = {tablet: why for tablet, answer in answers.items() if (why := _problem_of(answer))}
            if not problems:
                return {tablet for tablet, answer in answers.items() if _is_beyond(answer)}
            if attempt == RESENDS_MAX or not await self._looked_up(partitioning, timeout_s):
                break
        tablet, why = next(iter(problems.items()))
        fact = f"tablet {tablet} does not know epoch {self.fence.epoch} of source {self.fence.source!r} yet"
        raise Unavailable(f"{fact}: {why}")

    async def _looked_up(self, before: Partitioning, timeout_s: float) -> bool:
        """Look the table up again, and return whether it has changed."""
        writer = self._writer
        return (writer.refresh is not None and await writer.refresh(timeout_s)) or writer.partitioning is not before

    async def _send_empty(
        self, fence: SourceFence, only: set[TabletId] | None, timeout_s: float
    ) -> dict[TabletId, OpResult | BaseException]:
        """Send an operation without rows to tablets, and return the answer of each."""
        empty = operation(OpKind.UPSERT, [], None, fence)
        tablets = [tablet for tablet in self._writer.tablets if only is None or tablet.tablet_id in only]
        answers = await asyncio.gather(*(tablet.send(empty, timeout_s) for tablet in tablets), return_exceptions=True)
        return {tablet.tablet_id: answer for tablet, answer in zip(tablets, answers, strict=True)}

    async def write(
        self,
        kind: OpKind,
        rows: Any,
        *,
        errors: str = "raise",
        timeout_s: float = TIMEOUT_S,
        failures_max: int = FAILURES_MAX,
    ) -> WriteResult:
        """Write rows of the epoch. See :meth:`AsyncWriteMethods.write`.

        An insert that meets a row with the same values counts as written, and so does a delete that finds no row: they
        were repeated.

        Raises:
            EpochComplete: the epoch is complete.
            RowsFailed: rows were not written. ``STALE_EPOCH``: the epoch was completed, or a later one has begun since.
        """
        self._check_open()
        return await write_rows(self._writer, kind, rows, errors, timeout_s, failures_max)

    def session(self, options: SessionOptions | None = None) -> AsyncSession:
        """Open a session that writes rows of the epoch; see ``AsyncTable.session``."""
        self._check_open()
        session = AsyncSession(self._writer, checked_options(options))
        self._sessions.add(session)
        self._own_sessions.add(session)
        return session

    def _check_open(self) -> None:
        if self.is_complete:
            raise EpochComplete(self.fence)

    async def __aenter__(self) -> AsyncEpoch:
        await self.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.complete()


def _problem_of(answer: OpResult | BaseException) -> str:
    """Return why a tablet does not know an epoch; empty: it knows this one or a later one."""
    if isinstance(answer, StelaeError):
        return str(answer)
    if isinstance(answer, BaseException):
        raise answer
    return "" if answer.refusal in ("", StaleEpoch.code) else f"{answer.refusal}: {answer.detail}"


def _is_beyond(answer: OpResult | BaseException) -> bool:
    """Return whether a tablet knows a higher number of the source."""
    return isinstance(answer, OpResult) and answer.refusal == StaleEpoch.code


def begun(fence: SourceFence) -> SourceFence:
    """Return the fence that a tablet gets when an epoch begins. The rows of the epoch carry it, too."""
    return SourceFence(fence.source, 2 * fence.epoch)


def _complete(fence: SourceFence) -> SourceFence:
    """Return the fence that a tablet gets when an epoch is complete."""
    return SourceFence(fence.source, 2 * fence.epoch + 1)
