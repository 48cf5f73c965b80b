"""Records in two slots: which of them counts, which is written, and what power or a failed sync leaves."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from stelae.sim.disk import VirtualDisk
from stelae.sim.disk_faults import PowerLost
from stelae.sim.disk_file import VirtualFile
from stelae.spi.errors import Corrupt, Foreign, FutureVersion, StorageError, SyncFailed
from stelae.spi.services import Buffer
from stelae_shared.log_files.page_slots import (
    PAYLOAD_AT,
    SLOT_BYTES,
    PageSlot,
    RecordFormat,
    create_slots,
    read_newest,
    write_both,
    write_slot,
)
from tests.unit.unread_pages import UnreadPages

PATH = "/record"
FORM = RecordFormat(b"testslot", 3, 5)


def new_disk(payload: bytes = b"first") -> VirtualDisk:
    disk = VirtualDisk()
    create_slots(disk, PATH, FORM, PageSlot(1, payload))
    return disk


def test_both_slots_of_a_new_file_hold_the_record() -> None:
    for slot in (0, 1):
        disk = new_disk()
        disk.damage(PATH, slot * SLOT_BYTES + PAYLOAD_AT)
        assert read_newest(disk, PATH, FORM) == PageSlot(1, b"first")
    assert len(disk.read_bytes(PATH)) == 2 * SLOT_BYTES


def test_a_change_of_one_slot_leaves_the_newest_before_it() -> None:
    disk = new_disk()
    for count in range(2, 7):
        changed = PageSlot(count, b"no. %d" % count)
        write_slot(disk, PATH, FORM, changed)
        assert read_newest(disk, PATH, FORM) == changed
        twin = disk.clone()
        twin.damage(PATH, count % 2 * SLOT_BYTES + PAYLOAD_AT)
        assert read_newest(twin, PATH, FORM).changes == count - 1


def test_a_change_of_both_slots_outlives_the_loss_of_either_and_makes_both_valid_again() -> None:
    disk = new_disk()
    for count in range(2, 9):
        disk.damage(PATH, count % 2 * SLOT_BYTES + PAYLOAD_AT)
        write_both(disk, PATH, FORM, b"no. %d" % count)
        for slot in (0, 1):
            twin = disk.clone()
            twin.damage(PATH, slot * SLOT_BYTES + PAYLOAD_AT)
            assert read_newest(twin, PATH, FORM) == PageSlot(count, b"no. %d" % count)


@pytest.mark.parametrize("unit", ["operations", "written_bytes"])
def test_power_lost_anywhere_twice_leaves_the_record_before_or_the_changed_one(unit: str) -> None:
    seen = set()
    places = range(8) if unit == "operations" else [*range(40), SLOT_BYTES - 1, *range(SLOT_BYTES, SLOT_BYTES + 40)]
    for place in places:
        for seed in range(10):
            disk, before = new_disk(), b"first"
            for payload in (b"secnd", b"third"):
                disk.faults.lose_power_after(**{unit: place})
                try:
                    write_both(disk, PATH, FORM, payload)
                    done = True
                except PowerLost:
                    done = False
                disk = disk.crash(random.Random(seed))
                found = read_newest(disk, PATH, FORM).payload
                assert found == payload if done else found in (before, payload)
                seen.add(found)
                before = found
    assert seen == {b"first", b"secnd", b"third"}, "the loop has to see all outcomes"


class Failing:
    """Lets one synchronous write fail behind which the cache shows the new bytes, and the disk may have none."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fatal: int) -> None:
        self.offsets: list[int] = []
        self.fatal = fatal
        original = VirtualFile.pwritev

        def pwritev(file: VirtualFile, buffers: Sequence[Buffer], offset: int, *, dsync: bool = False) -> int:
            self.offsets.append(offset)
            length = original(file, buffers, offset, dsync=dsync)
            if len(self.offsets) == self.fatal:
                raise SyncFailed("the disk did not take it", path=PATH)
            return length

        monkeypatch.setattr(VirtualFile, "pwritev", pwritev)


