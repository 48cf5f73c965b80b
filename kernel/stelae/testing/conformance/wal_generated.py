"""Conformance check for log engines: histories of one log that Hypothesis generates, compared with the model.

The histories have no crashes and run on any disk. Hypothesis shrinks a failing history to the fewest and smallest
steps. Every run of the same tests with the same versions has the same examples. Hypothesis also draws constants from
the imported modules, so other imports give other examples."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from stelae.spi.errors import CallerError
from stelae.spi.ids import ZERO, LogId, TabletId
from stelae.spi.log import ENTRY_OVERHEAD_BYTES
from stelae.spi.wal import Append, Durable, Failed
from stelae.testing.wal_harness import WalHarness
from stelae.testing.wal_model import Model, check_holds, entries

HISTORIES = 50
STEPS_MAX = 20
KINDS = ("append", "replace", "misfit", "collect", "read", "cool", "reopen")


class GeneratedStep(msgspec.Struct, frozen=True):
    """One step of a history."""

    kind: str  #: One of ``KINDS``.
    share: float  #: Where in the log the step is, as a share of its length.
    count: int  #: How many entries are appended.
    size_bytes: int  #: The size of each body.
    sync: bool  #: Whether the commit is synced.


STEPS = st.builds(
    GeneratedStep,
    kind=st.sampled_from(KINDS),
    share=st.floats(0, 1),
    count=st.integers(0, 6),
    size_bytes=st.sampled_from((0, 10, 300, 5000)),
    sync=st.booleans(),
)


def check_generated_histories(harness: WalHarness) -> None:
    """Run generated histories, each in a log of its own, and compare the engine with the model after every step."""
    runner = _HistoryRunner(harness)

    @settings(max_examples=HISTORIES, derandomize=True, database=None, deadline=None)
    @given(st.lists(STEPS, max_size=STEPS_MAX))
    def run(steps: list[GeneratedStep]) -> None:
        runner.begin()
        for step in steps:
            runner.do(step)
        runner.end()

    run()
    runner.engine.close()


class _HistoryRunner:
    """Runs histories on one engine, with a log and a model for each."""

    def __init__(self, harness: WalHarness) -> None:
        self._harness = harness
        self.engine = harness.open()
        self._count = 0

    def begin(self) -> None:
        """Begin a history with an empty log."""
        self._count += 1
        self.log = LogId(TabletId("generated"), self._count)
        self.model = Model()
        self.engine.create(self.log, ZERO)

    def end(self) -> None:
        """End a history and drop its log. A failing history does not get here, and the next one uses another log."""
        self.engine.drop(self.log)
        assert self.log not in self.engine.logs()

    def do(self, step: GeneratedStep) -> None:
        """Do a step on engine and model, and compare them."""
        base = self.engine.logs()[self.log].base.index
        first = base + 1 + int(step.share * (self.model.last.index - base))
        match step.kind:
            case "append" if step.count:
                term = max(1, self.model.last.term)
                self._commit(
                    step, Append(entries=entries(self.model.last.index + 1, step.count, term, step.size_bytes))
                )
            case "replace":
                given = entries(first, step.count, self.model.last.term + 1, step.size_bytes)
                self._commit(step, Append(entries=given, replace_from=first))
            case "misfit":
                self._refuse(Append(entries=entries(self.model.last.index + 2 + step.count, 1, 99)))
            case "collect":
                assert self.engine.collect(self.log, first - 1).index <= first - 1
            case "read" if first <= self.model.last.index:
                self._read(first, step)
            case "cool":
                self.engine.cool(self.log)
            case "reopen":
                self.engine.close()
                self.engine = self._harness.open()
        check_holds(self.engine, self.model, self.log)

    def _commit(self, step: GeneratedStep, given: Append) -> None:
        outcome = self.engine.commit({self.log: given}, sync=step.sync)[self.log]
        self.model = self.model.append(given)
        assert outcome == Durable(self.model.last)

    def _refuse(self, given: Append) -> None:
        outcome = self.engine.commit({self.log: given}, sync=True)[self.log]
        assert isinstance(outcome, Failed) and isinstance(outcome.error, CallerError)
        assert self.engine.repair(self.log) == self.model.last

    def _read(self, first: int, step: GeneratedStep) -> None:
        """Check that a read returns at least one entry, and no more than its byte limit allows."""
        bytes_max = step.size_bytes * step.count
        found = self.engine.read(self.log, first, self.model.last.index + 1, bytes_max)
        held = [one for one in self.model.held if one.op_id.index >= first]
        assert found and found == held[: len(found)]
        assert len(found) == 1 or sum(one.size_bytes - ENTRY_OVERHEAD_BYTES for one in found) <= bytes_max
