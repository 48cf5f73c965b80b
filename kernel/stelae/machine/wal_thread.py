"""The one thread that calls the log engine, and the reads that go beside it."""

import logging
import queue
import threading
from collections.abc import Callable

from stelae.host.log_writer import Completion, Group, LogWriter, Work
from stelae.host.ports import BlockingPool
from stelae.machine.loop import LoopTurns
from stelae.spi.errors import StelaeError
from stelae.spi.ids import LogId
from stelae.spi.log import Entry
from stelae.spi.services import Clock, Metrics
from stelae.spi.wal import WalEngine

log = logging.getLogger(__name__)


class WalThread:
    """Drains a :class:`LogWriter` into an engine on a thread of its own.

    Args:
        engine: the node's log engine, used by this thread alone from now on.
        pool: where reads that may block run beside it.
        turns: where completions run.
        clock, metrics: each group is timed, and its entries and bytes are counted.
        queue_bytes_max, group_bytes_max: bounds of the writer.
        on_crash: called on the loop if the engine raised what its contract does not allow;
            nothing can be promised about the logs after that."""

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
        self._tokens: queue.SimpleQueue[bool] = queue.SimpleQueue()
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
        """End the thread after the work in hand. Call it when the writer has closed."""
        self._tokens.put(False)
        self._thread.join()

    def _wake(self) -> None:
        # After the links have flushed: peers sync at the same time, and not one lock later.
        self._turns.defer_after(lambda: self._tokens.put(True))

    def _post(self, completions: list[Completion]) -> None:
        def run() -> None:
            for callback, argument in completions:
                callback(argument)

        self._turns.post(run)

    def _run(self) -> None:
        try:
            while self._tokens.get():
                while (work := self.writer.take_work()) is not None:
                    begun_us = self._now_us()
                    completions = self.writer.perform(work, self._engine)
                    took_us = self._now_us() - begun_us
                    self.writer.finish(completions)
                    self._note(work, took_us)
        except BaseException as error:
            log.exception("the log engine broke its contract")
            crash = error
            self._turns.post(lambda: self._on_crash(crash))

    def _note(self, work: Work, took_us: int) -> None:
        """Count a group when its callers have been told: nobody waits for a figure."""
        if isinstance(work, Group):
            self._committed_us(took_us)
            self._committed_entries(sum([len(append.entries) for append in work.appends.values()]))
            self._committed_bytes(sum([slot.size_bytes for slots in work.slots.values() for slot in slots]))


class EngineReader:
    """``LogReader`` on a pool: reads that may block run beside the WAL thread."""

    def __init__(self, engine: WalEngine, pool: BlockingPool) -> None:
        self._engine = engine
        self._pool = pool

    def read(
        self, log: LogId, first: int, end: int, bytes_max: int, done: Callable[[list[Entry] | StelaeError], None]
    ) -> None:
        """Read off the loop; ``done`` on the loop, in order per log."""
        self._pool.run(str(log), lambda: self._engine.read(log, first, end, bytes_max), done)
