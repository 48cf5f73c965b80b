"""A log engine loses power: what was acknowledged is there, and nothing comes back from the dead.

Needs the capability ``fake_files``: the engine runs on a virtual disk that loses power at every
operation and at every byte, and then forgets, tears and reorders what was not synced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from stelae.spi.errors import CallerError
from stelae.spi.ids import ZERO, LogId, OpId
from stelae.spi.wal import Append, Durable, Failed, WalEngine
from stelae.testing.conformance.wal_basics import WalBasics, always_synced, check_hints
from stelae.testing.conformance.wal_opening import check_starts
from stelae.testing.conformance.wal_partial_writes import disks_within_writes
from stelae.testing.wal_failing import READS, WRITES, cannot_read, no_space
from stelae.testing.wal_harness import PowerLost, Survival, VirtualDisk, VirtualHarness, WalHarness
from stelae.testing.wal_model import LOG, OTHER, READ_BYTES, Model, check_holds, commit, entries, entry, intact

FATES = (Survival.KEPT, Survival.LOST, Survival.DRAWN, Survival.DRAWN, Survival.DRAWN)


@dataclass(slots=True)
class CrashRun:
    """What a scenario has done so far, for judging what a crash in its next step left.

    Attributes:
        possible: the models that a log may have, the one of all that was written last; one model
            when nothing is under way.
        optional: logs that may not exist.
        collected_upto: the highest index that may be collected.
    """

    possible: dict[LogId, list[Model]] = field(default_factory=dict)
    optional: set[LogId] = field(default_factory=set)
    collected_upto: int = 0

    def copy(self) -> CrashRun:
        """A life that goes on by itself. Models are not changed once they are made."""
        return CrashRun(dict(self.possible), set(self.optional), self.collected_upto)

    def settled(self, log: LogId) -> Model:
        """The model of a log while nothing is under way."""
        (model,) = self.possible[log]
        return model


Step: TypeAlias = Callable[[WalEngine, CrashRun], None]


def create(log: LogId, base: OpId) -> Step:
    """Create a log; a crash may leave it or not."""

    def step(engine: WalEngine, life: CrashRun) -> None:
        life.possible[log] = [Model(base)]
        life.optional.add(log)
        engine.create(log, base)
        life.optional.discard(log)

    return step


def append(**appends: Append) -> Step:
    """Commit one group; ``a`` and ``b`` stand for the two logs of the scenarios."""
    group = {{"a": LOG, "b": OTHER}[name]: given for name, given in appends.items()}

    def step(engine: WalEngine, life: CrashRun) -> None:
        before = {log: life.settled(log) for log in group}
        for log, given in group.items():
            life.possible[log] = before[log].possible_after(given)
        outcomes = engine.commit(group, sync=True)
        for log, given in group.items():
            assert isinstance(outcomes[log], Durable), outcomes
            life.possible[log] = [before[log].append(given)]

    return step


def unsynced(given: Append, *, kept: bool = False) -> Step:
    """Commit to the first log without sync: from now on a crash may take it back, unless it has to be ``kept``."""

    def step(engine: WalEngine, life: CrashRun) -> None:
        newest = life.possible[LOG][-1]
        life.possible[LOG] = life.possible[LOG] + newest.possible_after(given)
        assert isinstance(engine.commit({LOG: given}, sync=False)[LOG], Durable)
        if kept:
            life.possible[LOG] = [newest.append(given)]

    return step


def sync(expected: Callable[[], Model]) -> Step:
    """Make everything durable that was committed without sync."""

    def step(engine: WalEngine, life: CrashRun) -> None:
        assert engine.commit({}, sync=True) == {}
        life.possible[LOG] = [expected()]

    return step


def collect(upto: int) -> Step:
    """Collect the first log."""

    def step(engine: WalEngine, life: CrashRun) -> None:
        life.collected_upto = upto
        engine.collect(LOG, upto)

    return step


def cool(engine: WalEngine, life: CrashRun) -> None:
    """Cool the first log."""
    engine.cool(LOG)


def close(engine: WalEngine, life: CrashRun) -> None:
    """Close the engine cleanly, which syncs all of it; nothing follows."""
    engine.close()
    life.possible[LOG] = life.possible[LOG][-1:]


def drop_other(engine: WalEngine, life: CrashRun) -> None:
    """Drop the second log; a crash may leave it whole, damaged or gone."""
    life.possible.pop(OTHER, None)
    engine.drop(OTHER)


def a_full_life() -> list[Step]:
    """Everything that an engine does, in an order in which it may go wrong."""
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


def a_name_used_again() -> list[Step]:
    """A name is used by one log after the other, each shorter than the one before."""
    steps: list[Step] = [create(LOG, ZERO), append(a=Append(entries=entries(1, 2)))]
    for life in range(1, 4):
        given = Append(entries=entries(1, 20 - 5 * life, term=life, size_bytes=400))
        steps += [create(OTHER, ZERO), append(b=given), *([drop_other] if life < 3 else [])]
    return steps


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment of a scenario at which power may be lost: the disk, and what the scenario had done by then."""

    disk: VirtualDisk
    life: CrashRun

    def crashed(self, harness: VirtualHarness, seed: int, survival: Survival) -> tuple[VirtualHarness, CrashRun]:
        """Lose power at this moment; return a harness like ``harness`` on what is left, and a copy of the life."""
        twin = harness.on(self.disk.clone(), seed)
        twin.crash(survival=survival)
        return twin, self.life.copy()


