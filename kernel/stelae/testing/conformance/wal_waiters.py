"""The kernel's log writer over an engine under test: a failure must reach every waiter of the log (W8)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest

from stelae.host.log_writer import Completion, LogWriter
from stelae.spi.errors import StelaeError
from stelae.spi.ids import LogId, OpId
from stelae.spi.log import Entry
from stelae.spi.wal import Failed, Outcome, WalEngine


class Waiters:
    """Drives the kernel's log writer over an engine, and records the outcomes of appends.

    Attributes:
        outcomes: for the label of each append, its outcomes in the order of their arrival.
    """

    def __init__(self, engine: WalEngine, *logs: LogId) -> None:
        self.engine = engine
        self.outcomes: dict[str, list[Outcome]] = {}
        self.writer = LogWriter(
            lock=nullcontext(), wake=lambda: None, post=self._post, queue_bytes_max=1 << 30, group_bytes_max=1 << 30
        )
        for log in logs:
            self.writer.open_log(log, engine.logs()[log].last)

    def append(self, log: LogId, label: str, entries: tuple[Entry, ...]) -> None:
        """Queue an append. Its outcome is recorded under ``label``."""
        slot = self.writer.reserve(log, sum(entry.size_bytes for entry in entries))
        self.outcomes[label] = []
        self.writer.append_async(slot, entries, done=self.outcomes[label].append)

    def run(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Commit one group; call ``meanwhile`` while it is under way."""
        work = self.writer.take_work()
        assert work is not None
        meanwhile()
        self.writer.post(self.writer.perform(work, self.engine))

    def repair(self, log: LogId) -> object:
        """Repair a log; return the result."""
        results: list[object] = []
        self.writer.repair(log, results.append)
        self.run()
        return results[0]

    def check_all_failed(self, log: LogId, labels: str, durable: OpId) -> None:
        """Check that these appends failed, each once and all with the same error, and that the log accepts no more."""
        found = [self.outcomes[label] for label in labels]
        assert all(len(outcomes) == 1 for outcomes in found), f"outcomes per append: {[len(one) for one in found]}"
        first = found[0][0]
        assert isinstance(first, Failed) and first.durable == durable
        assert all(outcomes == [first] for outcomes in found)
        with pytest.raises(StelaeError) as caught:
            self.writer.reserve(log, 1)
        assert caught.value is first.error

    def _post(self, completions: list[Completion]) -> None:
        for callback, argument in completions:
            callback(argument)
