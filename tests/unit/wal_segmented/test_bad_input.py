"""Bad input, file by file: what is done to it, and the typed error or the documented recovery."""

from __future__ import annotations

from pathlib import Path

import pytest
from crc32c import crc32c

from stelae.machine.files import RealFiles
from stelae.sim.disk import Survival
from stelae.sim.disk_file import VirtualFile
from stelae.spi.errors import Corrupt, Foreign, Full, FutureVersion, Locked, StorageError
from stelae.spi.ids import ZERO
from stelae.spi.log import Entry
from stelae.spi.wal import Append, Durable, Failed, WalEngine
from stelae.testing.conformance.wal_failures import limit_space
from stelae.testing.wal_harness import VirtualHarness, fake_services
from stelae.testing.wal_model import LOG, OTHER, READ_BYTES, Model, check_holds, commit, entries
from stelae_shared.log_files.page_slots import PAYLOAD_AT, SLOT_BYTES
from stelae_wal_segmented import SegmentedConfig, SegmentedWal
from stelae_wal_segmented.base_file import BASE_VERSION, read_base
from stelae_wal_segmented.footer import HEAD_BYTES
from stelae_wal_segmented.format import (
    ENTRY_HEADER_BYTES,
    ENTRY_LEAD,
    FORMAT_VERSION,
    SEGMENT_HEADER_BYTES,
    GroupHeader,
    encode_group_header,
    end_mark_of,
    footer_mark_of,
    group_mark_of,
    pack_entry,
    salt_of,
)
from stelae_wal_segmented.marker import MARKER_VERSION
from stelae_wal_segmented.scan import SegmentScanStop, scan_segment
from tests.unit.wal_files import Change, a_directory, cut_to, flipped, foreign, of_slot_version, of_version, put, zeroed
from tests.unit.wal_segmented.scenes import (
    ALL,
    BASE,
    FIRST,
    PLACE,
    SECOND,
    assert_opens_with,
    data_end_of,
    filled,
    header_of,
    pages_of,
    recovered,
    small_harness,
)

MARKER = "/node/wals/segmented"
LOCK = "/node/wals/lock"
NEWEST = f"{PLACE}/g1-000000000003.seg"
WHOLE = "whole"