def moments(harness: VirtualHarness, steps: list[Step]) -> list[Moment]:
    """Run a scenario once; return the moments before each disk operation, the opening included, and the last one.

    An engine may not depend on anything but its disk and its calls, so this is what as many runs would leave that end
    after 0, 1, 2... operations."""
    twin, life = harness.fork(), CrashRun()
    found: list[Moment] = []

    def see(_operation: str, _path: str) -> None:
        found.append(Moment(twin.disk.clone(), life.copy()))

    twin.disk.faults.hook = see
    engine = twin.open()
    for step in steps:
        step(engine, life)
    return [*found, Moment(twin.disk.clone(), life.copy())]


def check_after_crash(harness: WalHarness, life: CrashRun) -> None:
    """Open what a crash left, judge it, append, and see that this is what stays."""
    engine = harness.open()
    found = engine.logs()
    for log, possible in life.possible.items():
        if log not in found:
            assert log in life.optional, f"log {log} is gone"
            continue
        model = intact(engine, log)
        assert model.base.index <= max(life.collected_upto, possible[0].base.index)
        assert any(_same(model, candidate) for candidate in possible), (
            f"{log} holds {[e.op_id for e in model.held]} behind {model.base}; "
            f"possible: {[candidate.last for candidate in possible]}"
        )
        more = Append(entries=entries(model.last.index + 1, 2, term=77))
        commit(engine, more, log)
        life.possible[log] = [model.append(more)]
    harness.crash(engine)
    engine = harness.open()
    for log in life.possible:
        if log in engine.logs():
            check_holds(engine, life.settled(log), log)
    engine.close()


def _same(found: Model, expected: Model) -> bool:
    """Say whether a log holds what it should, whatever of it was collected."""
    if found.base.index < expected.base.index or found.last != expected.last:
        return False
    return found.held == [e for e in expected.held if e.op_id.index > found.base.index]


def _forks(harness: VirtualHarness) -> Iterator[tuple[VirtualHarness, Survival]]:
    for seed, survival in enumerate(FATES):
        yield harness.fork(seed), survival


def _check_every_crash(harness: VirtualHarness, steps: list[Step]) -> int:
    """Lose power at every moment of a scenario, with each of ``FATES``; return how many disk operations it takes."""
    found = moments(harness, steps)
    for moment in found:
        for seed, survival in enumerate(FATES):
            check_after_crash(*moment.crashed(harness, seed, survival))
    return len(found) - 1


