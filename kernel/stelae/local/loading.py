"""Loads rows into a table with many calls in flight, and knows which were acknowledged, and when on each tablet.

Each tablet has a *lane*: its rows in the order of the source, a few calls that are in flight, and the times of their
acknowledgements. So a tablet that cannot take writes holds up nobody else. A load can be held: from some share of its
rows on, each lane sends single rows with pauses, until it is released. There is something to acknowledge meanwhile, and
gaps stay measurable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from stelae.client.connection import ConnectedTablet
from stelae.local.acks import AckTimes
from stelae.local.sources import DemoSource
from stelae.partition.partitioning import Partitioning
from stelae.spi.rows import RowBatch
from stelae.spi.write import OpKind, OpResult

CALLS_MAX = 16
"""Calls in flight to one tablet."""

ROWS_PER_CALL_MAX = 40
IN_FLIGHT_SHARE = 0.02
"""At most so much of a tablet's rows is in flight: what happens at 30 % is not to happen at 40 %."""

TRICKLE_S = 0.05
"""Pause between two rows of a lane that is held."""

HOLD_S = 12.0
HOLD_SHARE = 0.08
"""A lane that is held may give away so much of its rows in that time; a short one makes longer pauses."""

WRITE_TIMEOUT_S = 20.0
PROBLEMS_MAX = 5


class LoadLane:
    """The rows of one tablet: their numbers in the source, and how far they have come."""

    def __init__(self, tablet: ConnectedTablet, numbers: Sequence[int], now: Callable[[], float]) -> None:
        self.tablet = tablet
        self.numbers = numbers
        self.sent = 0
        self.calls = 0
        self.hold_from = len(numbers)
        self.timer: asyncio.TimerHandle | None = None
        self.acks = AckTimes(now)
        share = int(len(numbers) * IN_FLIGHT_SHARE / CALLS_MAX)
        self.rows_per_call = max(1, min(ROWS_PER_CALL_MAX, share))
        self.trickle_s = max(TRICKLE_S, HOLD_S / max(1.0, HOLD_SHARE * len(numbers)))

    @property
    def may_send(self) -> bool:
        """Whether there is something to send, and room for it."""
        return self.sent < len(self.numbers) and self.calls < CALLS_MAX

    @property
    def held(self) -> bool:
        """Whether only single rows are to leave."""
        return self.sent >= self.hold_from

    def take(self) -> Sequence[int]:
        """Return the numbers of the rows of the next call."""
        count = 1 if self.held else min(self.rows_per_call, self.hold_from - self.sent)
        taken = self.numbers[self.sent : self.sent + count]
        self.sent += len(taken)
        self.calls += 1
        return taken

    def answered(self) -> None:
        """A call has been acknowledged."""
        self.calls -= 1
        self.acks.note(last=not self.calls and self.sent == len(self.numbers))


