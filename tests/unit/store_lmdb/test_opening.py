"""Opening: the rows of the table in ``opening.py``, and what a file that was damaged meanwhile leads to."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stelae.machine.files import RealFiles
from stelae.spi.errors import Corrupt, Foreign, FutureVersion, StorageError, SyncFailed
from stelae.testing.conformance.store_harness import upsert
from stelae_shared.lmdb_files.child import verified
from stelae_store_lmdb import LmdbStore, child_check, format
from stelae_store_lmdb.check import ChildReport
from stelae_store_lmdb.child_check import check_in_child
from stelae_store_lmdb.config import LmdbStoreConfig
from tests.conformance.lmdb_disk import FailingCommit
from tests.conformance.lmdb_store import LmdbHarness, LmdbReplica, checks_here, tiny

ROWS = [(n, "x" * n, n) for n in range(200)]
WITHOUT_VERIFIER = (
    "-c",
    "import sys; sys.modules['lmdb.verify'] = None; import runpy; "
    "sys.modules.pop('stelae_store_lmdb.check', None); "
    "runpy.run_module('stelae_store_lmdb.check', run_name='__main__')",
)
"""The child as it is with a release of py-lmdb that has no verifier of its own."""


@pytest.fixture
def replica(tmp_path: Path) -> LmdbReplica:
    """Two hundred rows, flushed and committed."""
    replica = LmdbHarness(LmdbStore, tiny, root=str(tmp_path)).replica()
    replica.insert(*ROWS)
    replica.flush()
    return replica


def reopen(replica: LmdbReplica) -> None:
    """Open the store where it stands, after whatever was done to its files."""
    services = type("Services", (), {"files": replica.files})
    replica.store = replica.engine.open(
        replica.directory,
        replica.manifest,
        replica.flushed,
        replica.schemas,
        replica.config,
        services,  # type: ignore[arg-type]
    )


def test_before_the_first_flush_there_is_no_file(tmp_path: Path) -> None:
    replica = LmdbHarness(LmdbStore, tiny, root=str(tmp_path)).replica()
    replica.insert((1, "a", 1))
    assert replica.rows() == [(1, "a", 1)]
    assert not Path(replica.directory).exists()


def test_row_a_what_no_superblock_names_is_removed(replica: LmdbReplica) -> None:
    replica.store.close()
    replica.manifest, replica.flushed = b"", replica.flushed._replace(term=0, index=0)
    reopen(replica)
    assert not replica.data.exists()
    assert replica.store.applied.index == 0
    replica.store.apply(replica.log)
    replica.flush()
    assert replica.rows() == ROWS


def test_row_b_an_environment_that_is_gone_is_damage(replica: LmdbReplica) -> None:
    replica.store.close()
    shutil.rmtree(replica.data.parent)
    with pytest.raises(Corrupt, match="is missing"):
        reopen(replica)


def test_row_c_a_child_looks_after_an_unclean_stop_and_only_then(replica: LmdbReplica) -> None:
    with checks_here() as calls:
        replica.store.close()
        reopen(replica)
        assert calls == []
        replica.open()  # a copy of what is open
        assert len(calls) == 1
        replica.store.close()
        with replica.data.open("ab") as file:
            file.write(bytes(4096))
        reopen(replica)
        assert len(calls) == 2
        replica.store.close()
        replica.config = LmdbStoreConfig(check="always")
        reopen(replica)
        assert len(calls) == 3
        assert replica.rows() == ROWS


def test_row_c_the_child_is_a_process_of_its_own(replica: LmdbReplica) -> None:
    replica.open()
    assert replica.rows() == ROWS
    assert check_in_child(str(replica.data.parent), 60) == ChildReport()


def test_the_child_does_without_the_library_s_verifier(replica: LmdbReplica, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_check, "COMMAND", WITHOUT_VERIFIER)
    assert check_in_child(str(replica.data.parent), 60) == ChildReport()


@pytest.mark.parametrize("command", [("-m", "stelae_store_lmdb.check"), WITHOUT_VERIFIER], ids=["verifier", "none"])
def test_row_d_a_cut_file_kills_the_child_and_not_the_node(
    replica: LmdbReplica, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setattr(child_check, "COMMAND", command)
    replica.store.close()
    os.truncate(replica.data, len(replica.data.read_bytes().rstrip(b"\0")) // 3 // 4096 * 4096)
    with pytest.raises(Corrupt) as caught:
        reopen(replica)
    assert command is not WITHOUT_VERIFIER or "SIGBUS" in caught.value.fact


def test_row_h_a_child_that_takes_too_long_or_fails_is_no_good_sign_and_no_damage(
    replica: LmdbReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica.store.close()
    replica.config = LmdbStoreConfig(check="always", check_seconds_max=1)
    for command, said in ((("-c", "import time; time.sleep(60)"), "after 1 s"), (("-c", "1/0"), "ended with code 1")):
        monkeypatch.setattr(child_check, "COMMAND", command)
        assert said in check_in_child(str(replica.data.parent), 1).unread
        with pytest.raises(StorageError, match=said) as caught:
            reopen(replica)
        assert not isinstance(caught.value, Corrupt)
    monkeypatch.undo()
    replica.config = LmdbStoreConfig()
    reopen(replica)
    assert replica.rows() == ROWS


def test_row_e_after_a_failed_sync_nothing_is_written_now_or_later(replica: LmdbReplica) -> None:
    env = replica.store._environment.env  # type: ignore[attr-defined]
    env._env = FailingCommit(env._env, env._lmdb.Error("commit: Input/output error"))
    replica.insert((1000, "late", 1))
    with pytest.raises(SyncFailed):
        replica.store.flush()
    assert len(replica.rows()) == len(ROWS) + 1
    env._env.error = None
    with pytest.raises(StorageError, match="sync of the environment failed"):
        replica.store.flush()
    replica.store.compact()
    replica.store.close()
    with pytest.raises(Corrupt, match="sync of the environment failed"):
        reopen(replica)


def test_row_f_an_environment_older_than_the_superblock_is_damage(replica: LmdbReplica) -> None:
    older = replica.data.read_bytes()
    replica.insert((1000, "late", 1))
    replica.flush()
    replica.store.close()
    replica.data.write_bytes(older)
    with checks_here(), pytest.raises(Corrupt, match="ends with flush 1; the superblock names 2"):
        reopen(replica)


def test_row_g_what_was_flushed_ahead_is_taken_back(replica: LmdbReplica) -> None:
    replica.write(upsert(*((n, "again", 0) for n in range(0, 300, 2))))
    replica.store.flush()
    with checks_here():
        replica.open()
    assert replica.store.applied == replica.log[0].op_id
    assert replica.rows() == ROWS
    with replica.store._environment.env.read() as txn:  # type: ignore[attr-defined]
        lists = [bytes(key) for key, _ in txn.cursor() if bytes(key)[:1] in (format.TRANSACTIONS, format.HIDING)]
    assert lists == []


def test_a_newer_format_and_a_foreign_directory_are_refused(replica: LmdbReplica) -> None:
    raw = format.encode_header(format.Header())
    with pytest.raises(FutureVersion):
        format.decode_header(raw[:8] + b"\x09\0" + raw[10:], "")
    for wrong in (b"", b"x" * 30, raw[:-1], raw[:12] + b"\1" + raw[13:]):
        with pytest.raises(Corrupt):
            format.decode_header(wrong, "")
    replica.store.close()
    (Path(replica.directory) / "lmdb").write_bytes(b"something else")
    with pytest.raises(Foreign):
        reopen(replica)


def test_a_store_in_a_forked_process_is_refused(replica: LmdbReplica) -> None:
    env = replica.store._environment.env  # type: ignore[attr-defined]
    env._process += 1
    with pytest.raises(StorageError, match="forked"):
        replica.rows()
    env._process -= 1
    assert replica.rows() == ROWS


def test_every_flipped_bit_is_reported_or_harms_nothing(tmp_path: Path) -> None:
    replica = LmdbHarness(LmdbStore, tiny, root=str(tmp_path)).replica()
    for turn in range(5):
        replica.write(upsert(*((n, "x" * n, turn) for n in range(turn, 90, 3))))
        replica.flush()
    rows = replica.rows()
    replica.store.close()
    sound = replica.data.read_bytes()
    used = len(sound.rstrip(b"\0"))
    replica.config = LmdbStoreConfig(check="always", map_bytes=1 << 26)
    reported = 0
    with checks_here():
        for offset in range(0, used, used // 120):
            data = bytearray(sound)
            data[offset] ^= 1 << (offset % 8)
            replica.data.write_bytes(data)
            try:
                reopen(replica)
            except StorageError:
                reported += 1
                continue
            assert replica.rows() == rows, offset
            replica.store.close()
    assert reported > 15, "the rest are pages that were freed"


def test_a_killed_process_leaves_what_its_superblock_says(tmp_path: Path) -> None:
    """The real thing once: SIGKILL while it flushes without end."""
    script = """