class WalCrashes(WalBasics):
    """Adds what needs a virtual disk: the fixture ``harness`` is a :class:`VirtualHarness`."""

    def test_a_crash_at_any_operation_keeps_what_was_acknowledged(self, harness: VirtualHarness) -> None:
        assert _check_every_crash(harness, a_full_life()) > 50

    def test_a_crash_while_recovering_loses_nothing_either(self, harness: VirtualHarness) -> None:
        for moment in moments(harness, a_full_life())[3:-1:5]:
            for seed, survival in enumerate(FATES):
                twin, life = moment.crashed(harness, seed, survival)
                _crash_recoveries(twin)
                check_after_crash(twin, life)

    def test_a_start_after_a_crash_that_cannot_read_is_an_error_and_no_damage(self, harness: VirtualHarness) -> None:
        check_starts(harness, lambda engine: harness.crash(engine, Survival.KEPT), READS, cannot_read)

    def test_a_start_after_a_crash_without_space_damages_nothing(self, harness: VirtualHarness) -> None:
        check_starts(harness, lambda engine: harness.crash(engine, Survival.KEPT), WRITES, no_space)

    def test_a_write_cut_at_any_byte_leaves_every_earlier_entry_and_a_clean_end(self, harness: VirtualHarness) -> None:
        engine = harness.open()
        engine.create(LOG, ZERO)
        commit(engine, Append(entries=entries(1, 3)))
        commit(engine, Append(entries=entries(4, 1, term=2, size_bytes=500)))
        before = Model(ZERO, [*entries(1, 3), entry(4, 2, 500)])
        engine.close()
        for group in ((entry(5, 2, 0),), (entry(5, 2, 700),), entries(5, 3, term=2, size_bytes=40)):
            self._cut_everywhere(harness, before, Append(entries=group))
        self._cut_everywhere(harness, before, Append(entries=entries(3, 2, term=3), replace_from=3))

    def _cut_everywhere(self, harness: VirtualHarness, before: Model, last: Append) -> None:
        twin = harness.fork()
        engine = twin.open()
        written_bytes = twin.disk.faults.written_bytes
        cuts = 0
        for disk in disks_within_writes(twin.disk, lambda: commit(engine, last)):
            cuts += 1
            cut = harness.on(disk, cuts)
            cut.crash(survival=Survival.KEPT)
            check_after_crash(cut, CrashRun({LOG: before.possible_after(last)}))
        assert twin.disk.faults.written_bytes - written_bytes > sum(len(e.body) for e in last.entries)
        assert cuts > len(last.entries)
        twin.crash(survival=Survival.KEPT)
        check_after_crash(twin, CrashRun({LOG: [before.append(last)]}))

    def test_a_group_torn_into_sectors_leaves_a_prefix_of_it(self, harness: VirtualHarness) -> None:
        engine = harness.open()
        engine.create(LOG, ZERO)
        commit(engine, Append(entries=entries(1, 5, size_bytes=333)))
        engine.close()
        before = Model(ZERO, list(entries(1, 5, size_bytes=333)))
        for first, replace_from in ((6, None), (3, 3)):
            group = entries(first, 6, term=2, size_bytes=450)
            last = Append(entries=group, replace_from=replace_from)
            seen = set()
            for seed in range(150):
                twin = harness.fork(seed)
                engine = twin.open()
                engine.commit({LOG: last}, sync=False)
                twin.crash()
                found = intact(engine := twin.open())
                seen.add(found.last)
                engine.close()
                check_after_crash(twin, CrashRun({LOG: before.possible_after(last)}))
            if always_synced(harness):
                assert seen == {group[-1].op_id}, "it declares that nothing is taken back"
            else:
                assert {before.last, group[-1].op_id} < seen

    def test_without_sync_a_crash_takes_back_a_suffix_and_sync_ends_that(self, harness: VirtualHarness) -> None:
        first, more = entries(1, 3), entries(4, 9, size_bytes=200)
        second, kept = entries(6, 2, term=2), always_synced(harness)
        steps = [
            create(LOG, ZERO),
            append(a=Append(entries=first)),
            *(unsynced(Append(entries=(one,)), kept=kept) for one in more),
            unsynced(Append(entries=second, replace_from=6), kept=kept),
            sync(lambda: Model(ZERO, [*first, *more[:2], *second])),
            unsynced(Append(entries=entries(8, 1, term=2)), kept=kept),
            append_after_unsynced(Model(ZERO, [*first, *more[:2], *second, entry(8, 2)])),
        ]
        _check_every_crash(harness, steps)

    def test_repair_of_a_log_that_only_refused_an_append_makes_earlier_commits_durable(
        self, harness: VirtualHarness
    ) -> None:
        engine = harness.open()
        engine.create(LOG, ZERO)
        model = Model().append(first := Append(entries=entries(1, 3)))
        assert engine.commit({LOG: first}, sync=False)[LOG] == Durable(model.last)
        refused = engine.commit({LOG: Append(entries=entries(9, 1))}, sync=True)[LOG]
        assert isinstance(refused, Failed) and isinstance(refused.error, CallerError)
        assert engine.repair(LOG) == model.last
        harness.crash(survival=Survival.LOST)
        check_holds(harness.open(), model)

    def test_closing_what_was_not_synced_can_be_interrupted_anywhere(self, harness: VirtualHarness) -> None:
        # A footer once survived a crash that the entries which it vouched for did not.
        steps = [
            create(LOG, ZERO),
            append(a=Append(entries=entries(1, 3))),
            unsynced(Append(entries=entries(4, 7, size_bytes=900)), kept=always_synced(harness)),
            cool,
            unsynced(Append(entries=entries(11, 2, size_bytes=900)), kept=always_synced(harness)),
            close,
        ]
        for moment in moments(harness, steps):
            for seed in range(20):
                check_after_crash(*moment.crashed(harness, seed, Survival.DRAWN))

    def test_what_was_replaced_never_comes_back(self, harness: VirtualHarness) -> None:
        for seed in range(40):
            twin = harness.fork(seed)
            engine = twin.open()
            engine.create(LOG, ZERO)
            model = Model()
            for term in range(1, 12):
                first = 1 + twin.rng.getrandbits(16) % (model.last.index + 1)
                count = 1 + twin.rng.getrandbits(16) % 25
                given = Append(entries=entries(first, count, term, 90), replace_from=first)
                commit(engine, given)
                model = model.append(given)
                if twin.rng.random() < 0.5:
                    twin.crash(engine)
                    engine = twin.open()
                check_holds(engine, model)
            engine.close()

    def test_a_log_created_again_under_a_dropped_name_is_empty(self, harness: VirtualHarness) -> None:
        for seed in range(30):
            twin = harness.fork(seed)
            engine = twin.open()
            for life in range(4):
                engine.create(LOG, ZERO)
                check_holds(engine, Model())
                commit(engine, Append(entries=entries(1, 5 + life, term=life + 1, size_bytes=400)))
                twin.crash(engine)
                engine = twin.open()
                check_holds(engine, Model(ZERO, list(entries(1, 5 + life, life + 1, 400))))
                engine.drop(LOG)
            twin.crash(engine)
            engine = twin.open()
            assert not engine.logs()
            engine.close()

    def test_a_name_used_again_shows_nothing_of_the_log_before(self, harness: VirtualHarness) -> None:
        _check_every_crash(harness, a_name_used_again())

    def test_setting_aside_can_be_repeated_after_a_crash_until_it_is_done(self, harness: VirtualHarness) -> None:
        engine = harness.open()
        engine.create(LOG, ZERO)
        commit(engine, Append(entries=entries(1, 120, size_bytes=100)))
        engine.close()
        operations, done = 0, False
        while not done:
            for twin, survival in _forks(harness):
                engine = twin.open()
                twin.disk.faults.lose_power_after(operations=operations)
                try:
                    engine.set_aside(LOG, "/node/quarantine/a.1")
                    done = True
                except PowerLost:
                    pass
                twin.crash(survival=survival)
                engine = twin.open()
                if done:
                    assert not engine.logs()
                if LOG in engine.logs():
                    engine.set_aside(LOG, "/node/quarantine/a.1")
                engine = _reopened_after_crash(twin, engine)
                assert not engine.logs()
                moved = twin.disk.listdir("/node/quarantine/a.1")
                assert sum(len(twin.disk.read_bytes(f"/node/quarantine/a.1/{n}")) for n in moved) > (12_000)
                engine.close()
            operations += 1
        assert operations > 3

    def test_the_commit_hint_of_what_was_acknowledged_outlives_the_process(self, harness: VirtualHarness) -> None:
        check_hints(harness)

    def test_the_commit_hint_is_never_above_what_was_passed(self, harness: VirtualHarness) -> None:
        for seed in range(40):
            twin = harness.fork(seed)
            engine = twin.open()
            engine.create(LOG, ZERO)
            for turn in range(1, 30):
                given = Append(entries=entries(turn, 1, size_bytes=300), commit_hint=turn // 2)
                commit(engine, given)
            twin.crash(engine)
            engine = twin.open()
            assert engine.logs()[LOG].commit_hint == 14
            engine.close()


def _crash_recoveries(harness: VirtualHarness) -> None:
    """Lose power in one recovery after the other, each time an operation later."""
    operations, recovered = 0, False
    while not recovered:
        harness.disk.faults.lose_power_after(operations=operations)
        try:
            harness.open()
            recovered = True
        except PowerLost:
            operations += 1
        harness.crash()


def append_after_unsynced(expected: Model) -> Step:
    """A synced commit makes durable what was committed before it without sync."""

    def step(engine: WalEngine, life: CrashRun) -> None:
        given = Append(entries=entries(expected.last.index + 1, 1, term=4))
        life.possible[LOG] = life.possible[LOG] + expected.possible_after(given)
        assert isinstance(engine.commit({LOG: given}, sync=True)[LOG], Durable)
        assert engine.read(LOG, 1, 2, READ_BYTES)
        life.possible[LOG] = [expected.append(given)]

    return step


def _reopened_after_crash(harness: VirtualHarness, engine: WalEngine) -> WalEngine:
    harness.crash(engine)
    return harness.open()
