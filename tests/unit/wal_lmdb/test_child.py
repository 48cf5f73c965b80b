"""The child process that reads the environment before the node does, and what becomes of its word."""

from __future__ import annotations

import dataclasses
import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import lmdb
import pytest

from stelae.spi.errors import Corrupt, Full, FutureVersion, StorageError
from stelae.spi.ids import ZERO, OpId
from stelae.spi.wal import Append
from stelae.testing.wal_harness import RealHarness
from stelae.testing.wal_model import LOG, OTHER, READ_BYTES, Model, check_holds, commit, entries
from stelae_shared.lmdb_files import child as support
from stelae_wal_lmdb import LmdbConfig, LmdbWal, check, child, format, startup
from stelae_wal_lmdb.check import EnvironmentReport
from stelae_wal_lmdb.child import check_in_child

CONFIG = LmdbConfig(map_bytes=1 << 30, file_growth_bytes=1 << 16, reserve_bytes=1 << 16)
WITHOUT_VERIFIER = (
    "-c",
    "import sys; sys.modules['lmdb.verify'] = None; import runpy; "
    "sys.modules.pop('stelae_wal_lmdb.check', None); runpy.run_module('stelae_wal_lmdb.check', run_name='__main__')",
)
"""The child as it is with a release of py-lmdb that has no verifier of its own."""


@pytest.fixture
def crashed(tmp_path: Path) -> RealHarness:
    """The directory of an engine whose process died: two logs of forty entries."""
    harness = RealHarness(LmdbWal, str(tmp_path), CONFIG)
    engine = harness.open()
    for log in (LOG, OTHER):
        engine.create(log, ZERO)
        for first in range(1, 41, 4):
            commit(engine, Append(entries=entries(first, 4, size_bytes=6000)), log)
    harness.crash(engine)
    engine.close()
    return harness


def data_of(harness: RealHarness) -> Path:
    return Path(harness.directory) / "env" / "data.mdb"


def used_bytes(harness: RealHarness) -> int:
    return len(data_of(harness).read_bytes().rstrip(b"\0"))


def test_a_sound_environment_is_opened_after_an_unclean_stop(crashed: RealHarness) -> None:
    assert check_in_child(f"{crashed.directory}/env", 60) == EnvironmentReport()
    engine = crashed.open()
    for log in (LOG, OTHER):
        check_holds(engine, Model(ZERO, list(entries(1, 40, size_bytes=6000))), log)
    engine.close()


@pytest.mark.parametrize("module", ["stelae_wal_lmdb.check", "stelae_store_lmdb.check"])
def test_a_child_imports_neither_pyarrow_nor_numpy(module: str) -> None:
    """They took more than half of the processor time of a child that had little to read."""
    program = f"import sys, {module}; print(*sorted({{'pyarrow', 'numpy'}} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == []


def test_a_sound_environment_passes_without_the_library_s_verifier(
    crashed: RealHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "COMMAND", WITHOUT_VERIFIER)
    assert check_in_child(f"{crashed.directory}/env", 60) == EnvironmentReport()