import sys
from pathlib import Path
from types import SimpleNamespace
from stelae.machine.files import RealFiles
from stelae.spi.ids import ZERO
from stelae_store_lmdb import LmdbStore
from tests.conformance.lmdb_store import tiny
from stelae.testing.conformance.store_harness import SCHEMA, payload, upsert
from stelae.spi.store import ApplyEntry
from stelae.spi.ids import OpId
root = sys.argv[1]
store = LmdbStore.open(root + "/t", b"", ZERO, {1: SCHEMA}, tiny(), SimpleNamespace(files=RealFiles()))
for index in range(1, 100000):
    change = payload(SCHEMA, [upsert(*((n, f"at {index}", index) for n in range(40)))])
    store.apply([ApplyEntry(OpId(1, index), 10 * index, change)])
    edit = store.flush()
    RealFiles().replace(root + "/superblock", index.to_bytes(8, "big") + edit.manifest)
    store.commit(edit)
    if index == 20:
        print("begun", flush=True)
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path)}
    process = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, env=env)
    assert process.stdout is not None and process.stdout.readline() == b"begun\n"
    process.kill()
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()
    block = RealFiles().read_bytes(str(tmp_path / "superblock"))
    index = int.from_bytes(block[:8], "big")
    replica = LmdbHarness(LmdbStore, tiny, root=str(tmp_path)).replica()
    replica.manifest, replica.flushed = block[8:], replica.flushed._replace(term=1, index=index)
    shutil.copytree(tmp_path / "t", replica.directory)
    reopen(replica)
    assert index >= 20
    assert replica.rows() == [(n, f"at {index}", index) for n in range(40)]
    assert verified(str(replica.data)) in ([], None)
