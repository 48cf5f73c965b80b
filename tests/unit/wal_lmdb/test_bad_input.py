"""Bad input, file by file: what is done to it, and the typed error or the documented recovery."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from stelae.machine.files import RealFiles
from stelae.spi.errors import Corrupt, Foreign, FutureVersion, Locked, StorageError
from stelae.spi.ids import ZERO, LogId, TabletId
from stelae.spi.wal import Append, Failed, WalEngine
from stelae.testing.wal_harness import RealHarness, fake_services
from stelae.testing.wal_model import LOG, OTHER, READ_BYTES, Model, check_holds, commit, entries
from stelae_shared.lmdb_files.marker import MARKER_VERSION
from stelae_shared.log_files.page_slots import PAYLOAD_AT, SLOT_BYTES
from stelae_wal_lmdb import LmdbConfig, LmdbWal
from tests.conformance.lmdb_disk import checks_here
from tests.unit.wal_files import Change, a_directory, cut_to, flipped, foreign, of_slot_version, zeroed

CONFIG = LmdbConfig(map_bytes=1 << 30, file_growth_bytes=1 << 16, reserve_bytes=1 << 16)
DATA = "env/data.mdb"
PAGE_BYTES = 4096
META_VERSION_AT = 20
WHOLE = "whole"
DAMAGED = "every log damaged"
HELD = {LOG: Model(ZERO, list(entries(1, 40, size_bytes=900))), OTHER: Model(ZERO, list(entries(1, 3)))}


def of_a_newer_library(data: bytes) -> bytes:
    """The version that LMDB gives its files, in both meta pages."""
    found = bytearray(data)
    for page in (0, PAGE_BYTES):
        found[page + META_VERSION_AT] = 7
    return bytes(found)


def a_bit_of_a_body(data: bytes) -> bytes:
    found = flipped(data.index(b"<1.17><1.17>") + 9)(data)
    assert found is not None
    return found


def a_bit_of_each_page(data: bytes) -> bytes:
    found = flipped(*range(2 * PAGE_BYTES + 12, len(data.rstrip(b"\0")), PAGE_BYTES))(data)
    assert found is not None
    return found


CASES: dict[str, tuple[str, Change, str]] = {
    "the marker, emptied": ("lmdb", cut_to(0), "Foreign"),
    "the marker, cut inside its magic": ("lmdb", cut_to(5), "Foreign"),
    "the marker, cut behind its magic": ("lmdb", cut_to(20), "Foreign"),
    "the marker, cut inside its second slot: the first one counts": ("lmdb", cut_to(SLOT_BYTES + 20), WHOLE),
    "the marker, one slot zeroed: the other one counts": ("lmdb", zeroed(0, SLOT_BYTES), WHOLE),
    "the marker, zeroed": ("lmdb", zeroed(), "Foreign"),
    "the marker, of something else": ("lmdb", foreign, "Foreign"),
    "the marker, one bit of its stamp: the other slot counts": ("lmdb", flipped(PAYLOAD_AT + 8), WHOLE),
    "the marker, one bit of its stamp in both slots": (
        "lmdb",
        flipped(PAYLOAD_AT + 8, SLOT_BYTES + PAYLOAD_AT + 8),
        "Foreign",
    ),
    "the marker, of a newer release": ("lmdb", of_slot_version(MARKER_VERSION + 1), "FutureVersion"),
    "the marker, from before the first release": ("lmdb", of_slot_version(MARKER_VERSION - 1), "Foreign"),
    "the marker, a directory in its place": ("lmdb", a_directory, "Foreign"),
    "the lock, whatever it holds": ("lock", lambda _: b"\xff" * 5000, WHOLE),
    "the lock, a directory in its place": ("lock", a_directory, "Foreign"),
    "the environment, emptied": (DATA, cut_to(0), DAMAGED),
    "the environment, cut inside its first page": (DATA, cut_to(100), DAMAGED),
    "the environment, cut behind its first page": (DATA, cut_to(PAGE_BYTES), DAMAGED),
    "the environment, cut behind its meta pages": (DATA, cut_to(2 * PAGE_BYTES), DAMAGED),
    "the environment, cut inside its data": (DATA, cut_to(9 * PAGE_BYTES + 5), DAMAGED),
    "the environment, zeroed": (DATA, zeroed(), DAMAGED),
    "the environment, of something else": (DATA, foreign, DAMAGED),
    "the environment, one bit of each page's header": (DATA, a_bit_of_each_page, DAMAGED),
    "the environment, one bit of a body": (DATA, a_bit_of_a_body, "one log damaged"),
    "the environment, written by a newer LMDB": (DATA, of_a_newer_library, "FutureVersion"),
    "the environment, a directory in its place": (DATA, a_directory, "Foreign"),
    "the table of readers, emptied": ("env/lock.mdb", cut_to(0), WHOLE),
    "the table of readers, of something else": ("env/lock.mdb", foreign, WHOLE),
    "the table of readers, a directory in its place": ("env/lock.mdb", a_directory, "StorageError"),
    "the name of a log, whatever it holds": ("names/tablet-a.1.1", lambda _: b"\xff" * 50, WHOLE),
}


@pytest.fixture
def harness(tmp_path: Path) -> RealHarness:
    """The directory of an engine that was closed: two logs, of 40 entries and of three."""
    harness = RealHarness(LmdbWal, str(tmp_path), CONFIG)
    engine = harness.open()
    for log in (LOG, OTHER):
        engine.create(log, ZERO)
    for first in range(1, 41, 4):
        commit(engine, Append(entries=entries(first, 4, size_bytes=900)))
    commit(engine, Append(entries=entries(1, 3)), OTHER)
    engine.close()
    return harness


def put(path: Path, data: bytes | None) -> None:
    if data is not None:
        path.write_bytes(data)
        return
    path.unlink(missing_ok=True)
    path.mkdir()


@pytest.mark.parametrize("name", CASES)
def test_a_changed_file_is_refused_reported_or_harmless(harness: RealHarness, name: str) -> None:
    relative, change, expected = CASES[name]
    path = Path(harness.directory, relative)
    put(path, change(path.read_bytes()))
    before = harness.tree()
    if relative == DATA:
        harness.config = dataclasses.replace(CONFIG, check="always")
    with children(relative):
        if expected in REFUSALS:
            with pytest.raises(REFUSALS[expected]) as caught:
                harness.open()
            assert type(caught.value) is REFUSALS[expected]
            assert caught.value.path == str(path if relative != "env/lock.mdb" else path.with_name("data.mdb"))
            assert harness.tree() == before
            return
        for _ in range(2):
            engine = harness.open()
            check_states(engine, expected, str(path))
            engine.close()


REFUSALS = {"Foreign": Foreign, "FutureVersion": FutureVersion, "StorageError": StorageError}


def children(relative: str) -> ExitStack:
    """Check in this process, unless the file that it reads is the one that was changed, which may kill it."""
    stack = ExitStack()
    if relative != DATA:
        stack.enter_context(checks_here())
    return stack


def check_states(engine: WalEngine, expected: str, path: str) -> None:
    """Damaged logs say where and take nothing; whole ones are whole and go on."""
    damaged = [log for log in HELD if engine.logs()[log].damage is not None]
    assert len(damaged) == {WHOLE: 0, DAMAGED: 2, "one log damaged": 1}[expected], engine.logs()
    for log in HELD:
        damage = engine.logs()[log].damage
        good = engine.logs()[log].last.index
        outcome = engine.commit({log: Append(entries=entries(good + 1, 1, size_bytes=900))}, sync=True)[log]
        assert isinstance(outcome, Failed) == (damage is not None)
        if damage is None:
            assert engine.read(log, 1, 4, READ_BYTES) == HELD[log].held[:3]
        else:
            assert damage.path == path
            assert isinstance(outcome, Failed) and isinstance(outcome.error, Corrupt)


# -- the directory ---------------------------------------------------------------------------------


def check_all_whole(engine: WalEngine) -> None:
    for log, model in HELD.items():
        check_holds(engine, model, log)
    new = LogId(TabletId("tablet-new"), 1)
    engine.create(new, ZERO)
    commit(engine, Append(entries=entries(1, 3)), new)
    engine.close()


def test_a_second_engine_on_one_environment_is_locked_out_and_changes_nothing(harness: RealHarness) -> None:
    engine = harness.open()
    before = harness.tree()
    with pytest.raises(Locked) as caught:
        harness.open()
    assert caught.value.path == f"{harness.directory}/lock"
    assert harness.tree() == before
    check_all_whole(engine)


@pytest.mark.parametrize("name", ["lock", "lmdb"])
def test_a_directory_where_a_file_belongs_is_foreign_and_named(tmp_path: Path, name: str) -> None:
    place = tmp_path / "wals"
    (place / name).mkdir(parents=True)
    with pytest.raises(Foreign, match="found a directory in place of a file") as caught:
        LmdbWal.open(str(place), CONFIG, fake_services(RealFiles()))
    assert caught.value.path == str(place / name)


def test_a_file_where_the_directory_belongs_is_foreign_and_named(tmp_path: Path) -> None:
    (tmp_path / "wals").write_text("no directory")
    with pytest.raises(Foreign, match="found a file in place of a directory") as caught:
        LmdbWal.open(str(tmp_path / "wals"), CONFIG, fake_services(RealFiles()))
    assert caught.value.path == str(tmp_path / "wals")


def moved(harness: RealHarness, name: str) -> Iterator[Path]:
    """Put a file where a directory of the engine belongs; put it back at the end."""
    path = Path(harness.directory, name)
    path.rename(path.with_name("elsewhere"))
    path.write_text("no directory")
    yield path
    path.unlink()
    path.with_name("elsewhere").rename(path)


def test_a_file_where_the_names_belong_is_foreign_and_named(harness: RealHarness) -> None:
    for path in moved(harness, "names"):
        with pytest.raises(Foreign, match="found a file in place of a directory") as caught:
            harness.open()
        assert caught.value.path == str(path)
    check_all_whole(harness.open())


def test_an_environment_whose_directory_was_moved_away_is_damage_until_it_is_back(harness: RealHarness) -> None:
    for _ in moved(harness, "env"):
        engine = harness.open()
        assert all(state.damage is not None for state in engine.logs().values())
        engine.close()
    check_all_whole(harness.open())


def test_a_directory_of_somebody_else_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "letters").write_text("to my mother")
    with pytest.raises(Foreign, match="letters") as caught:
        LmdbWal.open(str(tmp_path), CONFIG, fake_services(RealFiles()))
    assert caught.value.path == str(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["letters", "lock"]


@pytest.mark.parametrize("directory", [False, True], ids=["file", "directory"])
def test_what_was_left_in_the_making_costs_nothing_and_a_stranger_is_left_alone(
    harness: RealHarness, directory: bool
) -> None:
    left = [Path(harness.directory, name) for name in ("spool.1.1", ".lmdb.tmp", "notes", "names/notes")]
    for path in left:
        put(path, None if directory else b"half of something")
    engine = harness.open()
    there = [path.name for path in left if path.exists()]
    assert there == [path.name for path in left if directory or path.name != "spool.1.1"]
    check_all_whole(engine)
