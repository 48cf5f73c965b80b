"""The LMDB log engine holds to the log contract, on a real disk.

LMDB does its own input and output, so the checks of the suite that need a virtual disk do not apply. Power is lost
at what was recorded of it instead. What the suite leaves to such an engine is asked here: flipped bits, cut files,
full disks and failing syncs, and once more, without a recorder, subsets of the pages of a commit. Planted bugs
show that these checks bite (``test_wal_lmdb_bugs``)."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import lmdb
import pytest

from stelae.machine.files import RealFiles
from stelae.spi.errors import CallerError, Corrupt, Full, StorageError, SyncFailed
from stelae.spi.ids import ZERO, LogId, OpId, TabletId
from stelae.spi.wal import Append, Durable, Failed
from stelae.testing.conformance.wal import WalNative, WalScale
from stelae.testing.conformance.wal_crash_scenarios import CrashRun, check_after_crash, every_operation
from stelae.testing.conformance.wal_damage import check_damaged, check_set_aside
from stelae.testing.conformance.wal_set_aside import check_aside, quarantine_of
from stelae.testing.wal_model import LOG, OTHER, READ_BYTES, Model, check_holds, commit, entries, entry
from stelae_wal_lmdb import LmdbConfig, LmdbWal, format, removal
from stelae_wal_lmdb.environment import LogEnvironment
from tests.conformance.lmdb_disk import FailingCommit, LmdbHarness, changed_pages, checks_here

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
COMMITTED = "commit"
EIO = lmdb.Error("mdb_txn_commit", 5)


@contextmanager
def every_moment(look: Callable[[], None]) -> Iterator[list[str]]:
    """Look behind every change that a transaction makes, and behind its commit; yields what each was."""
    inner, moments = LogEnvironment.write, list[str]()

    def passed(moment: str) -> None:
        moments.append(moment)
        look()

    class Watched:
        def __init__(self, txn: Any) -> None:
            self._txn = txn

        def __getattr__(self, name: str) -> Any:
            call = getattr(self._txn, name)
            if name not in ("put", "delete"):
                return call

            def watched(*arguments: Any, **options: Any) -> Any:
                found = call(*arguments, **options)
                passed(name)
                return found

            return watched

    @contextmanager
    def write(env: LogEnvironment) -> Iterator[Any]:
        with inner(env) as txn:
            yield Watched(txn)
        passed(COMMITTED)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LogEnvironment, "write", write)
        yield moments


class LmdbChecks(WalNative):
    """The suite for engines with input and output of their own, and the questions that it leaves to them."""

    # -- crashes -----------------------------------------------------------------------------------

    def test_a_process_that_dies_after_any_step_leaves_what_was_acknowledged(self, harness: LmdbHarness) -> None:
        with checks_here():
            for count in range(1, len(every_operation()) + 1):
                twin = harness.fork()
                engine, life = twin.open(), CrashRun()
                for step in every_operation()[:count]:
                    step(engine, life)
                twin.crash(engine)
                check_after_crash(twin, life)  # type: ignore[arg-type]

    def test_whatever_pages_of_a_commit_reached_the_disk_it_happened_or_it_did_not(self, harness: LmdbHarness) -> None:
        engine = harness.open()
        for log in (LOG, OTHER):
            engine.create(log, ZERO)
        model = Model()
        for first in range(1, 60, 3):
            given = Append(entries=entries(first, 3, size_bytes=900))
            commit(engine, given)
            model = model.append(given)
        engine.collect(LOG, 20)
        before = harness.data.read_bytes()
        last = Append(entries=entries(50, 9, term=2, size_bytes=2500), replace_from=50)
        commit(engine, last)
        after = harness.data.read_bytes()
        engine.close()
        pages = changed_pages(before, after, PAGE_BYTES)
        assert len(pages) > 9
        draw = random.Random(1)
        with checks_here():
            for _ in range(60):
                data = bytearray(before)
                for page in pages:
                    reached = draw.getrandbits(8) * PAGE_BYTES // 255 if draw.random() < 0.5 else 0
                    data[page * PAGE_BYTES : page * PAGE_BYTES + reached] = after[page * PAGE_BYTES :][:reached]
                twin = harness.fork()
                twin.data.write_bytes(data)
                check_after_crash(twin, CrashRun({LOG: [model]}, collected_upto=20))  # type: ignore[arg-type]
                shutil.rmtree(twin._root)

    def test_a_group_of_many_logs_is_one_transaction(self, harness: LmdbHarness) -> None:
        logs = [LogId(TabletId(f"t{number}"), 1) for number in range(5)]
        engine = harness.open()
        for log in logs:
            engine.create(log, ZERO)
        engine.commit({log: Append(entries=entries(1, 3)) for log in logs}, sync=True)
        with every_moment(lambda: None) as moments:
            engine.commit({log: Append(entries=entries(2, 3, term=2), replace_from=2) for log in logs}, sync=True)
        assert moments.count(COMMITTED) == 1
        engine.close()

    def test_a_suffix_is_the_old_one_or_the_new_one_at_every_moment_of_its_replacement(
        self, harness: LmdbHarness
    ) -> None:
        engine = harness.open()
        engine.create(LOG, ZERO)
        old = Append(entries=entries(1, 12, size_bytes=300))
        commit(engine, old)
        twins: list[LmdbHarness] = []
        new = Append(entries=entries(4, 5, term=2, size_bytes=700), replace_from=4)
        with every_moment(lambda: twins.append(harness.fork())) as moments:
            commit(engine, new)
        engine.close()
        before = Model().append(old)
        assert len(moments) > 9, "entries are put, others go, and the record changes"
        with checks_here():
            for moment, twin in zip(moments, twins, strict=True):
                judged = twin.open()
                check_holds(judged, before.append(new) if moment is COMMITTED else before)
                judged.close()

    def test_an_interrupted_drop_is_finished_and_an_interrupted_creation_is_whole(self, harness: LmdbHarness) -> None:
        engine = harness.open()
        for log in (LOG, OTHER):
            engine.create(log, ZERO)
            commit(engine, Append(entries=entries(1, 300)), log)
        removal.mark_dropping(engine._env, engine._logs[LOG])  # type: ignore[attr-defined]
        os.remove(f"{harness.directory}/names/tablet-b.7.2")
        harness.crash(engine)
        with checks_here():
            engine = harness.open()
        assert set(engine.logs()) == {OTHER}
        check_holds(engine, Model(ZERO, list(entries(1, 300))), OTHER)
        assert os.listdir(f"{harness.directory}/names") == ["tablet-b.7.2"]
        with engine._env.read() as txn:  # type: ignore[attr-defined]
            assert txn.stat()["entries"] == 302
        engine.close()

    # -- damage ------------------------------------------------------------------------------------

    @pytest.mark.parametrize("clean", [True, False])
    def test_a_flipped_bit_is_reported_or_harms_nothing(self, harness: LmdbHarness, clean: bool) -> None:
        engine = harness.open()
        engine.create(LOG, ZERO)
        model = Model()
        for turn in range(6):
            given = Append(entries=entries(1 + 12 * turn, 12, term=turn + 1, size_bytes=700))
            commit(engine, given)
            model = model.append(given)
        if clean:
            engine.close()
            harness.config = type(harness.config)(check="always", map_bytes=1 << 30)  # type: ignore[call-arg]
        else:
            harness.crash(engine)
        used = harness.data.read_bytes().rstrip(b"\0")
        reported = 0
        with checks_here():
            for offset in range(0, len(used), len(used) // 250):
                twin = harness.fork()
                twin.flip(offset, 1 << (offset % 8))
                reported += check_damaged(twin, model, f"data.mdb@{offset}")
                check_set_aside(twin, f"data.mdb@{offset}")
                shutil.rmtree(twin._root)
        assert reported > 60

    def test_one_damaged_value_damages_its_log_there_and_no_other(self, harness: LmdbHarness) -> None:
        engine = harness.open()
        for log in (LOG, OTHER):
            engine.create(log, ZERO)
            commit(engine, Append(entries=entries(1, 40, size_bytes=3000, term=log.generation)), log)
        harness.crash(engine)
        offset = harness.offset_of(b"<1.23><1.23>")
        harness.flip(offset + 100, 1)
        with checks_here():
            engine = harness.open()
        damage = engine.logs()[LOG].damage
        assert damage is not None
        assert (damage.path, damage.last_good) == (str(harness.data), OpId(1, 22))
        assert damage.offset in (0, offset - format.HEAD_BYTES)
        assert engine.read(LOG, 1, 23, READ_BYTES) == list(entries(1, 22, size_bytes=3000))
        check_holds(engine, Model(ZERO, list(entries(1, 40, 7, 3000))), OTHER)
        commit(engine, Append(entries=entries(41, 1, term=7)), OTHER)
        engine.drop(LOG)
        engine.create(LOG, ZERO)
        commit(engine, Append(entries=entries(1, 2)))
        engine.close()

    def test_a_read_that_meets_damage_ends_the_log_before_it(self, harness: LmdbHarness) -> None:
        engine = harness.open()
        engine.create(LOG, ZERO)
        commit(engine, Append(entries=entries(1, 9, size_bytes=3000)))
        harness.flip(harness.offset_of(b"<1.5><1.5>") + 10, 4)
        with pytest.raises(Corrupt):
            engine.read(LOG, 1, 10, READ_BYTES)
        assert engine.logs()[LOG].last == OpId(1, 4)
        outcome = engine.commit({LOG: Append(entries=entries(10, 1))}, sync=True)[LOG]
        assert isinstance(outcome, Failed)
        assert isinstance(outcome.error, Corrupt)
        assert engine.stats()["readers"] == 0
        engine.close()

    def test_a_file_that_changed_while_it_was_closed_is_checked(self, harness: LmdbHarness) -> None:
        engine = harness.open()
        engine.create(LOG, ZERO)
        older = harness.data.read_bytes()
        commit(engine, Append(entries=entries(1, 9)))
        engine.close()
        with checks_here() as calls:
            harness.open().close()
            assert not calls
            os.truncate(harness.data, harness.data.stat().st_size - PAGE_BYTES)
            harness.open().close()
            assert len(calls) == 1
            harness.data.write_bytes(older)
            harness.open().close()
            assert len(calls) == 2

    def test_a_missing_entry_is_noticed_at_every_start(self, harness: LmdbHarness) -> None:
        engine = harness.open()
        engine.create(LOG, ZERO)
        commit(engine, Append(entries=entries(1, 9)))
        for gone, good in ((9, 8), (4, 3), (1, 0)):
            with engine._env.write() as txn:  # type: ignore[attr-defined]
                assert txn.delete(format.key(1, gone))
            engine.close()
            engine = harness.open()
            damage = engine.logs()[LOG].damage
            assert damage is not None
            assert damage.last_good.index == good
        engine.close()

    def test_a_lost_environment_or_record_is_damage_and_a_lost_name_is_given_again(self, harness: LmdbHarness) -> None:
        engine = harness.open()
        for log in (LOG, OTHER):
            engine.create(log, OpId(2, 5))
        with engine._env.write() as txn:  # type: ignore[attr-defined]
            txn.delete(format.key(format.NAMESPACE, 1))
        os.remove(f"{harness.directory}/names/tablet-b.7.2")
        engine.close()
        engine = harness.open()
        assert engine.logs()[LOG].damage is not None
        check_holds(engine, Model(OpId(2, 5)), OTHER)
        engine.close()
        shutil.rmtree(harness.data.parent)
        engine = harness.open()
        assert all(state.damage is not None for state in engine.logs().values())
        with pytest.raises(Corrupt):
            engine.create(LOG._replace(generation=9), ZERO)
        for log in (LOG, OTHER):
            engine.drop(log)
        engine.create(LOG, ZERO)
        commit(engine, Append(entries=entries(1, 3)))
        engine.close()

    # -- failures ----------------------------------------------------------------------------------

    def test_a_full_disk_fails_groups_that_do_not_fit_until_there_is_space(self, harness: LmdbHarness) -> None:
        engine, model = self._filled(harness)
        again = engine.commit({LOG: Append(entries=(entry(model.last.index + 1),))}, sync=True)[LOG]
        assert isinstance(again, Failed)
        assert again.durable == model.last
        with pytest.raises(Full):
            engine.repair(LOG)
        check_holds(engine, model)
        harness.disk.limit(None)
        assert engine.repair(LOG) == model.last
        given = Append(entries=entries(model.last.index + 1, 30, size_bytes=3000))
        commit(engine, given)
        harness.crash(engine)
        with checks_here():
            engine = harness.open()
        check_holds(engine, model.append(given))
        engine.close()

    def test_an_append_that_does_not_fit_does_not_fail_its_neighbours(self, harness: LmdbHarness) -> None:
        engine, model = self._filled(harness)
        engine.collect(LOG, model.last.index - 20)
        assert engine.repair(LOG) == model.last
        large = Append(entries=entries(model.last.index + 1, 1, size_bytes=1 << 20))
        outcomes = engine.commit({LOG: large, OTHER: Append(entries=entries(1, 2))}, sync=True)
        assert outcomes[OTHER] == Durable(OpId(1, 2))
        failed = outcomes[LOG]
        assert isinstance(failed, Failed)
        assert isinstance(failed.error, Full)
        check_holds(engine, model)
        engine.close()

    def test_a_log_set_aside_after_a_full_disk_ends_where_it_ended_in_the_engine(self, harness: LmdbHarness) -> None:
        engine, model = self._filled(harness)
        engine.set_aside(LOG, quarantine_of(harness))
        assert set(engine.logs()) == {OTHER}
        engine.close()
        check_aside(harness, ZERO, model.held)

    def test_collecting_and_dropping_work_on_a_full_disk_and_free_it(self, harness: LmdbHarness) -> None:
        # The list of the pages that a removal frees needs a run of pages: appends have left none.
        harness.config = LmdbConfig(map_bytes=1 << 30, file_growth_bytes=1 << 16, reserve_bytes=1 << 18)
        engine, model = self._filled(harness, limit_bytes=24 << 20, size_bytes=300_000)
        index = 1
        while isinstance(engine.commit({OTHER: Append(entries=(entry(index, 1, 3000),))}, sync=True)[OTHER], Durable):
            index += 1
        try:
            assert engine.collect(LOG, model.last.index - 5).index == model.last.index - 5
        except Full as error:
            raise AssertionError("collecting found no space") from error
        assert engine.repair(LOG) == model.last
        commit(engine, Append(entries=entries(model.last.index + 1, 10, size_bytes=300_000)))
        engine.drop(OTHER)
        engine.close()
        reopened = harness.open()
        assert set(reopened.logs()) == {LOG}
        reopened.close()

    def _filled(
        self, harness: LmdbHarness, limit_bytes: int = 1 << 20, size_bytes: int = 3000
    ) -> tuple[LmdbWal, Model]:
        """An engine whose disk took no further group of the first log; a second log is empty."""
        engine = harness.open()
        assert isinstance(engine, LmdbWal)
        for log in (LOG, OTHER):
            engine.create(log, ZERO)
        harness.disk.limit(limit_bytes)
        model = Model()
        while True:
            given = Append(entries=entries(model.last.index + 1, 5, size_bytes=size_bytes))
            outcome = engine.commit({LOG: given}, sync=True)[LOG]
            if isinstance(outcome, Failed):
                break
            model = model.append(given)
        assert isinstance(outcome.error, Full), outcome
        assert outcome.durable == model.last
        assert model.last.index > 50
        return engine, model

    def test_a_name_that_finds_no_space_leaves_no_log(self, harness: LmdbHarness) -> None:
        engine = harness.open()
        harness.disk.refuse_names = True
        with pytest.raises(Full):
            engine.create(LOG, ZERO)
        assert not engine.logs()
        harness.disk.refuse_names = False
        engine.create(LOG, OpId(1, 1))
        commit(engine, Append(entries=entries(2, 2)))
        engine.close()
        engine = harness.open()
        check_holds(engine, Model(OpId(1, 1), list(entries(2, 2))))
        engine.close()

    def test_a_read_only_disk_is_an_error_that_names_a_path_and_changes_nothing(
        self, harness: LmdbHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        engine = harness.open()
        engine.create(LOG, ZERO)
        commit(engine, Append(entries=entries(1, 9)))
        engine.close()
        before = harness.tree()

        def read_only(files: RealFiles, path: str, **options: bool) -> NoReturn:
            raise StorageError("Read-only file system", path=path)

        with monkeypatch.context() as patch:
            for name in ("lock", "create", "replace", "remove", "rename"):
                patch.setattr(RealFiles, name, read_only)
            with pytest.raises(StorageError, match="Read-only") as caught:
                harness.open()
            assert caught.value.path.startswith(harness.directory)
        assert harness.tree() == before
        engine = harness.open()
        check_holds(engine, Model(ZERO, list(entries(1, 9))))
        engine.close()

    def test_after_a_failed_sync_nothing_is_appended_now_or_after_a_restart(self, harness: LmdbHarness) -> None:
        engine = harness.open()
        for log in (LOG, OTHER):
            engine.create(log, ZERO)
            commit(engine, Append(entries=entries(1, 3)), log)
        failing = FailingCommit(engine._env._env, EIO)  # type: ignore[attr-defined]
        engine._env._env = failing  # type: ignore[attr-defined]
        outcome = engine.commit({LOG: Append(entries=entries(4, 2))}, sync=True)[LOG]
        assert isinstance(outcome, Failed)
        assert isinstance(outcome.error, SyncFailed)
        assert outcome.durable == OpId(1, 3)
        failing.error = None
        for log in (LOG, OTHER):
            assert isinstance(engine.commit({log: Append(entries=entries(4, 1))}, sync=True)[log], Failed)
            with pytest.raises(StorageError):
                engine.repair(log)
            check_holds(engine, Model(ZERO, list(entries(1, 3))), log)
        engine.close()
        with checks_here():
            engine = harness.open()
        for log in (LOG, OTHER):
            damage = engine.logs()[log].damage
            assert damage is not None
            assert damage.last_good == OpId(1, 3)
            assert engine.read(log, 1, 4, READ_BYTES) == list(entries(1, 3))
            assert isinstance(engine.commit({log: Append(entries=entries(4, 1))}, sync=True)[log], Failed)
        engine.drop(LOG)
        engine.drop(OTHER)
        engine.create(LOG, ZERO)
        commit(engine, Append(entries=entries(1, 1)))
        engine.close()

    # -- transactions ------------------------------------------------------------------------------

    def test_no_read_transaction_outlives_a_call(self, harness: LmdbHarness) -> None:
        engine = harness.open()
        engine.create(LOG, ZERO)
        commit(engine, Append(entries=entries(1, 50)))
        env = engine._env._env  # type: ignore[attr-defined]
        view = engine.snapshot(LOG, 3)
        found = view.entries()
        next(found)
        engine.read(LOG, 1, 9, 1)
        engine.op_id_at(LOG, 7)
        for call in (lambda: engine.read(LOG, 1, 99, 1), lambda: engine.op_id_at(LOG, 99)):
            with pytest.raises(CallerError, match="no entry"):
                call()
        assert not [line for line in env.readers().splitlines()[1:] if not line.endswith(" -")], env.readers()
        assert engine.stats()["readers"] == 0
        view.release()
        engine.close()

    def test_space_is_used_again_over_many_rounds_of_appending_and_collecting(self, harness: LmdbHarness) -> None:
        engine = harness.open()
        engine.create(LOG, ZERO)
        used, index = [], 0
        for turn in range(40):
            for size in (100, 3000, 20_000, 70_000):
                commit(engine, Append(entries=entries(index + 1, 6, size_bytes=size + 17 * turn)))
                index += 6
            engine.collect(LOG, index - 12)
            used.append(engine.stats()["used_bytes"])
        assert used[-1] <= 1.3 * used[7]
        assert harness.data.stat().st_size == engine.stats()["file_bytes"]
        engine.close()


class TestOnRealDisk(LmdbChecks):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> LmdbHarness:
        return LmdbHarness(str(tmp_path))


class TestScale(WalScale):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> LmdbHarness:
        return LmdbHarness(str(tmp_path), LmdbConfig())
