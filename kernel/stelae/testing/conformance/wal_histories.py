"""Random lives of a log: appends, replacements, commits without sync, cooling, collection, full
disks, and power lost in the middle of any of it.

The named checks of the other modules say what is wrong; this one looks where nobody thought of. A
failing history is reproduced by its seed, which the message names."""

from __future__ import annotations

import random

from stelae.sim.draw import below, chance, pick
from stelae.spi.errors import Full
from stelae.spi.ids import ZERO
from stelae.spi.wal import Append, Durable, Failed, WalEngine
from stelae.testing.conformance.wal_crashes import FATES
from stelae.testing.conformance.wal_failures import WalFailures, limit_room
from stelae.testing.wal_harness import PowerLost, VirtualHarness
from stelae.testing.wal_model import LOG, Model, check_holds, entries, intact

HISTORIES = 150
LIVES = 5
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
    """One log through some lives, each ended by a loss of power.

    ``possible`` is what a crash may leave: what was synced last, and all that was written since,
    the newest state last."""

    def __init__(self, harness: VirtualHarness, rng: random.Random) -> None:
        self.harness = harness
        self.harness.workers.at_once = chance(rng, 0.5)
        self.rng = rng
        self.term = 1
        self.possible = [Model()]
        self.engine = harness.open()
        self.engine.create(LOG, ZERO)

    def run(self) -> None:
        """Live, crash, and judge, again and again."""
        steps = (
            [self.append] * 10 + [self.replace] * 3 + [self.cool, self.cool, self.reopen]
            + [self.sync, self.look, self.fill_disk] + [self.collect] * 2
        )  # fmt: skip
        for _ in range(LIVES):
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
            self.judge()

    @property
    def newest(self) -> Model:
        """What the log holds while it lives."""
        return self.possible[-1]

    def judge(self) -> None:
        """Assert that a crash left something possible, and go on from there."""
        found = intact(self.engine)
        assert any(_agree(found, model) for model in self.possible), (
            f"found {found.base} to {found.last}, possible {[(model.base, model.last) for model in self.possible]}"
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
        """Replace a suffix, now and then by nothing."""
        self.term += 1
        base, last = self.newest.base.index, self.newest.last.index
        first = base + 1 + below(self.rng, last - base + 1)
        count = 0 if chance(self.rng, 0.1) else 1 + below(self.rng, 7)
        given = entries(first, count, self.term, self._size())
        self._commit(Append(entries=given, replace_from=first))

    def sync(self) -> None:
        """Make durable what was committed without sync."""
        assert self.engine.commit({}, sync=True) == {}
        self.possible = [self.newest]

    def cool(self) -> None:
        """Cool the log; what was not synced is, then."""
        self.engine.cool(LOG)
        self.possible = [self.newest]

    def reopen(self) -> None:
        """Close and open."""
        self.engine.close()
        self.possible = [self.newest]
        self.engine = self.harness.open()

    def collect(self) -> None:
        """Collect something, once all of it is durable."""
        if len(self.possible) > 1:
            self.sync()
        self.engine.collect(LOG, below(self.rng, self.newest.last.index + 1))
        self.look()

    def look(self) -> None:
        """Read all back."""
        check_holds(self.engine, self.newest)
        base = self.engine.logs()[LOG].base
        kept = [one for one in self.newest.held if one.op_id.index > base.index]
        self.possible[-1] = Model(base, kept)

    def fill_disk(self) -> None:
        """Append until the disk is full, make room, and repair."""
        if len(self.possible) > 1:
            self.sync()
        limit_room(self.harness, below(self.rng, 6000))
        outcome = self._append_until_failure(self.engine)
        limit_room(self.harness, None)
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