@pytest.mark.parametrize("earlier", range(2))
def test_a_slot_whose_sync_failed_is_written_again_before_the_other_one(
    earlier: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page that failed may be lost on the disk although it can be read: the other one is all there is."""
    disk = new_disk()
    disk.damage(PATH, earlier * SLOT_BYTES + PAYLOAD_AT)
    failing = Failing(monkeypatch, 1)
    with pytest.raises(SyncFailed):
        write_both(disk, PATH, FORM, b"secnd")
    assert failing.offsets == [earlier * SLOT_BYTES]
    write_both(disk, PATH, FORM, b"third")
    assert failing.offsets[1:] == [earlier * SLOT_BYTES, (1 - earlier) * SLOT_BYTES]
    assert read_newest(disk, PATH, FORM).payload == b"third"


def test_without_a_valid_slot_the_record_is_corrupt_and_stays_as_it_is() -> None:
    disk = new_disk()
    for slot in (0, 1):
        disk.damage(PATH, slot * SLOT_BYTES + PAYLOAD_AT)
    before = disk.tree()
    with pytest.raises(Corrupt, match="neither of its two slots") as caught:
        read_newest(disk, PATH, FORM)
    assert (caught.value.path, caught.value.offset) == (PATH, 0)
    with pytest.raises(Corrupt):
        write_both(disk, PATH, FORM, b"third")
    assert disk.tree() == before


@pytest.mark.parametrize("length", range(PAYLOAD_AT + len(b"first") + 4))
def test_a_cut_slot_does_not_count(length: int) -> None:
    disk = new_disk()
    disk.cut(PATH, SLOT_BYTES + length)
    assert read_newest(disk, PATH, FORM) == PageSlot(1, b"first")
    disk.cut(PATH, length)
    with pytest.raises(Corrupt):
        read_newest(disk, PATH, FORM)


def test_a_slot_of_another_format_is_refused_although_the_other_can_be_read() -> None:
    refused = ((4, FutureVersion, "format 4 is newer than 3"), (2, Foreign, "no release wrote format 2"))
    for version, error, said in refused:
        disk, other = new_disk(), VirtualDisk()
        create_slots(other, PATH, RecordFormat(FORM.magic, version, 90), PageSlot(2, bytes(90)))
        disk.replace(PATH, disk.read_bytes(PATH)[:SLOT_BYTES] + other.read_bytes(PATH)[SLOT_BYTES:])
        with pytest.raises(error, match=said) as caught:
            read_newest(disk, PATH, FORM)
        assert getattr(caught.value, "offset", 0) == SLOT_BYTES + 8


def test_an_older_file_with_its_checksum_elsewhere_is_named_as_such() -> None:
    disk = VirtualDisk()
    for text in (b"testslot\2\0 and more", (b"testslot\1\0" + bytes(SLOT_BYTES))[:SLOT_BYTES] * 2):
        disk.replace(PATH, text)
        with pytest.raises(Foreign, match=r"no release wrote format [12]; the first one wrote 3"):
            read_newest(disk, PATH, FORM)


@pytest.mark.parametrize("slot", [0, 1])
def test_a_slot_that_is_not_read_may_have_the_only_newest_record_unless_each_change_wrote_both(
    monkeypatch: pytest.MonkeyPatch, slot: int
) -> None:
    disk = new_disk()
    unread = UnreadPages(monkeypatch)
    unread.paths = {PATH: (slot,)}
    with pytest.raises(StorageError, match="Input/output error"):
        read_newest(disk, PATH, FORM)
    assert read_newest(disk, PATH, FORM, written_both=True) == PageSlot(1, b"first")
    write_both(disk, PATH, FORM, b"no. 2")
    unread.paths = {PATH: (0, 1)}
    with pytest.raises(StorageError, match="Input/output error"):
        read_newest(disk, PATH, FORM, written_both=True)
    unread.paths = {}
    for lost in (0, 1):
        twin = disk.clone()
        twin.damage(PATH, lost * SLOT_BYTES + PAYLOAD_AT)
        assert read_newest(twin, PATH, FORM).payload == b"no. 2", "both were written"
