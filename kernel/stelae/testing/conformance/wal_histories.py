"""Conformance check for log engines: random histories of one log.

They have appends, replacements, commits without sync, cooling, collection, full disks, and losses of power at any
operation. They find what the named checks of the other modules do not look for. The message of a failing history has
the seed that reproduces it."""

from __future__ import annotations

import random

from stelae.sim.draw import below, chance, pick
from stelae.spi.errors import Full
from stelae.spi.ids import ZERO
from stelae.spi.wal import Append, Durable, Failed, WalEngine
from stelae.testing.conformance.wal_crash_scenarios import FATES
from stelae.testing.conformance.wal_failures import WalFailures, limit_space
from stelae.testing.wal_harness import PowerLost, VirtualHarness
from stelae.testing.wal_model import LOG, Model, check_holds, entries, intact

HISTORIES = 150
RUNS = 5
STEPS = 40
OPERATIONS_MAX = 90


class WalHistories(WalFailures):
    """Adds random histories to the named checks."""

    def test_random_histories_lose_nothing_and_bring_nothing_back(self, harness: VirtualHarness) -> None:
        for seed in range(HISTORIES):
            try:
                WalHistory(harness.fork(seed), random.Random(seed)).run()
            except AssertionError as error:
                raise AssertionError(f"history of seed {seed}: {error}") from error


class WalHistory:
    """One log through several runs, each ended by a loss of power.

    Attributes:
        possible: the models that a crash may leave: what was synced last, and each later state, the newest one last.
    """

    def __init__(self, harness: VirtualHarness, rng: random.Random) -> None:
        self.harness = harness
        self.harness.workers.at_once = chance(rng, 0.5)
        self.rng = rng
        self.term = 1
        self.possible = [Model()]
        self.engine = harness.open()
        self.engine.create(LOG, ZERO)

    def run(self) -> None:
        """Do random steps, crash, and check, several times."""
        steps = (
            [self.append] * 10 + [self.replace] * 3 + [self.cool, self.cool, self.reopen]
            + [self.sync, self.look, self.fill_disk] + [self.collect] * 2
        )  # fmt: skip
        for _ in range(RUNS):
            faults = self.harness.disk.faults
            faults.lose_power_after(operations=below(self.rng, OPERATIONS_MAX))
            try:
                for _ in range(STEPS):
                    if chance(self.rng, 0.3):
                        self.harness.workers.run()
                    pick(self.rng, steps)()
            except PowerLost:
                pass
            self.harness.disk.faults.heal()
            self.harness.crash(survival=pick(self.rng, FATES))
            self.engine = self.harness.open()
            self.check()

    @property
    def newest(self) -> Model:
        """The model of the log without a crash."""
        return self.possible[-1]

    def check(self) -> None:
        """Check that a crash left one of the possible models, and go on from it."""
        found = intact(self.engine)
        assert any(_agree(found, model) for model in self.possible), (
            f"found {found.base} to {found.last}; possible {[(model.base, model.last) for model in self.possible]}"
        )
        self.possible = [found]
        self.term = max(self.term, found.last.term)

    # -- steps -----------------------------------------------------------------------------------

    def append(self) -> None:
        """Append some entries."""
        last = self.newest.last
        given = entries(last.index + 1, 1 + below(self.rng, 7), max(1, last.term), self._size())
        self._commit(Append(entries=given, commit_hint=below(self.rng, last.index + 1)))

    def replace(self) -> None:
        """Replace a suffix, sometimes by nothing."""
        self.term += 1
        base, last = self.newest.base.index, self.newest.last.index
        first = base + 1 + below(self.rng, last - base + 1)
        count = 0 if chance(self.rng, 0.1) else 1 + below(self.rng, 7)
        given = entries(first, count, self.term, self._size())
        self._commit(Append(entries=given, replace_from=first))

    def sync(self) -> None:
        """Make every commit without sync durable."""
        assert self.engine.commit({}, sync=True) == {}
        self.possible = [self.newest]

    def cool(self) -> None:
        """Cool the log, which syncs it."""
        self.engine.cool(LOG)
        self.possible = [self.newest]

    def reopen(self) -> None:
        """Close and open."""
        self.engine.close()
        self.possible = [self.newest]
        self.engine = self.harness.open()

    def collect(self) -> None:
        """Sync everything, then collect some entries."""
        if len(self.possible) > 1:
            self.sync()
        self.engine.collect(LOG, below(self.rng, self.newest.last.index + 1))
        self.look()

    def look(self) -> None:
        """Read every entry and compare."""
        check_holds(self.engine, self.newest)
        base = self.engine.logs()[LOG].base
        above = [one for one in self.newest.held if one.op_id.index > base.index]
        self.possible[-1] = Model(base, above)

    def fill_disk(self) -> None:
        """Append until the disk is full, free space, and repair."""
        if len(self.possible) > 1:
            self.sync()
        limit_space(self.harness, below(self.rng, 6000))
        outcome = self._append_until_failure(self.engine)
        limit_space(self.harness, None)
        if outcome is not None:
            assert isinstance(outcome.error, Full)
            assert self.engine.repair(LOG) == self.newest.last

    def _append_until_failure(self, engine: WalEngine) -> Failed | None:
        for _ in range(20):
            last = self.newest.last
            given = Append(entries=entries(last.index + 1, 3, max(1, last.term), self._size()))
            before = self.newest
            self.possible = [*self.possible, *before.possible_after(given)]
            outcome = engine.commit({LOG: given}, sync=True)[LOG]
            if isinstance(outcome, Failed):
                self.possible = [*before.possible_after(given), before]
                return outcome
            self.possible = [before.append(given)]
        return None

    def _commit(self, given: Append) -> None:
        before, synced = self.possible, chance(self.rng, 0.7)
        self.possible = before + before[-1].possible_after(given)
        outcome = self.engine.commit({LOG: given}, sync=synced)[LOG]
        assert isinstance(outcome, Durable), outcome
        if synced:
            self.possible = [self.newest]

    def _size(self) -> int:
        return pick(self.rng, (0, 10, 200, 900))


def _agree(found: Model, model: Model) -> bool:
    """Say whether two models are the same above both their bases."""
    low = max(found.base.index, model.base.index)
    above = [[e for e in one.held if e.op_id.index > low] for one in (found, model)]
    return found.last == model.last and above[0] == above[1]
