"""Bad input, file by file: what is done to it, and the typed error or the documented recovery."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from stelae.machine.files import RealFiles
from stelae.sim.disk import Survival
from stelae.spi.errors import Corrupt, Foreign, Full, FutureVersion, Locked
from stelae.spi.ids import ZERO
from stelae.spi.wal import Append, Failed, WalEngine
from stelae.testing.conformance.wal_failures import limit_space
from stelae.testing.wal_harness import VirtualHarness, fake_services
from stelae.testing.wal_model import READ_BYTES, Model, check_holds, entries
from stelae_shared.log_files.page_slots import PAYLOAD_AT, SLOT_BYTES
from stelae_wal_shared import SharedConfig, SharedWal
from stelae_wal_shared.format import FORMAT_VERSION
from stelae_wal_shared.head import PAGE_BYTES, SECTOR_BYTES, read_head
from stelae_wal_shared.marker import MARKER_VERSION
from tests.unit.wal_files import Change, a_directory, cut_to, flipped, foreign, of_slot_version, of_version, put, zeroed
from tests.unit.wal_shared.scenes import PLACE, create_logs, extend, harness_of, log_number, segments

MARKER = f"{PLACE}/shared"
LOCK = f"{PLACE}/lock"
FIRST, NEWEST = (f"{PLACE}/{number:012d}.seg" for number in (1, 3))
HEAD_BYTES = 48
WHOLE = "whole"

BUSY, IDLE, LATE = (log_number(number) for number in range(3))
"""Entries in every segment, in the first one only, and in the newest one only."""
EVERY = {BUSY, IDLE, LATE}


def newer_heads(data: bytes) -> bytes | None:
    return of_version(FORMAT_VERSION + 1, HEAD_BYTES, copies=2, every=PAGE_BYTES)(data)


def older_heads(data: bytes) -> bytes | None:
    return of_version(FORMAT_VERSION - 1, HEAD_BYTES, copies=2, every=PAGE_BYTES)(data)


CASES: dict[str, tuple[str, Change, str, set[object]]] = {
    "the marker, emptied": (MARKER, cut_to(0), "Foreign", set()),
    "the marker, cut inside its magic": (MARKER, cut_to(5), "Foreign", set()),
    "the marker, cut behind its magic": (MARKER, cut_to(20), "Foreign", set()),
    "the marker, cut inside its second slot: the first one counts": (MARKER, cut_to(SLOT_BYTES + 20), WHOLE, set()),
    "the marker, one slot zeroed: the other one counts": (MARKER, zeroed(0, SLOT_BYTES), WHOLE, set()),
    "the marker, zeroed": (MARKER, zeroed(), "Foreign", set()),
    "the marker, of something else": (MARKER, foreign, "Foreign", set()),
    "the marker, one bit of its counts: the other slot counts": (MARKER, flipped(PAYLOAD_AT), WHOLE, set()),
    "the marker, one bit of its counts in both slots": (
        MARKER,
        flipped(PAYLOAD_AT, SLOT_BYTES + PAYLOAD_AT),
        "Foreign",
        set(),
    ),
    "the marker, of a newer release": (MARKER, of_slot_version(MARKER_VERSION + 1), "FutureVersion", set()),
    "the marker, from before the first release": (MARKER, of_slot_version(MARKER_VERSION - 1), "Foreign", set()),
    "the marker, a directory in its place": (MARKER, a_directory, "Foreign", set()),
    "the lock, whatever it holds": (LOCK, lambda _: b"\xff" * 5000, WHOLE, set()),
    "the lock, a directory in its place": (LOCK, a_directory, "Foreign", set()),
    "an older segment, emptied": (FIRST, cut_to(0), "P@0", {BUSY, IDLE}),
    "an older segment, cut inside its head": (FIRST, cut_to(30), "P@0", {BUSY, IDLE}),
    "an older segment, cut inside its data": (FIRST, cut_to(9000), "P@9000", {BUSY, IDLE}),
    "an older segment, cut inside its footer: its records are read": (FIRST, cut_to(-30), WHOLE, set()),
    "an older segment, one bit of its footer: its records are read": (FIRST, flipped(-40), WHOLE, set()),
    "an older segment, one bit of its head: the other copy counts": (FIRST, flipped(20), WHOLE, set()),
    "an older segment, a page of its head zeroed: the other copy counts": (FIRST, zeroed(0, PAGE_BYTES), WHOLE, set()),
    "an older segment, one bit of both heads": (FIRST, flipped(20, PAGE_BYTES + 20), "P@0", {BUSY, IDLE}),
    "an older segment, one bit of a body: found when it is read": (FIRST, flipped(-700), "read", {BUSY}),
    "an older segment, zeroed": (FIRST, zeroed(), "P@0", {BUSY, IDLE}),
    "an older segment, of something else": (FIRST, foreign, "P@0", {BUSY, IDLE}),
    "an older segment, a directory in its place": (FIRST, a_directory, "P@0", {BUSY, IDLE}),
    "an older segment, of a newer release": (FIRST, newer_heads, "FutureVersion", set()),
    "an older segment, from before the first release": (FIRST, older_heads, "Foreign", set()),
    "the newest segment, emptied": (NEWEST, cut_to(0), "E@0", EVERY),
    "the newest segment, cut inside its head": (NEWEST, cut_to(30), "E@0", EVERY),
    "the newest segment, cut inside its image": (NEWEST, cut_to(SECTOR_BYTES + 1), "E@0", EVERY),
    "the newest segment, cut inside its data": (NEWEST, cut_to(-1200), "JK", EVERY),
    "the newest segment, cut inside its footer": (NEWEST, cut_to(-30), WHOLE, set()),
    "the newest segment, one bit of its footer: its records are read": (NEWEST, flipped(-40), WHOLE, set()),
    "the newest segment, one bit of its head: the other copy counts": (NEWEST, flipped(20), WHOLE, set()),
    "the newest segment, a page of its head zeroed: the other copy counts": (
        NEWEST,
        zeroed(0, PAGE_BYTES),
        WHOLE,
        set(),
    ),
    "the newest segment, both pages of its head zeroed": (NEWEST, zeroed(0, 2 * PAGE_BYTES), "E@0", EVERY),
    "the newest segment, zeroed": (NEWEST, zeroed(), "E@0", EVERY),
    "the newest segment, of something else": (NEWEST, foreign, "E@0", EVERY),
    "the newest segment, a directory in its place": (NEWEST, a_directory, "E@0", EVERY),
    "the newest segment, of a newer release": (NEWEST, newer_heads, "FutureVersion", set()),
    "the newest segment, from before the first release": (NEWEST, older_heads, "Foreign", set()),
}


def filled(harness: VirtualHarness) -> tuple[WalEngine, dict[object, Model]]:
    """Three segments, of which the last two hold nothing of the idle log, and the newest one begins the late one."""
    engine = harness.open()
    create_logs(engine, 3)
    extend(engine, [IDLE], 2)
    while engine.stats()["segments"] < 3:
        extend(engine, [BUSY], size_bytes=300)
    extend(engine, [LATE], 2)
    extend(engine, [BUSY], 2, size_bytes=300)
    count = engine.logs()[BUSY].last.index
    held = {IDLE: 2, LATE: 2, BUSY: count}
    sizes = {IDLE: 200, LATE: 200, BUSY: 300}
    return engine, {log: Model(ZERO, list(entries(1, held[log], size_bytes=sizes[log]))) for log in held}


@pytest.mark.parametrize("name", CASES)
def test_a_changed_file_is_refused_reported_or_harmless(name: str) -> None:
    path, change, expected, damaged = CASES[name]
    harness = harness_of()
    engine, held = filled(harness)
    engine.close()
    put(harness, path, change(harness.disk.read_bytes(path)))
    before = harness.tree()
    if expected in ("Foreign", "FutureVersion"):
        with pytest.raises({"Foreign": Foreign, "FutureVersion": FutureVersion}[expected]) as caught:
            harness.open()
        assert caught.value.path == path
        assert {one for one in before if harness.tree()[one] != before[one]} <= {MARKER}
        return
    engine = harness.open()
    if expected == "read":
        with pytest.raises(Corrupt) as bad:
            engine.read(BUSY, 1, held[BUSY].last.index + 1, READ_BYTES)
        assert bad.value.path == path and 0 < (bad.value.offset or 0) < len(before[path])
    states = engine.logs()
    assert {log for log, state in states.items() if state.damage is not None} == damaged
    for log in damaged if expected not in (WHOLE, "read") else ():
        row, _, offset = expected.partition("@")
        damage = states[log].damage  # type: ignore[index]
        assert damage is not None and damage.path == path
        assert any(f"row {letter}:" in damage.detail for letter in row)
        assert not offset or damage.offset == int(offset)
    check_the_rest(harness, engine, held, damaged)


def check_the_rest(harness: VirtualHarness, engine: WalEngine, held: dict[object, Model], damaged: set[object]) -> None:
    """Damaged logs give what is good and take nothing; the others, and new ones, work on."""
    for log in (BUSY, IDLE, LATE):
        good = engine.logs()[log].last.index
        if log not in damaged:
            check_holds(engine, held[log], log)
            extend(engine, [log])
            continue
        if good:
            assert engine.read(log, 1, good + 1, READ_BYTES) == held[log].held[:good]
        append = Append(entries=entries(good + 1, 1))
        assert isinstance(engine.commit({log: append}, sync=True)[log], Failed)
    new = log_number(9)
    engine.create(new, ZERO)
    extend(engine, [new], 3)
    harness.crash(engine, Survival.LOST)
    engine = harness.open()
    check_holds(engine, Model(ZERO, list(entries(1, 3, size_bytes=200))), new)
    assert {log for log, state in engine.logs().items() if state.damage is not None} == damaged, "remembered"
    engine.close()


# -- the directory ---------------------------------------------------------------------------------


def test_a_directory_of_another_running_node_is_locked_and_stays_as_it_is() -> None:
    harness = harness_of()
    engine, held = filled(harness)
    before = harness.tree()
    with pytest.raises(Locked) as caught:
        harness.open()
    assert caught.value.path == LOCK
    assert harness.tree() == before
    extend(engine, [IDLE])
    engine.close()
    assert held


@pytest.mark.parametrize("name", ["lock", "shared"])
def test_a_directory_where_a_file_belongs_is_foreign_and_named_on_a_real_disk(tmp_path: Path, name: str) -> None:
    place = tmp_path / "wals"
    (place / name).mkdir(parents=True)
    with pytest.raises(Foreign, match="found a directory in place of a file") as caught:
        SharedWal.open(str(place), SharedConfig(), fake_services(RealFiles()))
    assert caught.value.path == str(place / name)


def test_a_file_where_the_directory_belongs_is_foreign_and_named(tmp_path: Path) -> None:
    (tmp_path / "wals").write_text("no directory")
    with pytest.raises(Foreign, match="found a file in place of a directory") as caught:
        SharedWal.open(str(tmp_path / "wals"), SharedConfig(), fake_services(RealFiles()))
    assert caught.value.path == str(tmp_path / "wals")


def test_a_directory_of_somebody_else_is_left_as_it_is() -> None:
    harness = harness_of()
    harness.disk.make_directory(PLACE)
    put(harness, f"{PLACE}/letters", b"to my mother")
    with pytest.raises(Foreign, match="letters") as caught:
        harness.open()
    assert caught.value.path == PLACE
    assert harness.tree() == {f"{PLACE}/letters": b"to my mother", LOCK: b""}


@pytest.mark.parametrize("directory", [False, True], ids=["file", "directory"])
def test_what_was_left_in_the_making_costs_nothing_and_a_stranger_is_left_alone(directory: bool) -> None:
    harness = harness_of()
    engine, held = filled(harness)
    engine.close()
    left = [f"{PLACE}/0123456789abcdef.new", f"{PLACE}/.shared.tmp", f"{PLACE}/notes"]
    for path in left:
        put(harness, path, None if directory else b"half of something")
    engine = harness.open()
    assert [path for path in left if harness.disk.exists(path)] == (left if directory else left[2:])
    check_the_rest(harness, engine, held, set())


def test_a_directory_that_cannot_be_made_for_want_of_space_is_full_and_can_be_tried_again() -> None:
    harness = harness_of()
    limit_space(harness, 10)
    for _ in range(2):
        with pytest.raises(Full):
            harness.open()
    limit_space(harness, None)
    engine = harness.open()
    create_logs(engine, 1)
    extend(engine, [BUSY])
    engine.close()


# -- what the table above rests on -----------------------------------------------------------------


def test_the_scene_has_what_the_cases_speak_of() -> None:
    harness = harness_of()
    engine, _ = filled(harness)
    engine.close()
    assert segments(harness.disk)[0] == FIRST and segments(harness.disk)[-1] == NEWEST
    for path in (FIRST, NEWEST):
        with closing(harness.disk.open(path)) as file:
            head = read_head(file, image=True)
        assert head is not None and head.image is not None
        assert head.start < 9000 < len(harness.disk.read_bytes(path)) - 700
