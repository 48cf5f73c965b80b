"""Drives a fast log engine: the event loop begins a commit, ``io_uring`` writes it, and the loop finishes it.

The thread of the plain driver does the work that cannot be begun: jobs, rolls, large groups, and the handling of failed
writes. Either the loop or the thread uses the engine. It does so until it has no work or hands the engine over."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from stelae.host.log_writer import CommitGroup, Work
from stelae.machine.fast_log.ring_writes import BYTES_MAX, Failures, RingWrites
from stelae.machine.faulty_files import DiskFaultSeam
from stelae.machine.log_driver import EngineDriver, run_all
from stelae.spi.ids import LogId
from stelae.spi.wal import Begun, Outcome, WalEngine


class RingDriver(EngineDriver):
    """An ``EngineDriver`` whose commits are written by a ring.

    Args:
        ring: makes the writes.
        faults: the fault seam of the disk. It cannot judge writes of the ring, so the thread writes while it has rules.
        engine: the engine.
        others: the other arguments of ``EngineDriver``."""

    def __init__(self, ring: RingWrites, faults: DiskFaultSeam | None, engine: WalEngine, **others: Any) -> None:
        self._ring = ring
        self._faults = faults
        self._stopped = False
        self._begun: Begun | None = None
        self._failures: Failures = ()  # Results of writes that are over, whose commit is not finished.
        self._turn = threading.Lock()  # The loop holds it while it has the engine; ``stop`` waits for it.
        super().__init__(engine, **others)

    def stop(self) -> None:
        """Do what ``EngineDriver.stop`` does, and wait for the writes under way.

        A commit under way is finished only if a write failed. Its callers get no answer. But the engine must know of
        the failure, because otherwise it would close its logs as complete."""
        with self._turn:
            self._stopped = True
        super().stop()
        for failures in self._ring.wait() or [self._failures]:
            if self._begun is not None and any(failures):
                self._begun.finish(failures)
        self._turns.post(self._ring.close)

    def _work_arrived(self) -> None:
        """Begin the next work or hand it to the thread. Called on the loop while nothing uses the engine."""
        with self._turn:
            work = None if self._stopped else self.writer.take_work()
            if work is not None and not (isinstance(work, CommitGroup) and self._begin(work)):
                self._handed.put(partial(self._do_one, work))

    def _begin(self, group: CommitGroup) -> bool:
        """Begin a group, if the engine can and the group is small enough to be encoded on the loop."""
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

    def _written(self, group: CommitGroup, begun: Begun) -> Callable[[Failures], None]:
        """Return the callback for the end of a group's writes."""
        began_us = self._now_us()

        def written(failures: Failures) -> None:
            with self._turn:
                if self._stopped:
                    return
                self._begun = None
                if any(failures):  # Handling a failure may block.
                    self._handed.put(lambda: self._failed(group, begun, failures))
                    return
                completions = self.writer.complete(group, begun.finish(failures))
            took_us = self._now_us() - began_us
            run_all(completions)
            self._turns.defer_after(self._work_arrived)
            self._turns.defer_after(lambda: self._note(group, took_us))

        def over(failures: Failures) -> None:
            self._failures = failures
            self._turns.defer(lambda: written(failures))

        return over

    # -- on the thread ---------------------------------------------------------------------------

    def _do_one(self, work: Work) -> None:
        self._do(work)
        self._give_back()

    def _failed(self, group: CommitGroup, begun: Begun, failures: Failures) -> None:
        outcomes: dict[LogId, Outcome] = begun.finish(failures)
        self.writer.post(self.writer.complete(group, outcomes))
        self._give_back()

    def _give_back(self) -> None:
        self._turns.post(lambda: self._turns.defer_after(self._work_arrived))
