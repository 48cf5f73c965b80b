"""Conformance checks for begun commits: a commit in two parts (``WalEngine.begin``; durability rules 1, 3 and 7).

Every check runs with logs of different lengths, from empty to rolled. An engine may leave a group to ``commit``, but
must begin some if it has a ``begin``. The rest of the suite holds for begun commits, too: run it once more with
``stelae.testing.begun_commits.with_begun_commits(MyWal)``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stelae.spi.errors import Corrupt, Full, StelaeError, StorageError, SyncFailed
from stelae.spi.ids import ZERO, LogId
from stelae.spi.wal import Append, Begun, Durable, Failed, WalEngine
from stelae.testing.begun_commits import begins_commits
from stelae.testing.wal_harness import Survival, VirtualHarness, WalHarness
from stelae.testing.wal_model import LOG, OTHER, Model, check_holds, commit, entries, entry, intact

GROUPS = 24
TERM = 3

WRITTEN = (0, 50, 1 << 20)
"""How many bytes of a write are written before it fails."""


def _next(model: Model) -> Append:
    """Return a group that fits after a model."""
    return Append(entries=entries(model.last.index + 1, 4, TERM, size_bytes=90))


class BegunGroup:
    """A begun commit of one group for two logs that hold the same entries.

    Attributes:
        model: what both logs hold before the group.
        after: what they hold after it.
    """

    def __init__(self, harness: VirtualHarness, engine: WalEngine, model: Model, begun: Begun) -> None:
        self.harness = harness
        self.engine = engine
        self.model = model
        self.after = model.append(_next(model))
        self.begun = begun

    def check(self, model: Model) -> None:
        """Check that both logs hold exactly a model."""
        for log in (LOG, OTHER):
            check_holds(self.engine, model, log)

    def commit_next(self) -> Model:
        """Commit the group to both logs, crash, and check that they hold it. Return the model after it."""
        for log in (LOG, OTHER):
            commit(self.engine, _next(self.model), log)
        self.harness.crash(self.engine)
        self.engine = self.harness.open()
        self.check(self.after)
        self.engine.close()
        return self.after


def begun_groups(harness: WalHarness) -> Iterator[BegunGroup]:
    """Yield begun groups after 0, 1, 2... earlier groups, each on a disk of its own, where the engine begins one."""
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
            yield BegunGroup(twin, engine, model, begun)
    if begins_commits(harness.engine_type):
        assert count > GROUPS // 4, f"{count} of {GROUPS} commits were begun"
    else:
        assert not count


def fail(group: BegunGroup, error: StorageError, written: int) -> None:
    """Write the first ``written`` bytes of each write, and finish with an error for all of them."""
    for write in group.begun.writes:
        if data := b"".join(write.buffers)[:written]:
            write.file.pwritev([data], write.offset)
    group.begun.meanwhile()
    outcomes = group.begun.finish([error] * len(group.begun.writes))
    for log in (LOG, OTHER):
        outcome = outcomes[log]
        assert isinstance(outcome, Failed)
        assert outcome.durable == group.model.last
        assert isinstance(outcome.error, type(error))


class WalBegun:
    """Checks of ``begin`` and ``finish``; the fixture ``harness`` is a :class:`VirtualHarness`."""

    def test_a_begun_commit_is_not_visible_before_it_is_finished(self, harness: WalHarness) -> None:
        for group in begun_groups(harness):
            group.check(group.model)
            assert [write.failure() for write in group.begun.writes] == [None] * len(group.begun.writes)
            group.begun.meanwhile()
            group.check(group.model)
            outcomes = group.begun.finish([None] * len(group.begun.writes))
            assert outcomes == dict.fromkeys((LOG, OTHER), Durable(group.after.last))
            group.check(group.after)
            group.engine.close()

    def test_a_group_that_was_begun_may_be_committed_instead(self, harness: WalHarness) -> None:
        for group in begun_groups(harness):
            group.check(group.model)
            group.commit_next()

    def test_a_crash_during_a_begun_commit_leaves_a_prefix_of_the_group(self, harness: WalHarness) -> None:
        for group in begun_groups(harness):
            for stage in range(len(group.begun.writes) + 2):
                if stage:
                    self._go_on(group.begun, stage - 1)
                for survival in Survival:
                    self._lose_power(group, stage, survival)
            group.engine.close()

    def _lose_power(self, group: BegunGroup, stage: int, survival: Survival) -> None:
        """Lose power before anything is written, after some writes, or after the finish, and check both logs."""
        twin = group.harness.fork(stage)
        twin.crash(None, survival)
        engine = twin.open()
        possible = group.model.possible_after(_next(group.model))
        if not stage:
            possible = [group.model]
        elif stage > len(group.begun.writes):
            possible = [group.after]
        for log in (LOG, OTHER):
            assert intact(engine, log).held in [one.held for one in possible]
        engine.close()

    def _go_on(self, begun: Begun, step: int) -> None:
        """Perform the next write, or finish after the last one."""
        if step < len(begun.writes):
            assert begun.writes[step].failure() is None
        else:
            begun.finish([None] * len(begun.writes))

    def test_a_write_without_space_fails_its_logs_until_repair(self, harness: WalHarness) -> None:
        for number, group in enumerate(begun_groups(harness)):
            fail(group, Full("no space", path="/node/wals"), WRITTEN[number % len(WRITTEN)])
            group.check(group.model)
            refused = group.engine.commit(dict.fromkeys((LOG, OTHER), _next(group.model)), sync=True)
            assert all(isinstance(outcome, Failed) for outcome in refused.values())
            for log in (LOG, OTHER):
                assert group.engine.begin({log: _next(group.model)}) is None
                assert group.engine.repair(log) == group.model.last
            group.commit_next()

    def test_a_write_that_fails_fails_its_logs_for_good(self, harness: WalHarness) -> None:
        for number, group in enumerate(begun_groups(harness)):
            fail(group, SyncFailed("the write failed", path="/node/wals"), WRITTEN[number % len(WRITTEN)])
            group.check(group.model)
            for log in (LOG, OTHER):
                assert group.engine.begin({log: _next(group.model)}) is None
                with pytest.raises(StelaeError):
                    group.engine.repair(log)
            group.harness.crash(group.engine)

    def test_a_write_that_fails_fails_no_log_of_another_write(self, harness: WalHarness) -> None:
        for number, group in enumerate(begun_groups(harness)):
            writes, error = group.begun.writes, SyncFailed("the write failed", path="/node/wals")
            bad = number % len(writes)
            failures = [error if at == bad else write.failure() for at, write in enumerate(writes)]
            group.begun.meanwhile()
            outcomes = group.begun.finish(failures)
            failed = [log for log, outcome in outcomes.items() if isinstance(outcome, Failed)]
            assert len(failed) == (1 if len(writes) > 1 else 2)
            for log in (LOG, OTHER):
                if log not in failed:
                    assert outcomes[log] == Durable(group.after.last)
                check_holds(group.engine, group.model if log in failed else group.after, log)
            group.harness.crash(group.engine)

    def test_a_refused_group_is_not_begun_and_changes_nothing(self, harness: WalHarness) -> None:
        for group in begun_groups(harness):
            first = group.model.last.index + 1
            unfit = [
                Append(entries=()),
                Append(entries=entries(first + 1, 1, TERM)),
                Append(entries=entries(first, 1, TERM - 1)) if first > 1 else Append(entries=(entry(first + 2, TERM),)),
                Append(entries=entries(first, 1, TERM), replace_from=first + 1),
            ]
            for append in unfit:
                assert group.engine.begin({LOG: append}) is None
                assert group.engine.begin({LOG: append, OTHER: _next(group.model)}) is None
            assert group.engine.begin({LogId(LOG.tablet_id, 99): _next(Model())}) is None
            assert group.engine.begin({}) is None
            group.check(group.model)
            group.commit_next()

    def test_a_begun_commit_fails_if_a_reader_finds_damage_meanwhile(self, harness: WalHarness) -> None:
        found = 0
        for group in begun_groups(harness):
            if not self._damage_found(group):
                continue
            found += 1
            good = group.engine.logs()[LOG].last
            assert good < group.model.last
            outcomes = group.begun.perform()
            failed = outcomes[LOG]
            assert isinstance(failed, Failed) and failed.durable <= good
            assert group.engine.logs()[LOG].last == good
            assert group.engine.begin({LOG: _next(group.model)}) is None
            group.harness.crash(group.engine)
        assert found or not begins_commits(harness.engine_type)

    def _damage_found(self, group: BegunGroup) -> bool:
        """Change a byte of an early entry of the first log and read it; say whether the reader found the damage."""
        if not group.model.held:
            return False
        wanted = group.model.held[0].body
        for path, data in group.harness.tree().items():
            at = data.find(wanted)
            if at >= 0 and (LOG.tablet_id in path or OTHER.tablet_id not in path):
                group.harness.disk.open(path, writable=True).pwritev([b"?"], at + 1)
                try:
                    group.engine.read(LOG, group.model.base.index + 1, group.model.last.index + 1, 1 << 30)
                except Corrupt:
                    return True
                return False
        return False

    def test_a_begun_commit_that_is_performed_is_durable(self, harness: WalHarness) -> None:
        for group in begun_groups(harness):
            assert group.begun.perform() == dict.fromkeys((LOG, OTHER), Durable(group.after.last))
            group.harness.crash(group.engine, Survival.LOST)
            group.engine = group.harness.open()
            group.check(group.after)
            group.engine.close()