class Load:
    """One load of a source. Rows are inserted, so that one that took effect twice would be an error.

    Args:
        tablets: where to, in the order of the partitions; empty.
        partitioning: which row belongs to which of them.
        source: what.
        on_acked: called after each acknowledged call.
    """

    def __init__(
        self,
        tablets: Sequence[ConnectedTablet],
        partitioning: Partitioning,
        source: DemoSource,
        on_acked: Callable[[], None],
    ) -> None:
        self._rows = source.rows
        self._on_acked = on_acked
        self._loop = asyncio.get_running_loop()
        self._finished: asyncio.Future[None] = self._loop.create_future()
        self._waiting: list[tuple[float, asyncio.Future[None]]] = []
        placed = numbers_by_partition(partitioning, source)
        self.lanes = [LoadLane(*one, self._loop.time) for one in zip(tablets, placed, strict=True)]
        self.acked = bytearray(len(source.rows))
        self.acked_count = 0
        self.problems: list[str] = []

    @property
    def running(self) -> bool:
        """True while rows are still to be acknowledged."""
        return not self._finished.done()

    @property
    def share(self) -> float:
        """How much of all rows is acknowledged."""
        return self.acked_count / len(self._rows)

    async def run(self) -> None:
        """Send everything; returns when every row is acknowledged, or refused.

        Raises:
            DeadlineExceeded: a write was not taken in time.
            StelaeError: the first other error that a write ended with.
        """
        try:
            for lane in self.lanes:
                self._fill(lane)
            await self._finished
        finally:
            self._wake()

    def hold(self, share: float) -> None:
        """From this share of its rows on, each tablet gets only single rows until ``release``, or a later ``hold``."""
        for lane in self.lanes:
            lane.hold_from = int(len(lane.numbers) * share)
            self._fill(lane)

    def release(self) -> None:
        """Go on at full speed."""
        self.hold(1.0)

    async def reached(self, share: float) -> None:
        """Wait until so much of all rows is acknowledged, or the load ends."""
        if self.running and self.share < share:
            reached: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append((share, reached))
            await reached

    def longest_gap_ms(self, tablets: Iterable[int], since: float, until: float) -> float:
        """The longest gap on any of these tablets, which are numbered as the partitions; see ``AckTimes``."""
        lanes = [lane for tablet in tablets if (lane := self.lanes[tablet]).numbers]
        return max((lane.acks.longest_gap_ms(since, until) for lane in lanes), default=0.0)

    # -- sending ---------------------------------------------------------------------------------

    def _fill(self, lane: LoadLane) -> None:
        while self.running and lane.may_send:
            if lane.held:
                if lane.timer is None:
                    lane.timer = self._loop.call_later(lane.trickle_s, self._drip, lane)
                return
            self._send(lane)

    def _drip(self, lane: LoadLane) -> None:
        lane.timer = None
        if self.running and lane.may_send and lane.held:
            self._send(lane)
        self._fill(lane)

    def _send(self, lane: LoadLane) -> None:
        numbers = lane.take()
        rows = [self._rows[number] for number in numbers]
        call = lane.tablet.write(OpKind.INSERT, rows, timeout_s=WRITE_TIMEOUT_S)
        call.add_done_callback(partial(self._answered, lane, numbers))

    # -- answers ---------------------------------------------------------------------------------

    def _answered(self, lane: LoadLane, numbers: Sequence[int], call: asyncio.Future[OpResult]) -> None:
        if call.cancelled():
            return
        error = call.exception()
        if self._finished.done():
            return
        if error is not None:
            # Nobody knows what became of it: what was lost could not be told from what was not written.
            self._finished.set_exception(error)
            self._finished.exception()  # Whoever runs the load gets it; of one that was interrupted nobody waits.
            return
        lane.answered()
        self._count(numbers, call.result())
        self._on_acked()
        self._fill(lane)
        if all(one.sent == len(one.numbers) and not one.calls for one in self.lanes):
            self._finished.set_result(None)
        self._wake()

    def _count(self, numbers: Sequence[int], result: OpResult) -> None:
        refused = {error.row for error in result.errors}
        problems = [f"row {numbers[e.row]}: {e.code.name} {e.detail}" for e in result.errors]
        if result.refusal:
            refused = set(range(len(numbers)))
            problems = [f"rows from {numbers[0]}: {result.refusal}: {result.detail}"]
        self.problems += problems[: PROBLEMS_MAX - len(self.problems)]
        for place, number in enumerate(numbers):
            if place not in refused:
                self.acked[number] = 1
                self.acked_count += 1

    def _wake(self) -> None:
        still = []
        for share, reached in self._waiting:
            if self.running and self.share < share:
                still.append((share, reached))
            elif not reached.done():
                reached.set_result(None)
        self._waiting = still


def numbers_by_partition(partitioning: Partitioning, source: DemoSource) -> list[list[int]]:
    """Numbers of the rows of each partition, in the order of the source."""
    found: list[list[int]] = [[] for _ in partitioning.partitions]
    keys = RowBatch.from_equal_rows(partitioning.schema.key_layout, source.keys())
    for number, place in enumerate(partitioning.partitions_of(keys)):
        found[place].append(number)
    return found