@pytest.mark.parametrize("command", [("-m", "stelae_wal_lmdb.check"), WITHOUT_VERIFIER], ids=["verifier", "none"])
@pytest.mark.parametrize("share", [0.3, 0.9])
def test_a_cut_file_damages_every_log_and_kills_nobody_here(
    crashed: RealHarness, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], share: float
) -> None:
    monkeypatch.setattr(child, "COMMAND", command)
    os.truncate(data_of(crashed), int(used_bytes(crashed) * share) // 4096 * 4096)
    report = check_in_child(f"{crashed.directory}/env", 60)
    assert report.broken
    if command is WITHOUT_VERIFIER:
        assert "SIGBUS" in report.broken
    engine = crashed.open()
    for log in (LOG, OTHER):
        damage = engine.logs()[log].damage
        assert damage is not None
        assert (damage.path, damage.last_good) == (str(data_of(crashed)), ZERO)
        with pytest.raises(Corrupt):
            engine.read(log, 1, 2, READ_BYTES)
    engine.close()
    again = crashed.open()
    assert again.logs()[LOG].damage is not None
    again.close()


def test_a_broken_environment_in_which_no_log_has_a_name_is_begun_anew(crashed: RealHarness) -> None:
    names = Path(crashed.directory) / "names"
    for name in names.iterdir():
        name.unlink()
    os.truncate(data_of(crashed), 4 * 4096)
    engine = crashed.open()
    assert not engine.logs()
    engine.create(LOG, ZERO)
    commit(engine, Append(entries=entries(1, 9)))
    engine.close()
    engine = crashed.open()
    check_holds(engine, Model(ZERO, list(entries(1, 9))))
    engine.close()


def test_a_damaged_value_is_found_in_its_log(crashed: RealHarness) -> None:
    data = data_of(crashed).read_bytes()
    offset = data.index(b"<1.17><1.17>")
    data_of(crashed).write_bytes(data[: offset + 99] + b"?" + data[offset + 100 :])
    (finding,) = check_in_child(f"{crashed.directory}/env", 60).findings
    assert finding.last_good == (1, 16)
    assert finding.offset in (0, offset - format.HEAD_BYTES)
    engine = crashed.open()
    states = engine.logs()
    damaged = [log for log in (LOG, OTHER) if states[log].damage is not None]
    assert len(damaged) == 1
    assert states[damaged[0]].last == OpId(1, 16)
    engine.close()


def test_a_stop_that_was_clean_needs_no_child_unless_always_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(
        startup, "check_in_child", lambda directory, seconds: calls.append(directory) or EnvironmentReport()
    )
    harness = RealHarness(LmdbWal, str(tmp_path), CONFIG)
    harness.open().close()
    harness.open().close()
    assert not calls
    harness.config = LmdbConfig(map_bytes=1 << 30, check="always")
    harness.open().close()
    assert len(calls) == 1


SELF_KILLED = "import os, signal; os.kill(os.getpid(), signal.%s)"
READING = "from stelae_shared.lmdb_files import child; child.announce(); "
SAYING = "import sys; sys.stderr.write(%r); sys.stderr.flush(); "
ASSERTED = "mdb.c:6012: Assertion 'rc > 1' failed in mdb_page_search_root()\n"
LITTLE = "import resource, runpy; resource.setrlimit(resource.RLIMIT_AS, (%d << 20,) * 2); "
"""So many MiB for a child that needs more. It runs out of memory while it imports, in `lmdb`, or at its own probe."""
NO_VERDICT = {
    "it was killed before it looked": (("-c", SELF_KILLED % "SIGSEGV"), "SIGSEGV killed .* before it read the file"),
    "it aborted before it looked": (("-c", SELF_KILLED % "SIGABRT"), "SIGABRT killed .* before it read the file"),
    "it aborted for want of memory": (
        ("-c", READING + SAYING % "terminate called after throwing 'std::bad_alloc'" + SELF_KILLED % "SIGABRT"),
        "SIGABRT killed .* is there memory enough\\?.*bad_alloc",
    ),
    **{
        f"it had {size} MiB": (
            ("-c", LITTLE % size + "runpy.run_module('stelae_wal_lmdb.check', run_name='__main__')"),
            "the check ended with code|is there memory enough",
        )
        for size in (16, 24, 48)
    },
    "it found no memory": (("-c", "raise SystemExit('no memory left')"), "code 1: no memory left"),
    "it took too long": (("-c", "import threading; threading.Event().wait()"), "raise check_seconds_max"),
    "somebody killed it": (
        ("-c", READING + SELF_KILLED % "SIGKILL"),
        "SIGKILL killed the process that read it, not the file",
    ),
}


@pytest.mark.parametrize("why", NO_VERDICT)
def test_a_child_that_gives_no_verdict_ends_the_start_and_damages_nothing(
    crashed: RealHarness, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """Each of these once damaged every log of the node."""
    command, said = NO_VERDICT[why]
    with monkeypatch.context() as patch:
        patch.setattr(child, "COMMAND", command)
        seconds = 1 if why == "it took too long" else 60
        patch.setattr(crashed, "config", dataclasses.replace(CONFIG, check_seconds_max=seconds))
        with pytest.raises(StorageError, match=said) as caught:
            crashed.open()
    assert type(caught.value) is StorageError and caught.value.path == str(data_of(crashed))
    check_all_whole(crashed)


def test_a_child_that_dies_of_a_file_that_the_disk_cannot_read_is_no_damage(
    crashed: RealHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bad sector kills whoever reads it through a map, just as a cut file does: plain calls tell them apart."""

    def failing(path: str, *options: object, **more: object) -> NoReturn:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    monkeypatch.setattr(child, "COMMAND", ("-c", READING + SELF_KILLED % "SIGBUS"))
    assert "the file was cut" in check_in_child(f"{crashed.directory}/env", 60).broken
    with monkeypatch.context() as patch:
        patch.setattr(support, "open", failing, raising=False)
        with pytest.raises(StorageError, match="the disk cannot read it"):
            crashed.open()
    monkeypatch.undo()
    check_all_whole(crashed)


def test_a_child_that_an_assertion_of_lmdb_ends_has_met_damage(
    crashed: RealHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "COMMAND", ("-c", READING + SAYING % ASSERTED + SELF_KILLED % "SIGABRT"))
    assert "mdb_page_search_root" in check_in_child(f"{crashed.directory}/env", 60).broken


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE, errno.EACCES, errno.ENOMEM])
def test_an_environment_that_the_system_does_not_open_is_no_damage(
    crashed: RealHarness, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    kind = lmdb.MemoryError if number == errno.ENOMEM else lmdb.Error

    def refused(*arguments: object, **options: object) -> NoReturn:
        raise kind(f"{crashed.directory}: {os.strerror(number)}", number)

    def refusing() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(lmdb, "open", refused)
            with pytest.raises(StorageError) as caught:
                crashed.open()
        assert type(caught.value) in (StorageError, Full) and caught.value.path == str(data_of(crashed))

    refusing()
    with monkeypatch.context() as patch:
        patch.setattr(lmdb, "open", refused)
        assert os.strerror(number) in check.check(f"{crashed.directory}/env").unread
    crashed.open().close()
    refusing()  # A clean stop: no child is asked.
    check_all_whole(crashed)


def test_what_makes_no_sense_to_the_child_is_damage_and_no_failure_of_its_own(crashed: RealHarness) -> None:
    engine = crashed.open()
    with engine._env.write() as txn:  # type: ignore[attr-defined]
        txn.put(format.key(format.NAMESPACE, 1) + b"?", b"a key of no length that we use")
    crashed.crash(engine)
    engine.close()
    for _ in ("the child finds it", "after a clean stop, this process does"):
        engine = crashed.open()
        assert all(state.damage is not None for state in engine.logs().values())
        engine.close()


def check_all_whole(harness: RealHarness) -> None:
    engine = harness.open()
    for log in (LOG, OTHER):
        check_holds(engine, Model(ZERO, list(entries(1, 40, size_bytes=6000))), log)
        commit(engine, Append(entries=entries(41, 1)), log)
    engine.close()


def test_an_environment_of_a_newer_release_is_refused_and_not_called_damaged(
    crashed: RealHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(format, "FORMAT_VERSION", 2)
    engine = crashed.open()
    with engine._env.write() as txn:  # type: ignore[attr-defined]
        txn.put(format.HEADER_KEY, format.encode_header(9))
    crashed.crash(engine)
    engine.close()
    monkeypatch.undo()
    with pytest.raises(FutureVersion):
        crashed.open()


def test_what_the_compacting_copy_meets_is_a_report(crashed: RealHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "verified", lambda path: None)
    assert check.check(f"{crashed.directory}/env") == EnvironmentReport()
    data_of(crashed).write_bytes(b"\0" * 65536)
    assert check.check(f"{crashed.directory}/env").broken
