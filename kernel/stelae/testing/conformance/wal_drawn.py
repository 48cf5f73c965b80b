"""Histories of one log that Hypothesis draws, beside the model: no crash, any disk, any engine.

What fails is shrunk to the fewest and smallest steps. The examples are the same in every run of the same tests with the
same versions: Hypothesis also draws constants from the modules that are imported."""

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


class Drawn(msgspec.Struct, frozen=True):
    """One step: what, where in the log as a share of its length, how many entries of what size, synced or not."""

    kind: str
    share: float
    count: int
    size_bytes: int
    sync: bool


STEPS = st.builds(
    Drawn,
    kind=st.sampled_from(KINDS),
    share=st.floats(0, 1),
    count=st.integers(0, 6),
    size_bytes=st.sampled_from((0, 10, 300, 5000)),
    sync=st.booleans(),
)


def live_as_drawn(harness: WalHarness) -> None:
    """Let an engine live through drawn histories, each in a log of its own, and compare it after every step."""
    bench = _Bench(harness)

    @settings(max_examples=HISTORIES, derandomize=True, database=None, deadline=None)
    @given(st.lists(STEPS, max_size=STEPS_MAX))
    def live(steps: list[Drawn]) -> None:
        bench.begin()
        for step in steps:
            bench.do(step)
        bench.end()

    live()
    bench.engine.close()


class _Bench:
    """One engine, and the log and model of the present history."""

    def __init__(self, harness: WalHarness) -> None:
        self._harness = harness
        self.engine = harness.open()
        self._count = 0

    def begin(self) -> None:
        """An empty log."""
        self._count += 1
        self.log = LogId(TabletId("drawn"), self._count)
        self.model = Model()
        self.engine.create(self.log, ZERO)

    def end(self) -> None:
        """Drop the log; a failing history leaves its own, and the next one begins beside it."""
        self.engine.drop(self.log)
        assert self.log not in self.engine.logs()

    def do(self, step: Drawn) -> None:
        """Do a step on both, and compare them."""
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

    def _commit(self, step: Drawn, given: Append) -> None:
        outcome = self.engine.commit({self.log: given}, sync=step.sync)[self.log]
        self.model = self.model.append(given)
        assert outcome == Durable(self.model.last)

    def _refuse(self, given: Append) -> None:
        outcome = self.engine.commit({self.log: given}, sync=True)[self.log]
        assert isinstance(outcome, Failed) and isinstance(outcome.error, CallerError)
        assert self.engine.repair(self.log) == self.model.last

    def _read(self, first: int, step: Drawn) -> None:
        """At least one entry, and no more than the bytes allow."""
        bytes_max = step.size_bytes * step.count
        found = self.engine.read(self.log, first, self.model.last.index + 1, bytes_max)
        held = [one for one in self.model.held if one.op_id.index >= first]
        assert found and found == held[: len(found)]
        assert len(found) == 1 or sum(one.size_bytes - ENTRY_OVERHEAD_BYTES for one in found) <= bytes_max
