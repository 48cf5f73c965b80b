"""What the kernel's log writer makes of a failing engine: everybody who waits for that log hears of it (W8)."""

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
    """The kernel's log writer over an engine, driven by hand, and what each append was told.

    Attributes:
        told: outcomes by the label of the append, in the order in which they came.
    """

    def __init__(self, engine: WalEngine, *logs: LogId) -> None:
        self.engine = engine
        self.told: dict[str, list[Outcome]] = {}
        self.writer = LogWriter(
            lock=nullcontext(), wake=lambda: None, post=self._post, queue_bytes_max=1 << 30, group_bytes_max=1 << 30
        )
        for log in logs:
            self.writer.open_log(log, engine.logs()[log].last)

    def append(self, log: LogId, label: str, entries: tuple[Entry, ...]) -> None:
        """Have something appended; the outcome comes under ``label``."""
        slot = self.writer.reserve(log, sum(entry.size_bytes for entry in entries))
        self.told[label] = []
        self.writer.append_async(slot, entries, done=self.told[label].append)

    def run(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Commit one group; ``meanwhile`` happens while it is under way."""
        work = self.writer.take_work()
        assert work is not None
        meanwhile()
        self.writer.post(self.writer.perform(work, self.engine))

    def repair(self, log: LogId) -> object:
        """Repair a log; what came of it."""
        results: list[object] = []
        self.writer.repair(log, results.append)
        self.run()
        return results[0]

    def check_all_failed(self, log: LogId, labels: str, durable: OpId) -> None:
        """Assert that these appends failed, each once and all with one error, and that the log takes no more."""
        told = [self.told[label] for label in labels]
        assert all(len(outcomes) == 1 for outcomes in told), f"outcomes per append: {[len(one) for one in told]}"
        first = told[0][0]
        assert isinstance(first, Failed) and first.durable == durable
        assert all(outcomes == [first] for outcomes in told)
        with pytest.raises(StelaeError) as caught:
            self.writer.reserve(log, 1)
        assert caught.value is first.error

    def _post(self, completions: list[Completion]) -> None:
        for callback, argument in completions:
            callback(argument)
