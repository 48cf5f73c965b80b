"""Scenarios of a log engine that loses power: steps, what a crash may leave of each, and a run that records them.

The same steps run on the virtual disk (``wal_crashes``) and in recorded child processes (``recorder``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from stelae.spi.ids import ZERO, LogId, OpId
from stelae.spi.wal import Append, Durable, WalEngine
from stelae.testing.wal_harness import Survival, VirtualDisk, VirtualHarness, WalHarness
from stelae.testing.wal_model import LOG, OTHER, READ_BYTES, Model, check_holds, commit, entries, intact

#: The fate of unsynced changes in the crashes of a scenario, one crash each.
FATES = (Survival.KEPT, Survival.LOST, Survival.DRAWN, Survival.DRAWN, Survival.DRAWN)


@dataclass(slots=True)
class CrashRun:
    """What a scenario has done so far, to check what a crash in its next step leaves.

    Attributes:
        possible: for each log, the models that it may have after a crash. The last one has everything that was
            written. There is only one while no step is under way and everything is synced.
        optional: logs that may not exist.
        collected_upto: the highest index that may be collected.
    """

    possible: dict[LogId, list[Model]] = field(default_factory=dict)
    optional: set[LogId] = field(default_factory=set)
    collected_upto: int = 0

    def copy(self) -> CrashRun:
        """Return an independent copy. It shares the models, which never change."""
        return CrashRun(dict(self.possible), set(self.optional), self.collected_upto)

    def settled(self, log: LogId) -> Model:
        """Return the only possible model of a log."""
        (model,) = self.possible[log]
        return model


CrashStep: TypeAlias = Callable[[WalEngine, CrashRun], None]


def create(log: LogId, base: OpId) -> CrashStep:
    """Return a step that creates a log; a crash may leave it or not."""

    def step(engine: WalEngine, run: CrashRun) -> None:
        run.possible[log] = [Model(base)]
        run.optional.add(log)
        engine.create(log, base)
        run.optional.discard(log)

    return step


def append(**appends: Append) -> CrashStep:
    """Return a step that commits one group with sync; ``a`` and ``b`` are the two logs of the scenarios."""
    group = {{"a": LOG, "b": OTHER}[name]: given for name, given in appends.items()}

    def step(engine: WalEngine, run: CrashRun) -> None:
        before = {log: run.settled(log) for log in group}
        for log, given in group.items():
            run.possible[log] = before[log].possible_after(given)
        outcomes = engine.commit(group, sync=True)
        for log, given in group.items():
            assert isinstance(outcomes[log], Durable), outcomes
            run.possible[log] = [before[log].append(given)]

    return step


def unsynced(given: Append, *, kept: bool = False) -> CrashStep:
    """Return a step that commits to the first log without sync.

    Args:
        given: the append.
        kept: no crash may lose it after the step; otherwise a crash may lose it until a sync.
    """

    def step(engine: WalEngine, run: CrashRun) -> None:
        newest = run.possible[LOG][-1]
        run.possible[LOG] = run.possible[LOG] + newest.possible_after(given)
        assert isinstance(engine.commit({LOG: given}, sync=False)[LOG], Durable)
        if kept:
            run.possible[LOG] = [newest.append(given)]

    return step


def append_after_unsynced(expected: Model) -> CrashStep:
    """Return a step that commits with sync, which makes earlier commits without sync durable, too."""

    def step(engine: WalEngine, run: CrashRun) -> None:
        given = Append(entries=entries(expected.last.index + 1, 1, term=4))
        run.possible[LOG] = run.possible[LOG] + expected.possible_after(given)
        assert isinstance(engine.commit({LOG: given}, sync=True)[LOG], Durable)
        assert engine.read(LOG, 1, 2, READ_BYTES)
        run.possible[LOG] = [expected.append(given)]

    return step


def sync(expected: Callable[[], Model]) -> CrashStep:
    """Return a step that makes every commit without sync durable."""

    def step(engine: WalEngine, run: CrashRun) -> None:
        assert engine.commit({}, sync=True) == {}
        run.possible[LOG] = [expected()]

    return step


def collect(upto: int) -> CrashStep:
    """Return a step that collects the first log."""

    def step(engine: WalEngine, run: CrashRun) -> None:
        run.collected_upto = upto
        engine.collect(LOG, upto)

    return step


def cool(engine: WalEngine, run: CrashRun) -> None:
    """Cool the first log."""
    engine.cool(LOG)


def close(engine: WalEngine, run: CrashRun) -> None:
    """Close the engine cleanly, which syncs everything. No step follows."""
    engine.close()
    run.possible[LOG] = run.possible[LOG][-1:]


def drop_other(engine: WalEngine, run: CrashRun) -> None:
    """Drop the second log; a crash may leave it complete, damaged or gone."""
    run.possible.pop(OTHER, None)
    engine.drop(OTHER)


def every_operation() -> list[CrashStep]:
    """Return steps with every operation of an engine, in an order that is likely to show bugs."""
    return [
        create(LOG, ZERO),
        append(a=Append(entries=entries(1, 3), commit_hint=1)),
        create(OTHER, OpId(3, 9)),
        append(
            a=Append(entries=entries(4, 6, size_bytes=300), commit_hint=3), b=Append(entries=entries(10, 2, term=4))
        ),
        append(a=Append(entries=entries(10, 40, term=2, size_bytes=100), commit_hint=9)),
        append(a=Append(entries=entries(30, 3, term=3), replace_from=30)),
        append(a=Append(entries=entries(33, 30, term=3, size_bytes=150), commit_hint=32)),
        cool,
        append(b=Append(entries=entries(12, 5, term=5, size_bytes=700))),
        append(a=Append(entries=entries(63, 20, term=3, size_bytes=200), commit_hint=60)),
        collect(45),
        append(a=Append(entries=(), replace_from=80)),
        append(a=Append(entries=entries(80, 2, term=6), commit_hint=79)),
        drop_other,
        collect(81),
        append(a=Append(entries=entries(82, 1, term=6), commit_hint=81)),
        create(OTHER, ZERO),
        append(b=Append(entries=entries(1, 2, term=9))),
    ]


def reused_name() -> list[CrashStep]:
    """Return steps in which a name is used by one log after the other, each shorter than the one before."""
    steps: list[CrashStep] = [create(LOG, ZERO), append(a=Append(entries=entries(1, 2)))]
    for term in range(1, 4):
        given = Append(entries=entries(1, 20 - 5 * term, term=term, size_bytes=400))
        steps += [create(OTHER, ZERO), append(b=given), *([drop_other] if term < 3 else [])]
    return steps


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment of a scenario at which power may be lost: the disk, and what the scenario has done by then."""

    disk: VirtualDisk
    run: CrashRun

    def crashed(self, harness: VirtualHarness, seed: int, survival: Survival) -> tuple[VirtualHarness, CrashRun]:
        """Lose power at this moment; return a harness like ``harness`` on the disk after it, and a copy of the run."""
        twin = harness.on(self.disk.clone(), seed)
        twin.crash(survival=survival)
        return twin, self.run.copy()


