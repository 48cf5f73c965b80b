"""A commit in two parts, for writes that no thread waits for (``WalEngine.begin``; durability rules 1, 3 and 7).

Every check goes through all states of the open file, from an empty log to one that has rolled, and is content where an
engine leaves a group to ``commit``; not with one that says it can begin and never does. The rest of the suite holds for
begun commits too: run it once more with ``stelae.testing.begun.by_begun(MyWal)``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stelae.spi.errors import Corrupt, Full, StelaeError, StorageError, SyncFailed
from stelae.spi.ids import ZERO, LogId
from stelae.spi.wal import Append, Begun, Durable, Failed, WalEngine
from stelae.testing.begun import begins
from stelae.testing.wal_harness import Survival, VirtualHarness, WalHarness
from stelae.testing.wal_model import LOG, OTHER, Model, check_holds, commit, entries, entry, intact

GROUPS = 24
TERM = 3

WRITTEN = (0, 50, 1 << 20)
"""How much of a write arrives before it fails."""


def _next(model: Model) -> Append:
    """A group that fits behind a model."""
    return Append(entries=entries(model.last.index + 1, 4, TERM, size_bytes=90))


class Scene:
    """Two logs that hold the same, and a group for both that has begun."""

    def __init__(self, harness: VirtualHarness, engine: WalEngine, model: Model, begun: Begun) -> None:
        self.harness = harness
        self.engine = engine
        self.model = model
        self.after = model.append(_next(model))
        self.begun = begun

    def check(self, model: Model) -> None:
        """Both logs hold exactly this."""
        for log in (LOG, OTHER):
            check_holds(self.engine, model, log)

    def commit_next(self) -> Model:
        """Both take the next group, and hold it after a crash."""
        for log in (LOG, OTHER):
            commit(self.engine, _next(self.model), log)
        self.harness.crash(self.engine)
        self.engine = self.harness.open()
        self.check(self.after)
        self.engine.close()
        return self.after


def scenes(harness: WalHarness) -> Iterator[Scene]:
    """A scene for each number of groups before it, on a disk of its own, where the engine begins one."""
    assert isinstance(harness, VirtualHarness)
    count = 0
    for groups in range(GROUPS):
        twin = harness.fork(groups)
        engine = twin.open()
        for log in (LOG, OTHER):
            engine.create(log, ZERO)
        model = Model()
        for _ in range(groups):
            for log in (LOG, OTHER):
                commit(engine, _next(model), log)
            model = model.append(_next(model))
        begun = engine.begin(dict.fromkeys((LOG, OTHER), _next(model)))
        if begun is not None:
            count += 1
            yield Scene(twin, engine, model, begun)
    if begins(harness.engine_type):
        assert count > GROUPS // 4, f"{count} of {GROUPS} commits were begun"
    else:
        assert not count


def fail(scene: Scene, error: StorageError, written: int) -> None:
    """The first ``written`` bytes of each write arrive, and all of them fail."""
    for write in scene.begun.writes:
        if data := b"".join(write.buffers)[:written]:
            write.file.pwritev([data], write.offset)
    scene.begun.meanwhile()
    outcomes = scene.begun.finish([error] * len(scene.begun.writes))
    for log in (LOG, OTHER):
        outcome = outcomes[log]
        assert isinstance(outcome, Failed)
        assert outcome.durable == scene.model.last
        assert isinstance(outcome.error, type(error))


class WalBegun:
    """Checks of ``begin`` and ``finish``; the fixture ``harness`` is a :class:`VirtualHarness`."""

    def test_what_has_begun_is_not_seen_before_it_is_finished(self, harness: WalHarness) -> None:
        for scene in scenes(harness):
            scene.check(scene.model)
            assert [write.failure() for write in scene.begun.writes] == [None] * len(scene.begun.writes)
            scene.begun.meanwhile()
            scene.check(scene.model)
            outcomes = scene.begun.finish([None] * len(scene.begun.writes))
            assert outcomes == dict.fromkeys((LOG, OTHER), Durable(scene.after.last))
            scene.check(scene.after)
            scene.engine.close()

    def test_what_has_begun_may_be_left_to_commit(self, harness: WalHarness) -> None:
        for scene in scenes(harness):
            scene.check(scene.model)
            scene.commit_next()

    def test_a_crash_between_the_parts_leaves_a_prefix(self, harness: WalHarness) -> None:
        for scene in scenes(harness):
            for stage in range(len(scene.begun.writes) + 2):
                if stage:
                    self._go_on(scene.begun, stage - 1)
                for survival in Survival:
                    self._lose_power(scene, stage, survival)
            scene.engine.close()

    def _lose_power(self, scene: Scene, stage: int, survival: Survival) -> None:
        """Before anything is written, after some writes, or when it is finished: judge what that leaves."""
        twin = scene.harness.fork(stage)
        twin.crash(None, survival)
        engine = twin.open()
        possible = scene.model.possible_after(_next(scene.model))
        if not stage:
            possible = [scene.model]
        elif stage > len(scene.begun.writes):
            possible = [scene.after]
        for log in (LOG, OTHER):
            assert intact(engine, log).held in [one.held for one in possible]
        engine.close()

    def _go_on(self, begun: Begun, step: int) -> None:
        """Make the next of its writes, or finish when there is none."""
        if step < len(begun.writes):
            assert begun.writes[step].failure() is None
        else:
            begun.finish([None] * len(begun.writes))

    def test_a_write_without_space_fails_its_logs_until_repair(self, harness: WalHarness) -> None:
        for number, scene in enumerate(scenes(harness)):
            fail(scene, Full("no space", path="/node/wals"), WRITTEN[number % len(WRITTEN)])
            scene.check(scene.model)
            refused = scene.engine.commit(dict.fromkeys((LOG, OTHER), _next(scene.model)), sync=True)
            assert all(isinstance(outcome, Failed) for outcome in refused.values())
            for log in (LOG, OTHER):
                assert scene.engine.begin({log: _next(scene.model)}) is None
                assert scene.engine.repair(log) == scene.model.last
            scene.commit_next()

    def test_a_write_that_fails_fails_its_logs_for_good(self, harness: WalHarness) -> None:
        for number, scene in enumerate(scenes(harness)):
            fail(scene, SyncFailed("the write failed", path="/node/wals"), WRITTEN[number % len(WRITTEN)])
            scene.check(scene.model)
            for log in (LOG, OTHER):
                assert scene.engine.begin({log: _next(scene.model)}) is None
                with pytest.raises(StelaeError):
                    scene.engine.repair(log)
            scene.harness.crash(scene.engine)

    def test_one_write_that_fails_fails_no_log_of_another(self, harness: WalHarness) -> None:
        for number, scene in enumerate(scenes(harness)):
            writes, error = scene.begun.writes, SyncFailed("the write failed", path="/node/wals")
            bad = number % len(writes)
            failures = [error if at == bad else write.failure() for at, write in enumerate(writes)]
            scene.begun.meanwhile()
            outcomes = scene.begun.finish(failures)
            failed = [log for log, outcome in outcomes.items() if isinstance(outcome, Failed)]
            assert len(failed) == (1 if len(writes) > 1 else 2)
            for log in (LOG, OTHER):
                if log not in failed:
                    assert outcomes[log] == Durable(scene.after.last)
                check_holds(scene.engine, scene.model if log in failed else scene.after, log)
            scene.harness.crash(scene.engine)

    def test_what_is_refused_is_not_begun_and_changes_nothing(self, harness: WalHarness) -> None:
        for scene in scenes(harness):
            first = scene.model.last.index + 1
            unfit = [
                Append(entries=()),
                Append(entries=entries(first + 1, 1, TERM)),
                Append(entries=entries(first, 1, TERM - 1)) if first > 1 else Append(entries=(entry(first + 2, TERM),)),
                Append(entries=entries(first, 1, TERM), replace_from=first + 1),
            ]
            for append in unfit:
                assert scene.engine.begin({LOG: append}) is None
                assert scene.engine.begin({LOG: append, OTHER: _next(scene.model)}) is None
            assert scene.engine.begin({LogId(LOG.tablet_id, 99): _next(Model())}) is None
            assert scene.engine.begin({}) is None
            scene.check(scene.model)
            scene.commit_next()

    def test_damage_that_a_reader_meets_meanwhile_is_not_appended_to(self, harness: WalHarness) -> None:
        met = 0
        for scene in scenes(harness):
            if not self._damage_met(scene):
                continue
            met += 1
            good = scene.engine.logs()[LOG].last
            assert good < scene.model.last
            outcomes = scene.begun.perform()
            failed = outcomes[LOG]
            assert isinstance(failed, Failed) and failed.durable <= good
            assert scene.engine.logs()[LOG].last == good
            assert scene.engine.begin({LOG: _next(scene.model)}) is None
            scene.harness.crash(scene.engine)
        assert met or not begins(harness.engine_type)

    def _damage_met(self, scene: Scene) -> bool:
        """Change a byte of an early entry of the first log, and have a reader find it; false where none does."""
        if not scene.model.held:
            return False
        wanted = scene.model.held[0].body
        for path, data in scene.harness.tree().items():
            at = data.find(wanted)
            if at >= 0 and (LOG.tablet_id in path or OTHER.tablet_id not in path):
                scene.harness.disk.open(path, writable=True).pwritev([b"?"], at + 1)
                try:
                    scene.engine.read(LOG, scene.model.base.index + 1, scene.model.last.index + 1, 1 << 30)
                except Corrupt:
                    return True
                return False
        return False

    def test_a_begun_commit_that_is_performed_is_durable(self, harness: WalHarness) -> None:
        for scene in scenes(harness):
            assert scene.begun.perform() == dict.fromkeys((LOG, OTHER), Durable(scene.after.last))
            scene.harness.crash(scene.engine, Survival.LOST)
            scene.engine = scene.harness.open()
            scene.check(scene.after)
            scene.engine.close()
