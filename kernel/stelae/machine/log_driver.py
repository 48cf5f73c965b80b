"""The one place that calls the log engine, and the reads that go beside it.

What an engine can begin (``WalEngine.begin``) is begun on the event loop and written by the system, where that has
``io_uring``. All else, and everything where it has none, is done by a thread. Loop and thread take turns: whoever has
the engine has it alone, until it finds no work or hands it over."""

import logging
import queue
import threading
from collections.abc import Callable
from functools import partial

from stelae.host.log_writer import Completion, Group, LogWriter, Work
from stelae.host.ports import BlockingPool
from stelae.machine.faulty_files import DiskFaultSeam
from stelae.machine.loop import LoopTurns
from stelae.machine.ring_writes import BYTES_MAX, Failures, RingWrites
from stelae.spi.errors import StelaeError
from stelae.spi.ids import LogId
from stelae.spi.log import Entry
from stelae.spi.services import Clock, Metrics
from stelae.spi.wal import Begun, Outcome, WalEngine

log = logging.getLogger(__name__)


class EngineDriver:
    """Drains a :class:`LogWriter` into an engine.

    Args:
        engine: the node's log engine, used by nobody else from now on, but for reads.
        pool: where reads that may block run beside it.
        turns: where completions run.
        clock, metrics: each group is timed, and its entries and bytes are counted.
        ring: writes that need no thread, if there are such.
        faults: while it has rules, a thread writes instead: what the system writes by itself is judged by nobody.
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
        ring: RingWrites | None,
        *,
        faults: DiskFaultSeam | None = None,
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
        self._ring, self._faults = ring, faults
        self._on_crash = on_crash
        self._stopped = False
        self._begun: Begun | None = None
        self._failures: Failures = ()  # Of what has begun, once it is over and until that is dealt with.
        self._turn = threading.Lock()  # Held by the loop while it has the engine, for ``stop`` to wait for.
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
        """End after the work in hand; the engine is free then. Blocks. Call it when the writer has closed.

        A write that is under way nevertheless is waited for. What it was for is finished only if it failed: nobody is
        told, but the engine has to know before it closes its logs as if they were whole."""
        with self._turn:
            self._stopped = True
        self._handed.put(None)
        self._thread.join()
        if self._ring is not None:
            for failures in self._ring.wait() or [self._failures]:
                if self._begun is not None and any(failures):
                    self._begun.finish(failures)
            self._turns.post(self._ring.close)

    def _wake(self) -> None:
        # After the links have flushed: peers sync at the same time, and not one lock later.
        self._turns.defer_after(self._drain if self._ring is None else self._go_on)

    def _post(self, completions: list[Completion]) -> None:
        self._turns.post(partial(_run_all, completions))

    # -- by the system ---------------------------------------------------------------------------

    def _go_on(self) -> None:
        """With the engine free, on the loop: begin the next work, or hand it over."""
        with self._turn:
            work = None if self._stopped else self.writer.take_work()
            if work is not None and not (isinstance(work, Group) and self._begin(work)):
                self._handed.put(partial(self._do_one, work))

    def _begin(self, group: Group) -> bool:
        """Begin a group if it can be begun, and the loop may take the time to encode it."""
        assert self._ring is not None
        if self._faults is not None and self._faults.active:
            return False
        if sum([slot.size_bytes for slots in group.slots.values() for slot in slots]) > BYTES_MAX:
            return False
        begun = self._engine.begin(group.appends)
        if begun is None or not self._ring.begin(begun.writes, self._written(group, begun)):
            return False
        self._begun, self._failures = begun, ()
        begun.meanwhile()
        return True

    def _written(self, group: Group, begun: Begun) -> Callable[[Failures], None]:
        """What is to be done when its writes are over."""
        began_us = self._now_us()

        def written(failures: Failures) -> None:
            with self._turn:
                if self._stopped:
                    return
                self._begun = None
                if any(failures):  # What an engine does about those asks the disk.
                    self._handed.put(lambda: self._failed(group, begun, failures))
                    return
                completions = self.writer.complete(group, begun.finish(failures))
            took_us = self._now_us() - began_us
            _run_all(completions)
            self._turns.defer_after(self._go_on)
            self._turns.defer_after(lambda: self._note(group, took_us))

        def over(failures: Failures) -> None:
            self._failures = failures
            self._turns.defer(lambda: written(failures))

        return over

    # -- by the thread ---------------------------------------------------------------------------

    def _drain(self) -> None:
        """With the engine free, on the loop, and no ring: let the thread have all there is."""
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

    def _do_one(self, work: Work) -> None:
        self._do(work)
        self._give_back()

    def _failed(self, group: Group, begun: Begun, failures: Failures) -> None:
        outcomes: dict[LogId, Outcome] = begun.finish(failures)
        self.writer.post(self.writer.complete(group, outcomes))
        self._give_back()

    def _give_back(self) -> None:
        self._turns.post(lambda: self._turns.defer_after(self._go_on))

    def _do(self, work: Work) -> None:
        begun_us = self._now_us()
        completions = self.writer.perform(work, self._engine)
        took_us = self._now_us() - begun_us
        self.writer.post(completions)
        self._note(work, took_us)

    def _note(self, work: Work, took_us: int) -> None:
        """Count a group when its callers have been told and the next one has begun: nobody waits for a figure."""
        if isinstance(work, Group):
            self._committed_us(took_us)
            self._committed_entries(sum([len(append.entries) for append in work.appends.values()]))
            self._committed_bytes(sum([slot.size_bytes for slots in work.slots.values() for slot in slots]))


def _run_all(completions: list[Completion]) -> None:
    for callback, argument in completions:
        callback(argument)


class EngineReader:
    """``LogReader`` on a pool: reads that may block run beside commits."""

    def __init__(self, engine: WalEngine, pool: BlockingPool) -> None:
        self._engine = engine
        self._pool = pool

    def read(
        self, log: LogId, first: int, end: int, bytes_max: int, done: Callable[[list[Entry] | StelaeError], None]
    ) -> None:
        """Read off the loop; ``done`` on the loop, in order per log."""
        self._pool.run(str(log), lambda: self._engine.read(log, first, end, bytes_max), done)