CASES: dict[str, tuple[str, Change, str]] = {
    "the marker, emptied": (MARKER, cut_to(0), "Foreign"),
    "the marker, cut inside its magic": (MARKER, cut_to(5), "Foreign"),
    "the marker, cut behind its magic": (MARKER, cut_to(20), "Foreign"),
    "the marker, cut inside its second slot: the first one counts": (MARKER, cut_to(SLOT_BYTES + 20), WHOLE),
    "the marker, one bit of its number: the other slot counts": (MARKER, flipped(PAYLOAD_AT), WHOLE),
    "the marker, one bit of its number in both slots": (
        MARKER,
        flipped(PAYLOAD_AT, SLOT_BYTES + PAYLOAD_AT),
        "Foreign",
    ),
    "the marker, one slot zeroed: the other one counts": (MARKER, zeroed(0, SLOT_BYTES), WHOLE),
    "the marker, zeroed": (MARKER, zeroed(), "Foreign"),
    "the marker, of something else": (MARKER, foreign, "Foreign"),
    "the marker, of a newer release": (MARKER, of_slot_version(MARKER_VERSION + 1), "FutureVersion"),
    "the marker, of before the first release": (MARKER, of_slot_version(MARKER_VERSION - 1), "Foreign"),
    "the marker, a directory in its place": (MARKER, a_directory, "Foreign"),
    "the lock, a directory in its place": (LOCK, a_directory, "Foreign"),
    "the lock, whatever it holds": (LOCK, lambda _: b"\xff" * 5000, WHOLE),
    "the base, emptied": (BASE, cut_to(0), "D@0"),
    "the base, cut inside both slots' records": (BASE, cut_to(60), "D@0"),
    "the base, zeroed": (BASE, zeroed(), "D@0"),
    "the base, one slot zeroed: the other one counts": (BASE, zeroed(0, SLOT_BYTES), WHOLE),
    "the base, the other slot zeroed": (BASE, zeroed(SLOT_BYTES), WHOLE),
    "the base, of something else": (BASE, foreign, "D@0"),
    "the base, of a newer release": (BASE, of_slot_version(BASE_VERSION + 1), "FutureVersion"),
    "the base, of before the first release": (BASE, of_slot_version(BASE_VERSION - 1), "Foreign"),
    "the base, with a use that only a newer release knows": (BASE, of_slot_version(9, at=PAYLOAD_AT), "FutureVersion"),
    "the base, a directory in its place": (BASE, a_directory, "D@0"),
    "a closed segment, a directory in its place": (FIRST, a_directory, "G@0"),
    "a closed segment, emptied": (FIRST, cut_to(0), "G@0"),
    "a closed segment, cut inside its header": (FIRST, cut_to(100), "G@100"),
    "a closed segment, cut inside its data": (FIRST, cut_to(2000), "K"),
    "a closed segment, cut inside its footer": (FIRST, lambda data: data[:-30], "L"),
    "a closed segment, zeroed": (FIRST, zeroed(), "G@0"),
    "a closed segment, of something else": (FIRST, foreign, "G@0"),
    "a closed segment, of a newer release": (
        FIRST,
        of_version(FORMAT_VERSION + 1, SEGMENT_HEADER_BYTES),
        "FutureVersion",
    ),
    "a closed segment, a sector of its data zeroed: found when it is read": (FIRST, zeroed(1024, 1536), "read"),
    "the newest segment, a directory in its place": (NEWEST, a_directory, "G@0"),
    "the newest segment, emptied": (NEWEST, cut_to(0), "G@0"),
    "the newest segment, cut inside its header": (NEWEST, cut_to(100), "G@100"),
    "the newest segment, zeroed": (NEWEST, zeroed(), "G@0"),
    "the newest segment, of something else": (NEWEST, foreign, "G@0"),
    "the newest segment, of a newer release": (
        NEWEST,
        of_version(FORMAT_VERSION + 1, SEGMENT_HEADER_BYTES),
        "FutureVersion",
    ),
    "the newest segment, a sector of its data zeroed: found when it is read": (NEWEST, zeroed(512, 1024), "read"),
    "the newest segment, its footer zeroed behind the head": (NEWEST, lambda data: data[:-90] + bytes(90), "Q"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_changed_file_is_refused_reported_or_harmless(name: str) -> None:
    path, change, expected = CASES[name]
    harness = small_harness()
    filled(harness).close()
    put(harness, path, change(harness.disk.read_bytes(path)))
    if expected in ("Foreign", "FutureVersion"):
        with pytest.raises({"Foreign": Foreign, "FutureVersion": FutureVersion}[expected]) as caught:
            harness.open()
        assert caught.value.path == path
        return
    if expected in (WHOLE, "Q"):
        assert_opens_with(harness, Model(ZERO, list(ALL)))
        return
    engine = harness.open()
    if expected == "read":
        with pytest.raises(Corrupt) as damaged:
            engine.read(LOG, 1, 61, READ_BYTES)
        assert damaged.value.path == path
        assert 0 < (damaged.value.offset or 0) < 1536
        assert engine.logs()[LOG].damage is not None
    else:
        row, _, offset = expected.partition("@")
        damage = engine.logs()[LOG].damage
        assert damage is not None
        assert damage.path == path
        assert f"row {row}:" in damage.detail
        assert not offset or damage.offset == int(offset)
    check_others_live(engine)
    engine.close()


def check_others_live(engine: WalEngine) -> None:
    """What is wrong with one log is no other one's business."""
    good = engine.logs()[LOG].last.index
    if good:
        assert engine.read(LOG, 1, good + 1, READ_BYTES) == list(ALL[:good])
    assert isinstance(engine.commit({LOG: Append(entries=entries(61, 1))}, sync=True)[LOG], Failed)
    engine.create(OTHER, ZERO)
    commit(engine, Append(entries=entries(1, 3)), OTHER)
    check_holds(engine, Model(ZERO, list(entries(1, 3))), OTHER)


def test_a_base_file_with_an_id_that_no_tablet_can_have_is_damage() -> None:
    harness = small_harness()
    filled(harness).close()
    data = bytearray(harness.disk.read_bytes(BASE))
    for start in (0, SLOT_BYTES):
        size = PAYLOAD_AT + int.from_bytes(data[start + 10 : start + 12], "little") + 4
        at = bytes(data[start:]).index(b"tablet-a") + start
        data[at : at + 3] = b"\xff/."
        record = bytes(data[start : start + size - 4])
        data[start + size - 4 : start + size] = crc32c(record).to_bytes(4, "little")
    harness.write(BASE, bytes(data))
    engine = harness.open()
    damage = engine.logs()[LOG].damage
    assert damage is not None
    assert damage.path == BASE
    assert "invalid id" in damage.detail
    engine.close()


# -- the directory ---------------------------------------------------------------------------------


def test_a_directory_of_another_running_node_is_locked_and_stays_as_it_is() -> None:
    harness = small_harness()
    engine = filled(harness)
    before = harness.tree()
    with pytest.raises(Locked) as caught:
        harness.open()
    assert caught.value.path == LOCK
    assert harness.tree() == before
    commit(engine, Append(entries=entries(61, 1)))
    engine.close()


def test_a_disk_that_becomes_read_only_fails_the_logs_that_write_and_reads_go_on() -> None:
    harness = small_harness()
    engine = filled(harness)
    harness.disk.faults.fail_syncs("", 1000)
    outcome = engine.commit({LOG: Append(entries=entries(61, 1))}, sync=True)[LOG]
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, StorageError)
    assert outcome.error.path.startswith(PLACE)
    assert outcome.durable == ALL[-1].op_id
    assert engine.read(LOG, 1, 61, READ_BYTES) == list(ALL)
    harness.disk.faults.heal()
    harness.crash(engine, Survival.LOST)


def test_a_directory_that_cannot_be_made_for_want_of_space_is_full_and_can_be_tried_again() -> None:
    harness = small_harness()
    limit_space(harness, 10)
    for _ in range(2):
        with pytest.raises(Full):
            harness.open()
    limit_space(harness, None)
    engine = harness.open()
    engine.create(LOG, ZERO)
    commit(engine, Append(entries=entries(1, 1)))
    engine.close()


@pytest.mark.parametrize("name", ["lock", "segmented"])
def test_a_directory_where_a_file_belongs_is_foreign_and_named_on_a_real_disk(tmp_path: Path, name: str) -> None:
    place = tmp_path / "wals"
    (place / name).mkdir(parents=True)
    with pytest.raises(Foreign, match="found a directory in place of a file") as caught:
        SegmentedWal.open(str(place), SegmentedConfig(), fake_services(RealFiles()))
    assert caught.value.path == str(place / name)


def test_a_file_where_the_directory_belongs_is_foreign_and_named(tmp_path: Path) -> None:
    (tmp_path / "wals").write_text("no directory")
    with pytest.raises(Foreign, match="found a file in place of a directory") as caught:
        SegmentedWal.open(str(tmp_path / "wals"), SegmentedConfig(), fake_services(RealFiles()))
    assert caught.value.path == str(tmp_path / "wals")


@pytest.mark.parametrize("directory", [False, True], ids=["file", "directory"])
def test_what_was_left_in_the_making_costs_nothing_and_a_stranger_is_left_alone(directory: bool) -> None:
    harness = small_harness()
    filled(harness).close()
    left = [f"{PLACE}/g1-0123456789abcdef.new", f"{PLACE}/.g1.base.tmp", f"{PLACE}/notes", "/node/wals/our notes"]
    for path in left:
        put(harness, path, None if directory else b"half of something")
    assert_opens_with(harness, Model(ZERO, list(ALL)))
    there = [path for path in left if harness.disk.exists(path)]
    assert there == (left if directory else left[2:])


# -- lengths that someone made up ------------------------------------------------------------------


class Largest:
    """The largest read that anyone asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        pread = VirtualFile.pread

        def measured(file: VirtualFile, size: int, offset: int) -> bytes:
            assert size >= 0 and offset >= 0
            self.bytes = max(self.bytes, size)
            return pread(file, size, offset)

        monkeypatch.setattr(VirtualFile, "pread", measured)


HUGE = 1 << 62


def sealed(record: bytes, salt: int) -> bytes:
    return record + crc32c(record, salt).to_bytes(4, "little")


def made_up(harness: VirtualHarness, what: str) -> bytes:
    """A valid record at the end of the data that promises more than there is."""
    header = header_of(harness, FIRST)
    salt, mark = salt_of(header.nonce), footer_mark_of(header.nonce)
    if what == "entries of a group":
        return encode_group_header(GroupHeader(0, 0, 0, HUGE, (1 << 32) - 1), header.nonce)
    if what == "bytes of an entry":
        group = encode_group_header(GroupHeader(0, 0, 0, HUGE, 1), header.nonce)
        return group + sealed(pack_entry(ENTRY_LEAD, 2, (1 << 32) - 1, 0, 1, 11, 0), salt)
    if what == "bytes of a footer":
        return sealed(mark.to_bytes(8, "little") + HUGE.to_bytes(8, "little"), salt)
    end = data_end_of(harness)
    fields = (mark, HUGE, end, 11, HUGE // 9, 0, 0)
    record = b"".join(field.to_bytes(8, "little") for field in fields) + bytes(4)
    return sealed(record, salt)


@pytest.mark.parametrize(
    "what", ["entries of a group", "bytes of an entry", "bytes of a footer", "bytes of a footer, at its end"]
)
def test_a_length_that_cannot_be_is_never_reserved(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    harness = small_harness()
    harness.crash(filled(harness, 10), Survival.KEPT)
    end = data_end_of(harness)
    harness.write(FIRST, harness.disk.read_bytes(FIRST)[:end] + made_up(harness, what))
    largest = Largest(monkeypatch)
    found = recovered(harness)
    assert found.last == ALL[9].op_id
    assert largest.bytes <= 256 * 1024, "never more than a window, whatever a length says"


def test_offsets_in_a_footer_that_lead_elsewhere_are_damage_and_nothing_is_read_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = small_harness()
    filled(harness).close()
    pages, salt = pages_of(harness), salt_of(header_of(harness, FIRST).nonce)
    data = harness.disk.read_bytes(FIRST)
    count = (len(pages) - 4) // 8
    for offsets in ([HUGE + n for n in range(count)], list(range(count)), list(range(3000, 3000 - count, -1))):
        page = b"".join(offset.to_bytes(8, "little") for offset in offsets)
        harness.write(FIRST, data[: pages.start] + sealed(page, salt) + data[pages.stop :])
        twin = harness.fork(0)
        engine = twin.open()
        with monkeypatch.context() as patch:
            largest = Largest(patch)
            with pytest.raises(Corrupt) as caught:
                engine.read(LOG, 1, 5, READ_BYTES)
        assert caught.value.path == FIRST
        assert caught.value.offset == pages.start
        assert largest.bytes <= len(pages)
        harness.crash(engine)


def test_a_group_mark_in_the_body_of_an_entry_is_no_group() -> None:
    """Whoever knows the nonce may write what looks like a group into a body."""
    harness = small_harness()
    engine = filled(harness, 10)
    nonce = header_of(harness, FIRST).nonce
    end = data_end_of(harness)
    body = group_mark_of(nonce).to_bytes(8, "little") * 20
    body += encode_group_header(GroupHeader(1 << 40, 0, 0, 300, 7), nonce) + end_mark_of(nonce) + b"x" * 40
    commit(engine, Append(entries=(Entry(ALL[10].op_id, ALL[10].kind, 1, body),)))
    harness.crash(engine, Survival.KEPT)
    engine = harness.open()
    assert engine.read(LOG, 11, 12, READ_BYTES)[0].body == body
    file = harness.disk.open(FIRST)
    scan = scan_segment(file, header_of(harness, FIRST))
    assert scan.stop is SegmentScanStop.BLANK
    assert scan.synced <= end
    engine.close()


# -- what the tables above rest on -----------------------------------------------------------------


def test_the_scene_has_what_the_cases_speak_of() -> None:
    harness = small_harness()
    filled(harness).close()
    assert read_base(harness.disk, BASE).newest_sequence == 3
    assert recovered(harness).damage is None
    for path in (FIRST, SECOND, NEWEST):
        assert len(harness.disk.read_bytes(path)) > SEGMENT_HEADER_BYTES + ENTRY_HEADER_BYTES + HEAD_BYTES
    assert isinstance(harness.open().commit({LOG: Append(entries=entries(61, 1))}, sync=True)[LOG], Durable)
