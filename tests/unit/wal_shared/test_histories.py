"""Random lives of many logs in one file: what the conformance suite does with one log, with six that
share groups, segments, moves, crashes and failures. A failing history is repeated by its seed."""

from __future__ import annotations

import dataclasses
import random

import pytest

from stelae.sim.disk import PowerLost, Survival
from stelae.sim.draw import below, chance, pick
from stelae.spi.errors import Full
from stelae.spi.ids import ZERO, LogId
from stelae.spi.wal import Append, Durable
from stelae.testing.conformance.wal_failures import limit_space
from stelae.testing.wal_harness import VirtualHarness
from stelae.testing.wal_model import Model, entries, intact
from tests.at_length import times
from tests.unit.wal_shared.scenes import SMALL, harness_of, log_number

HISTORIES = times(60)
LIVES = 5
STEPS = 40
OPERATIONS_MAX = 120
LOGS = 6

FATES = (Survival.KEPT, Survival.LOST, Survival.DRAWN, Survival.DRAWN)
MOVING = dataclasses.replace(SMALL, live_percent_max=90, move_percent_max=1000, move_bytes_max=4096)


@pytest.mark.fuzzer
def test_random_histories_of_many_logs_lose_nothing_and_bring_nothing_back() -> None:
    for seed in range(HISTORIES):
        history = History(harness_of(pick(random.Random(seed), (SMALL, MOVING))), random.Random(seed))
        try:
            history.run()
        except AssertionError as error:
            raise AssertionError(f"history of seed {seed}: {error}") from error


class History:
    """``possible`` has, for each log, what a crash may leave of it, the newest state last; a log that is
    in ``doubtful`` may also be absent, and one in ``leaving`` may still be there."""

    def __init__(self, harness: VirtualHarness, rng: random.Random) -> None:
        self.harness = harness
        self.harness.workers.at_once = chance(rng, 0.5)
        self.rng = rng
        self.term = 1
        self.possible: dict[LogId, list[Model]] = {}
        self.doubtful: set[LogId] = set()
        self.leaving: dict[LogId, list[Model]] = {}
        self.engine = harness.open()

    def run(self) -> None:
        """Live, crash, and judge, again and again."""
        steps = [self.commit] * 12 + [self.collect] * 3 + [self.create] * 2 + [self.drop, self.cool, self.reopen]
        steps += [self.look, self.fill_disk]
        for _ in range(LIVES):
            self.harness.disk.faults.lose_power_after(operations=below(self.rng, OPERATIONS_MAX))
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

    def judge(self) -> None:
        """Assert that a crash left something possible of every log, and go on from there."""
        found = self.engine.logs()
        for log in set(found) - set(self.possible):
            self.possible[log] = self.leaving[log]
        for log, possible in list(self.possible.items()):
            if log not in found:
                assert log in self.doubtful, f"log {log} is gone"
                del self.possible[log]
                continue
            model = intact(self.engine, log)
            assert any(_agree(model, one) for one in possible), (
                f"{log}: found {model.base} to {model.last}, possible {[(one.base, one.last) for one in possible]}"
            )
            self.possible[log] = [model]
            self.term = max(self.term, model.last.term)
        self.doubtful.clear()
        self.leaving.clear()

    def settled(self) -> None:
        """Take note that everything is durable."""
        self.possible = {log: [possible[-1]] for log, possible in self.possible.items()}

    # -- steps -----------------------------------------------------------------------------------

    def commit(self) -> None:
        """Append to some logs, or replace a suffix of them."""
        logs = [log for log in self.possible if chance(self.rng, 0.4)]
        group = {log: self._append(self.possible[log][-1]) for log in logs}
        synced = chance(self.rng, 0.7)
        before = {log: self.possible[log] for log in logs}
        for log in logs:
            self.possible[log] = before[log] + before[log][-1].possible_after(group[log])
        outcomes = self.engine.commit(group, sync=synced)
        assert all(isinstance(outcome, Durable) for outcome in outcomes.values()), outcomes
        for log in logs:
            self.possible[log] = [*self.possible[log], before[log][-1].append(group[log])]
        if synced:
            self.settled()

    def collect(self) -> None:
        """Collect a log, which makes everything durable."""
        if not self.possible:
            return
        log = pick(self.rng, tuple(self.possible))
        self.engine.commit({}, sync=True)
        self.settled()
        self.engine.collect(log, below(self.rng, self.possible[log][-1].last.index + 1))
        self.look()

    def create(self) -> None:
        """Create a log that is not there."""
        free = [log for log in map(log_number, range(LOGS)) if log not in self.possible]
        if not free:
            return
        log = pick(self.rng, tuple(free))
        self.possible[log] = [Model()]
        self.doubtful.add(log)
        self.engine.create(log, ZERO)
        self.doubtful.discard(log)
        self.leaving.pop(log, None)

    def drop(self) -> None:
        """Drop a log."""
        if not self.possible:
            return
        log = pick(self.rng, tuple(self.possible))
        self.leaving[log] = self.possible.pop(log)
        self.engine.drop(log)
        del self.leaving[log]

    def cool(self) -> None:
        """Cool every log: what was not synced is, then."""
        for log in self.possible:
            self.engine.cool(log)
        self.settled()

    def reopen(self) -> None:
        """Close and open."""
        self.engine.close()
        self.settled()
        self.engine = self.harness.open()

    def look(self) -> None:
        """Read every log back."""
        assert set(self.engine.logs()) == set(self.possible)
        for log, possible in self.possible.items():
            model = intact(self.engine, log)
            assert _agree(model, possible[-1]), f"{log}: found {model.last}, expected {possible[-1].last}"
            self.possible[log] = [*possible[:-1], model]

    def fill_disk(self) -> None:
        """Append until the disk is full; make room, and repair."""
        self.engine.commit({}, sync=True)
        self.settled()
        limit_space(self.harness, below(self.rng, 6000))
        for _ in range(10):
            group = {log: self._append(possible[-1]) for log, possible in self.possible.items()}
            before = {log: possible[-1] for log, possible in self.possible.items()}
            for log, given in group.items():
                self.possible[log] = [*before[log].possible_after(given), before[log]]
            outcomes = self.engine.commit(group, sync=True)
            full = any(not isinstance(outcome, Durable) for outcome in outcomes.values())
            if full:
                assert all(not isinstance(o, Durable) and isinstance(o.error, Full) for o in outcomes.values())
                break
            for log, given in group.items():
                self.possible[log] = [before[log].append(given)]
        limit_space(self.harness, None)
        for log, possible in self.possible.items():
            assert self.engine.repair(log) == possible[-1].last

    def _append(self, model: Model) -> Append:
        last, base = model.last, model.base
        if chance(self.rng, 0.25):
            self.term += 1
            first = base.index + 1 + below(self.rng, last.index - base.index + 1)
            count = 0 if chance(self.rng, 0.2) else 1 + below(self.rng, 4)
            return Append(entries=entries(first, count, self.term, self._size()), replace_from=first)
        given = entries(last.index + 1, 1 + below(self.rng, 4), max(1, last.term), self._size())
        return Append(entries=given, commit_hint=below(self.rng, last.index + 1))

    def _size(self) -> int:
        return pick(self.rng, (0, 10, 100, 500))


def _agree(found: Model, model: Model) -> bool:
    """Say whether two models are the same above both their bases."""
    low = max(found.base.index, model.base.index)
    above = [[e for e in one.held if e.op_id.index > low] for one in (found, model)]
    return found.last == model.last and above[0] == above[1]
