"""The plain path to write a node's log: one thread takes groups from the log writer and commits them in the engine.

The thread is the only caller of the engine, except for reads, which run on a pool in parallel."""

import logging
import queue
import threading
from collections.abc import Callable
from functools import partial

from stelae.host.log_writer import CommitGroup, Completion, LogWriter, Work
from stelae.host.ports import BlockingPool
from stelae.machine.loop_turns import LoopTurns
from stelae.spi.errors import StelaeError
from stelae.spi.ids import LogId
from stelae.spi.log import Entry
from stelae.spi.services import Clock, Metrics
from stelae.spi.wal import WalEngine

log = logging.getLogger(__name__)


class EngineDriver:
    """Commits the groups of a :class:`LogWriter` in an engine.

    Args:
        engine: the node's log engine. From now on only this driver may use it, except for reads.
        pool: runs reads that may block, in parallel to commits.
        turns: runs completions on the loop.
        clock, metrics: measure the time of each group, its entries and its bytes.
        queue_bytes_max, group_bytes_max: bounds of the writer.
        on_crash: called on the loop if the engine raises an error that its contract does not allow. The state of the
            logs is unknown then."""

    def __init__(
        self,
        engine: WalEngine,
        pool: BlockingPool,
        turns: LoopTurns,
        clock: Clock,
        metrics: Metrics,
        *,
        queue_bytes_max: int,
        group_bytes_max: int,
        on_crash: Callable[[BaseException], None],
    ) -> None:
        self._engine = engine
        self._turns = turns
        self._now_us = clock.monotonic_us
        self._committed_us = metrics.histogram("log_commit_us")
        self._committed_entries = metrics.histogram("log_group_entries")
        self._committed_bytes = metrics.histogram("log_group_bytes")
        self._on_crash = on_crash
        self._handed: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.writer = LogWriter(
            lock=threading.Lock(),
            wake=self._wake,
            post=self._post,
            queue_bytes_max=queue_bytes_max,
            group_bytes_max=group_bytes_max,
        )
        self.reader = EngineReader(engine, pool)
        self._thread = threading.Thread(target=self._run, name="wal", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the current work. Blocks; nothing uses the engine on return. Call it when the writer has closed."""
        self._handed.put(None)
        self._thread.join()

    def _wake(self) -> None:
        # After the links have flushed, so that peers sync at the same time and not later.
        self._turns.defer_after(self._work_arrived)

    def _post(self, completions: list[Completion]) -> None:
        self._turns.post(partial(run_all, completions))

    def _work_arrived(self) -> None:
        """Start the work of the writer. Called on the loop while nothing uses the engine."""
        self._handed.put(self._do_all)

    def _run(self) -> None:
        try:
            while (work := self._handed.get()) is not None:
                work()
        except BaseException as error:
            log.exception("the log engine broke its contract")
            crash = error
            self._turns.post(lambda: self._on_crash(crash))

    def _do_all(self) -> None:
        while (work := self.writer.take_work()) is not None:
            self._do(work)

    def _do(self, work: Work) -> None:
        begun_us = self._now_us()
        completions = self.writer.perform(work, self._engine)
        took_us = self._now_us() - begun_us
        self.writer.post(completions)
        self._note(work, took_us)

    def _note(self, work: Work, took_us: int) -> None:
        """Count a group, after its callers have their answers and the next group has begun."""
        if isinstance(work, CommitGroup):
            self._committed_us(took_us)
            self._committed_entries(sum([len(append.entries) for append in work.appends.values()]))
            self._committed_bytes(sum([slot.size_bytes for slots in work.slots.values() for slot in slots]))


def run_all(completions: list[Completion]) -> None:
    """Call all callbacks, in order."""
    for callback, argument in completions:
        callback(argument)


class EngineReader:
    """``LogReader`` on a pool: reads that may block run in parallel to commits."""

    def __init__(self, engine: WalEngine, pool: BlockingPool) -> None:
        self._engine = engine
        self._pool = pool

    def read(
        self, log: LogId, first: int, end: int, bytes_max: int, done: Callable[[list[Entry] | StelaeError], None]
    ) -> None:
        """Read on the pool, then call ``done`` on the loop. Reads of one log run in order."""
        self._pool.run(str(log), lambda: self._engine.read(log, first, end, bytes_max), done)