def moments(harness: VirtualHarness, steps: list[CrashStep]) -> list[Moment]:
    """Run a scenario once; return the moments before each disk operation, the opening included, and the last one.

    An engine depends only on its disk and its calls, so one run gives the same states as one run for each number of
    operations."""
    twin, run = harness.fork(), CrashRun()
    found: list[Moment] = []

    def see(_operation: str, _path: str) -> None:
        found.append(Moment(twin.disk.clone(), run.copy()))

    twin.disk.faults.hook = see
    engine = twin.open()
    for step in steps:
        step(engine, run)
    return [*found, Moment(twin.disk.clone(), run.copy())]


def check_after_crash(harness: WalHarness, run: CrashRun) -> None:
    """Open the engine after a crash, check its logs, append, and check that this survives another crash."""
    engine = harness.open()
    found = engine.logs()
    for log, possible in run.possible.items():
        if log not in found:
            assert log in run.optional, f"log {log} is gone"
            continue
        model = intact(engine, log)
        assert model.base.index <= max(run.collected_upto, possible[0].base.index)
        assert any(_same(model, candidate) for candidate in possible), (
            f"{log} holds {[e.op_id for e in model.held]} after the base {model.base}; "
            f"possible: {[candidate.last for candidate in possible]}"
        )
        more = Append(entries=entries(model.last.index + 1, 2, term=77))
        commit(engine, more, log)
        run.possible[log] = [model.append(more)]
    harness.crash(engine)
    engine = harness.open()
    for log in run.possible:
        if log in engine.logs():
            check_holds(engine, run.settled(log), log)
    engine.close()


def _same(found: Model, expected: Model) -> bool:
    """Say whether a log equals a model, apart from entries that were collected."""
    if found.base.index < expected.base.index or found.last != expected.last:
        return False
    return found.held == [e for e in expected.held if e.op_id.index > found.base.index]


def check_every_crash(harness: VirtualHarness, steps: list[CrashStep]) -> int:
    """Lose power at every moment of a scenario, with each of ``FATES``; return the number of its disk operations."""
    found = moments(harness, steps)
    for moment in found:
        for seed, survival in enumerate(FATES):
            check_after_crash(*moment.crashed(harness, seed, survival))
    return len(found) - 1
