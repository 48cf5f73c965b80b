"""The clock's ceiling: written in place and twice; no lack of space and no torn write stops it."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from stelae.cli.fs_dump import dump_files
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.instance import CLOCK, ClockCeiling, Instance, format_directory, load_ceiling, save_ceiling
from stelae.host.metadata_files import HEADER_BYTES, FileKind, MetadataMissing, encode
from stelae.machine.files import RealFiles
from stelae.sim.disk import VirtualDisk
from stelae.sim.disk_faults import PowerLost
from stelae.spi.errors import Corrupt, Foreign, FutureVersion, SyncFailed
from stelae.spi.ids import NodeId

LAYOUT = DirectoryLayout("/node")
NODE = Instance(node_id=NodeId("a" * 32), cluster_id=None, wal_engine="segmented")
SLOT_BYTES = 4096
OLD, NEW = 1 << 61, (1 << 61) + (1 << 33)


def node(ceiling: int = OLD) -> VirtualDisk:
    disk = VirtualDisk()
    format_directory(disk, LAYOUT, NODE)
    save_ceiling(disk, LAYOUT, ceiling)
    return disk


def test_a_full_disk_does_not_keep_the_ceiling_from_rising() -> None:
    disk = node()
    disk.faults.capacity_bytes = 0
    for ceiling in (NEW, NEW + 1):
        save_ceiling(disk, LAYOUT, ceiling)
        assert load_ceiling(disk.clone(), LAYOUT) == ceiling
    assert load_ceiling(disk.crash(random.Random(1)), LAYOUT) == NEW + 1


def test_the_file_keeps_its_size_and_its_only_name() -> None:
    disk = VirtualDisk()
    format_directory(disk, LAYOUT, NODE)
    before = {path: len(data) for path, data in disk.tree().items()}
    save_ceiling(disk, LAYOUT, NEW)
    assert {path: len(data) for path, data in disk.tree().items()} == before
    assert before[LAYOUT.clock] == 2 * SLOT_BYTES


@pytest.mark.parametrize("unit", ["operations", "written_bytes"])
@pytest.mark.parametrize("damaged", [None, 0, SLOT_BYTES])
def test_power_lost_anywhere_twice_leaves_the_old_or_the_new_ceiling(unit: str, damaged: int | None) -> None:
    """Also where the first loss tore a slot: the next save may not begin with the whole one."""
    seen = set()
    record = [*range(40), SLOT_BYTES - 1, *range(SLOT_BYTES, SLOT_BYTES + 40), 2 * SLOT_BYTES - 1]
    for place in range(8) if unit == "operations" else record:
        for seed in range(10):
            disk, before = node(), OLD
            if damaged is not None:
                disk.damage(LAYOUT.clock, damaged + HEADER_BYTES)
            for ceiling in (NEW, NEW + 1):
                disk.faults.lose_power_after(**{unit: place})
                try:
                    save_ceiling(disk, LAYOUT, ceiling)
                    done = True
                except PowerLost:
                    done = False
                disk = disk.crash(random.Random(seed))
                found = load_ceiling(disk, LAYOUT)
                assert found == ceiling if done else found in (before, ceiling)
                seen.add(found)
                before = found
    assert {OLD, NEW} <= seen, "the loop has to see both outcomes"


@pytest.mark.parametrize("slot", [0, SLOT_BYTES])
def test_damage_to_either_slot_does_not_take_the_ceiling_back(slot: int) -> None:
    for count in range(1, 4):
        disk = node()
        for ceiling in range(NEW, NEW + count):
            save_ceiling(disk, LAYOUT, ceiling)
        disk.damage(LAYOUT.clock, slot + HEADER_BYTES + 3)
        assert load_ceiling(disk, LAYOUT) == NEW + count - 1


def test_damage_to_both_slots_is_refused_and_never_overwritten() -> None:
    disk = node()
    for slot in (0, SLOT_BYTES):
        disk.damage(LAYOUT.clock, slot + HEADER_BYTES + 3)
    with pytest.raises(Corrupt, match="/node/clock"):
        load_ceiling(disk, LAYOUT)
    before = disk.tree()
    with pytest.raises(Corrupt):
        save_ceiling(disk, LAYOUT, NEW)
    assert disk.tree() == before


@pytest.mark.parametrize("content", [b"", b"x", b"\0" * 2 * SLOT_BYTES, b"no clock" * 1024])
def test_what_is_no_clock_file_is_refused(content: bytes) -> None:
    disk = node()
    disk.replace(LAYOUT.clock, content)
    with pytest.raises((Corrupt, Foreign)):
        load_ceiling(disk, LAYOUT)


def test_a_slot_of_a_newer_format_is_refused_although_the_other_can_be_read() -> None:
    disk = node()
    newer = FileKind("clock", CLOCK.magic, CLOCK.version + 1, msgspec.msgpack.Decoder(ClockCeiling))
    with_one = encode(newer, ClockCeiling(NEW)).ljust(SLOT_BYTES, b"\0")
    disk.replace(LAYOUT.clock, disk.read_bytes(LAYOUT.clock)[:SLOT_BYTES] + with_one)
    with pytest.raises(FutureVersion):
        load_ceiling(disk, LAYOUT)


def test_a_missing_clock_file_is_an_error_of_its_own() -> None:
    disk = node()
    disk.remove(LAYOUT.clock)
    with pytest.raises(MetadataMissing, match="/node/clock"):
        load_ceiling(disk, LAYOUT)


def test_a_file_cut_to_one_slot_is_read_and_gets_the_other_one_back() -> None:
    one_slot = encode(CLOCK, ClockCeiling(OLD)).ljust(4096, b"\0")
    for operations in range(100):
        disk = node()
        disk.replace(LAYOUT.clock, one_slot)
        assert load_ceiling(disk, LAYOUT) == OLD
        disk.faults.lose_power_after(operations=operations)
        try:
            save_ceiling(disk, LAYOUT, NEW)
        except PowerLost:
            assert load_ceiling(disk.crash(random.Random(operations)), LAYOUT) in (OLD, NEW)
            continue
        disk = disk.crash(random.Random(operations))
        assert load_ceiling(disk, LAYOUT) == NEW and len(disk.read_bytes(LAYOUT.clock)) == 2 * 4096
        return
    raise AssertionError("the save never ran to its end")


def test_a_failed_sync_is_told_and_the_save_can_be_repeated() -> None:
    for count in (1, 2, 3):
        disk = node()
        disk.faults.fail_syncs("clock", count)
        for _ in range(count):
            with pytest.raises(SyncFailed):
                save_ceiling(disk, LAYOUT, NEW)
        survived = disk.clone().crash(random.Random(count))
        assert load_ceiling(survived, LAYOUT) in (OLD, NEW)
        save_ceiling(disk, LAYOUT, NEW)
        assert load_ceiling(disk.crash(random.Random(count)), LAYOUT) == NEW


def test_the_dump_shows_the_ceiling_also_beside_a_damaged_slot() -> None:
    disk = node(NEW)
    for damaged in (False, True):
        if damaged:
            disk.damage(LAYOUT.clock, HEADER_BYTES + 3)
        (found,) = dump_files(disk, LAYOUT.clock, directory=False)
        assert (found["kind"], found["record"]) == ("clock", {"ceiling": NEW})


def test_real_files_keep_a_ceiling_too(tmp_path: Path) -> None:
    files, layout = RealFiles(), DirectoryLayout(str(tmp_path / "node"))
    format_directory(files, layout, NODE)
    assert load_ceiling(files, layout) == 0
    for ceiling in (OLD, NEW):
        save_ceiling(files, layout, ceiling)
        assert load_ceiling(files, layout) == ceiling
