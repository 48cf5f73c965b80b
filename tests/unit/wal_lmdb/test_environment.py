"""The environment: its map, its space, its errors, and the processes that may use it."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import lmdb
import pytest

from stelae.spi.errors import Corrupt, Full, FutureVersion, StorageError, SyncFailed
from stelae.spi.extras import MissingExtra
from stelae.spi.ids import ZERO
from stelae.spi.wal import Append, Durable, Failed
from stelae.testing.wal_harness import RealHarness
from stelae.testing.wal_model import LOG, READ_BYTES, Model, check_holds, commit, entries
from stelae_shared.lmdb_files.gate import ReaderGate
from stelae_shared.lmdb_files.library import library, typed
from stelae_wal_lmdb import LmdbConfig, LmdbWal
from stelae_wal_lmdb.environment import WANTED_BY

MIB = 1 << 20


def harness(tmp_path: Path, **settings: Any) -> RealHarness:
    small = {"file_growth_bytes": 1 << 16, "reserve_bytes": 1 << 16, "map_bytes": 1 << 30}
    return RealHarness(LmdbWal, str(tmp_path), LmdbConfig(**(small | settings)))


# -- the map ---------------------------------------------------------------------------------------


def fill_map(engine: Any) -> tuple[Model, Failed]:
    model = Model()
    while True:
        given = Append(entries=entries(model.last.index + 1, 4, size_bytes=20_000))
        outcome = engine.commit({LOG: given}, sync=True)[LOG]
        if isinstance(outcome, Failed):
            return model, outcome
        model = model.append(given)


def test_a_full_map_fails_the_log_and_repair_grows_it_beside_readers(tmp_path: Path) -> None:
    """py-lmdb ends an aborted write only when no call of any thread is under way: with three busy readers the
    probe of ``repair`` once never came back. Writes are aborted drained since."""
    engine = harness(tmp_path, map_bytes=MIB, map_bytes_max=4 * MIB).open()
    engine.create(LOG, ZERO)
    model, failed = fill_map(engine)
    assert isinstance(failed.error, Full)
    assert failed.durable == model.last
    done, wrong = threading.Event(), []

    def read_on() -> None:
        while not done.is_set():
            if engine.read(LOG, 1, 9, READ_BYTES) != model.held[:8]:
                wrong.append("other entries")

    readers = [threading.Thread(target=read_on) for _ in range(3)]
    for reader in readers:
        reader.start()
    assert engine.repair(LOG) == model.last
    more = Append(entries=entries(model.last.index + 1, 4, size_bytes=20_000))
    commit(engine, more)
    done.set()
    for reader in readers:
        reader.join(timeout=60)
        assert not reader.is_alive()
    assert not wrong
    assert engine.stats()["map_bytes"] == 2 * MIB
    check_holds(engine, model.append(more))
    engine.close()


def test_a_map_that_is_full_of_small_entries_grows_once_a_repair_has_not_helped(tmp_path: Path) -> None:
    # The probe of a repair needs fewer pages than an append, which also stores the list of free pages.
    engine = harness(tmp_path, map_bytes=MIB >> 2, map_bytes_max=8 * MIB).open()
    engine.create(LOG, ZERO)
    last, repairs = 0, 0
    while engine.stats()["map_bytes"] < MIB:
        given = Append(entries=entries(last + 1, 20, size_bytes=90))
        if isinstance(engine.commit({LOG: given}, sync=True)[LOG], Durable):
            last, repairs = last + 20, 0
        else:
            engine.repair(LOG)
            repairs += 1
            assert repairs <= 2, "the append never succeeds"
    check_holds(engine, Model(ZERO, list(entries(1, last, size_bytes=90))))
    engine.close()


def test_a_map_at_its_maximum_stays_full_until_something_is_collected(tmp_path: Path) -> None:
    engine = harness(tmp_path, map_bytes=MIB, map_bytes_max=MIB).open()
    engine.create(LOG, ZERO)
    model, failed = fill_map(engine)
    assert isinstance(failed.error, Full)
    with pytest.raises(Full):
        engine.repair(LOG)
    engine.collect(LOG, model.last.index - 5)
    assert engine.repair(LOG) == model.last
    commit(engine, Append(entries=entries(model.last.index + 1, 4, size_bytes=20_000)))
    assert engine.stats()["map_bytes"] == MIB
    engine.close()


def test_a_smaller_map_than_the_file_has_opens_and_can_be_collected(tmp_path: Path) -> None:
    home = harness(tmp_path)
    engine = home.open()
    engine.create(LOG, ZERO)
    commit(engine, Append(entries=entries(1, 40, size_bytes=60_000)))
    engine.close()
    home.config = LmdbConfig(map_bytes=MIB, map_bytes_max=MIB, reserve_bytes=1 << 16, file_growth_bytes=1 << 16)
    engine = home.open()
    check_holds(engine, Model(ZERO, list(entries(1, 40, size_bytes=60_000))))
    engine.collect(LOG, 39)
    commit(engine, Append(entries=entries(41, 4, size_bytes=60_000)))
    engine.close()


def test_where_the_system_grants_no_large_map_a_smaller_one_serves(tmp_path: Path) -> None:
    source = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))\n"
        "from stelae.testing.wal_harness import RealHarness\n"
        "from stelae.testing.wal_model import LOG, commit, entries\n"
        "from stelae.spi.ids import ZERO\n"
        "from stelae.spi.wal import Append\n"
        "from stelae_wal_lmdb import LmdbConfig, LmdbWal\n"
        "engine = RealHarness(LmdbWal, sys.argv[1], LmdbConfig(file_growth_bytes=1 << 16)).open()\n"
        "engine.create(LOG, ZERO)\n"
        "commit(engine, Append(entries=entries(1, 9)))\n"
        "print(int(engine.stats()['map_bytes']))\n"
        "engine.close()\n"
    )
    command = [sys.executable, "-c", source, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    assert MIB < int(done.stdout) < 4 << 30


def test_a_map_that_cannot_grow_stays_as_it_was(tmp_path: Path) -> None:
    engine: Any = harness(tmp_path, map_bytes=MIB, map_bytes_max=1 << 46).open()
    engine.create(LOG, ZERO)
    model, _ = fill_map(engine)
    env = engine._env

    class Refusing:
        def set_mapsize(self, size: int) -> None:
            if size > MIB:
                raise lmdb.MemoryError("mdb_env_set_mapsize", 12)
            real.set_mapsize(size)

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

    real, env._env = env._env, Refusing()
    with pytest.raises(Full):
        engine.repair(LOG)
    check_holds(engine, model)
    env._env = real
    engine.repair(LOG)
    engine.close()


# -- the gate --------------------------------------------------------------------------------------


def test_the_map_changes_only_between_reads() -> None:
    gate, order = ReaderGate(2), []
    reading, leave = threading.Event(), threading.Event()

    def read() -> None:
        with gate.reading():
            reading.set()
            leave.wait(60)
            order.append("read")

    def drain() -> None:
        with gate.drained():
            assert gate.readers == 0
            order.append("changed")

    threads = [threading.Thread(target=read), threading.Thread(target=drain)]
    threads[0].start()
    assert reading.wait(60)
    threads[1].start()
    leave.set()
    for thread in threads:
        thread.join(60)
    assert order == ["read", "changed"]


def test_one_read_too_many_waits_for_a_slot() -> None:
    gate, entered = ReaderGate(1), threading.Event()

    def read() -> None:
        with gate.reading():
            entered.set()

    with gate.reading():
        second = threading.Thread(target=read)
        second.start()
        assert gate.readers == 1
        assert not entered.is_set()
    assert entered.wait(60)
    second.join(60)


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (lmdb.MapFullError("mdb_put", -30792), Full),
        (lmdb.DiskError("mdb_txn_commit", 28), Full),
        (lmdb.Error("mdb_txn_commit: Disk quota exceeded"), Full),
        (lmdb.MemoryError("mdb_txn_begin", 12), Full),
        (lmdb.TxnFullError("mdb_put", -30788), Full),
        (lmdb.ReadersFullError("mdb_txn_begin", -30790), Full),
        (lmdb.CorruptedError("mdb_get", -30796), Corrupt),
        (lmdb.PageNotFoundError("mdb_get", -30797), Corrupt),
        (lmdb.InvalidError("mdb_env_open", -30793), Corrupt),
        (lmdb.VersionMismatchError("mdb_env_open", -30794), FutureVersion),
        (lmdb.Error("env: LMDB data format v7 is not supported by this build."), FutureVersion),
        (lmdb.PanicError("mdb_txn_begin", -30795), SyncFailed),
        (lmdb.Error("mdb_txn_commit", 5), SyncFailed),
        (lmdb.BadTxnError("mdb_put", -30782), SyncFailed),
    ],
)
def test_an_error_of_the_library_has_the_type_that_says_who_acts(error: Exception, expected: type) -> None:
    found = typed(error, "data.mdb")
    assert type(found) is expected
    assert "data.mdb" in str(found)


def test_every_error_class_of_the_library_is_typed_as_a_storage_error() -> None:
    classes = [kind for kind in vars(lmdb).values() if isinstance(kind, type) and issubclass(kind, lmdb.Error)]
    assert len(classes) > 20
    assert all(isinstance(typed(kind("call", 0), "data.mdb"), StorageError) for kind in classes)


def test_the_library_is_imported_when_the_engine_is_opened_and_its_absence_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "import sys, stelae_wal_lmdb; sys.exit('lmdb' in sys.modules)"
    subprocess.run([sys.executable, "-c", source], check=True)
    assert LmdbWal.optional_modules == {"lmdb": "lmdb"}
    monkeypatch.setitem(sys.modules, "lmdb", None)
    with pytest.raises(MissingExtra, match=r"stelae\[lmdb\]"):
        library(WANTED_BY)
    with pytest.raises(MissingExtra):
        harness(tmp_path).open()


# -- processes -------------------------------------------------------------------------------------


def live_elsewhere(root: str, config: LmdbConfig, engine_type: type[LmdbWal]) -> int:
    """What a spawned process does: open, append, close."""
    engine = RealHarness(engine_type, root, config).open()
    engine.create(LOG, ZERO)
    commit(engine, Append(entries=entries(1, 30)))
    last = engine.logs()[LOG].last.index
    engine.close()
    return last


def test_a_spawned_process_opens_an_engine_of_its_own(tmp_path: Path) -> None:
    home = harness(tmp_path / "here")
    engine = home.open()
    assert pickle.loads(pickle.dumps(home.config)) == home.config
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(live_elsewhere, (str(tmp_path / "there"), home.config, LmdbWal)) == 30
    engine.create(LOG, ZERO)
    commit(engine, Append(entries=entries(1, 3)))
    engine.close()


def test_a_forked_process_is_refused_and_does_no_harm(tmp_path: Path) -> None:
    home = harness(tmp_path)
    engine = home.open()
    engine.create(LOG, ZERO)
    commit(engine, Append(entries=entries(1, 3)))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            engine.read(LOG, 1, 4, READ_BYTES)
        except StorageError as error:
            code = 0 if "spawn" in str(error) else 2
        os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    commit(engine, Append(entries=entries(4, 3)))
    check_holds(engine, Model(ZERO, list(entries(1, 6))))
    engine.close()
