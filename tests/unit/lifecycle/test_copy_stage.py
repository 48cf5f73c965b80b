"""The stage: what is named is durable and has its digest, at whatever operation the power is lost (rule 21)."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import crc32c
import msgspec
import pytest

from stelae.host.instance import Instance, format_directory
from stelae.lifecycle.copy_stage import CopyStage, StageManifest, read_manifest, remove_stage
from stelae.lifecycle.side_work import WAITING_MAX, DoneAtOnce, SideWork
from stelae.sim.disk import VirtualDisk
from stelae.sim.disk_faults import PowerLost
from stelae.spi.copy_plan import CopySnapshot
from stelae.spi.errors import Corrupt, Full, StorageError, SyncFailed
from stelae.spi.ids import ZERO, LogId, OpId, TabletId
from stelae.spi.members import TabletConfig
from stelae.spi.wal import SnapshotUnit
from tests.unit.lifecycle.disk_node import LAYOUT, NODE

TABLET = TabletId("t")
PLACE = f"{LAYOUT.copying}/t"
CONTENTS = {
    "rows/block-1": b"a" * 5000,
    "rows/block-2": b"",
    "export/00000000": b"e" * 10,
    "log/4-6": b"l" * 2_100_000,
    "log/7-7": b"m" * 100,
}


def snapshot(contents: dict[str, bytes] = CONTENTS, last: int = 7) -> CopySnapshot:
    return CopySnapshot(
        tablet_id=TABLET,
        log=LogId(TABLET, 1),
        base=OpId(1, 3),
        last=OpId(2, last),
        term=2,
        committed_config=TabletConfig(op_id=ZERO, members=()),
        facts=b"",
        items=tuple(unit(name, data) for name, data in contents.items()),
    )


def unit(name: str, data: bytes) -> SnapshotUnit:
    return SnapshotUnit(name=name, size_bytes=len(data), digest=hashlib.sha256(data).hexdigest())


def disk() -> VirtualDisk:
    made = VirtualDisk()
    format_directory(made, LAYOUT, Instance(node_id=NODE, cluster_id=None, wal_engine="segmented"))
    return made


def stage_on(place: VirtualDisk, bytes_max: int = 1 << 30, side_work: Callable[[], SideWork] = DoneAtOnce) -> CopyStage:
    return CopyStage(place, LAYOUT, TABLET, bytes_max, side_work=side_work)


class DoneLate:
    """Does each piece of work as late as ``BackgroundWork`` may."""

    def __init__(self) -> None:
        self.begun: list[Callable[[], None]] = []

    def begin(self, work: Callable[[], None]) -> None:
        self.begun.append(work)
        if len(self.begun) > WAITING_MAX:
            self.begun.pop(0)()

    def wait(self) -> None:
        while self.begun:
            self.begun.pop(0)()


def fill(stage: CopyStage, contents: dict[str, bytes] = CONTENTS, only: set[str] | None = None) -> None:
    """Store what the stage lacks, as a transport does: the parts first, from where they end."""
    have = stage.have()
    for name, data in contents.items():
        if name in have or (only is not None and name not in only):
            continue
        if stage.checksum(name) != crc32c.crc32c(data[: stage.stored(name)]):
            stage.discard(name)
        for at in range(stage.stored(name), len(data), 1_000_000):
            stage.write(name, at, data[at : at + 1_000_000])
        stage.finish(name)


def check_complete(stage: CopyStage, contents: dict[str, bytes] = CONTENTS) -> None:
    assert stage.verify() == []
    assert {name: stage.read(name) for name in contents} == contents
    assert set(stage.have()) == set(contents)


def test_what_is_stored_is_what_was_sent() -> None:
    stage = stage_on(disk())
    stage.prepare(snapshot(), 5)
    assert stage.have() == {} and stage.stored("log/4-6") == 0 and stage.checksum("log/4-6") == 0
    fill(stage)
    check_complete(stage)


def test_a_copy_that_goes_on_has_the_items_and_the_parts_of_the_first_one() -> None:
    place = disk()
    stage = stage_on(place)
    stage.prepare(snapshot(), 5)
    fill(stage, only={"rows/block-1"})
    stage.write("log/4-6", 0, b"l" * 1000)
    again = stage_on(place.clone())
    again.prepare(snapshot(), 6)
    assert set(again.have()) == {"rows/block-1"}
    assert again.stored("log/4-6") == 1000 and again.checksum("log/4-6") == crc32c.crc32c(b"l" * 1000)
    fill(again)
    check_complete(again)


def test_an_item_without_its_digest_is_discarded_and_gets_no_name() -> None:
    stage = stage_on(disk())
    stage.prepare(snapshot(), 5)
    for data in (b"x" * 100, b"m" * 99):
        stage.write("log/7-7", 0, data)
        with pytest.raises(Corrupt, match="digest"):
            stage.finish("log/7-7")
        assert stage.have() == {} and stage.stored("log/7-7") == 0


def filled(*, restarted: bool) -> tuple[VirtualDisk, CopyStage]:
    """A disk, and a stage on it in which every item has arrived; perhaps before a restart."""
    place = disk()
    stage = stage_on(place)
    stage.prepare(snapshot(), 5)
    fill(stage)
    if restarted:
        stage = stage_on(place)
        stage.prepare(snapshot(), 6)
    return place, stage


@pytest.mark.parametrize("restarted", [False, True])
def test_an_item_that_is_damaged_on_the_disk_is_found_before_it_is_installed(restarted: bool) -> None:
    place, stage = filled(restarted=restarted)
    place.damage(f"{PLACE}/log/4-6", 2_000_000, 1)
    place.remove(f"{PLACE}/rows/block-2")
    assert stage.verify() == ["rows/block-2", "log/4-6"]
    assert set(stage.have()) == {"rows/block-1", "export/00000000", "log/7-7"}
    fill(stage)
    check_complete(stage)


@pytest.mark.parametrize("name", ["rows/block-1", "log/4-6"])
@pytest.mark.parametrize("restarted", [False, True])
def test_an_item_that_the_disk_does_not_return_arrives_again(name: str, restarted: bool) -> None:
    """Its name said that it need not be fetched, so every copy ended at the same bad sector."""
    place, stage = filled(restarted=restarted)
    place.faults.fail_reads(f"copying/t/{name}")
    assert stage.verify() == [name] and name not in stage.have()
    fill(stage)
    check_complete(stage)


@pytest.mark.parametrize("size_bytes", [1000, len(CONTENTS["log/4-6"])])
def test_a_part_that_the_disk_does_not_return_arrives_again(size_bytes: int) -> None:
    place = disk()
    stage = stage_on(place)
    stage.prepare(snapshot(), 5)
    stage.write("log/4-6", 0, b"l" * size_bytes)
    again = stage_on(place.clone())
    again.prepare(snapshot(), 6)
    again._files.faults.fail_reads("copying/t/log/.4-6")  # type: ignore[attr-defined]
    with pytest.raises(StorageError):
        (again.checksum if size_bytes == 1000 else again.finish)("log/4-6")
    assert again.stored("log/4-6") == 0
    fill(again)
    check_complete(again)


NEWER = {**CONTENTS, "rows/block-1": b"b" * 5000, "rows/block-3": b"3"}
del NEWER["rows/block-2"], NEWER["log/7-7"]
NEWER["log/7-9"] = b"n" * 300


def test_only_items_of_equal_name_and_digest_are_used_for_another_snapshot() -> None:
    """Two sources have files of the same name with other bytes (rule 21)."""
    place = disk()
    stage = stage_on(place)
    stage.prepare(snapshot(), 5)
    fill(stage, only={"rows/block-1", "rows/block-2", "log/4-6"})
    stage.write("log/7-7", 0, b"m")
    stage.prepare(snapshot(NEWER, last=9), 6)
    assert set(stage.have()) == {"log/4-6"} and stage.stored("rows/block-1") == 0
    assert place.listdir(f"{PLACE}/log") == ["4-6"] and place.listdir(f"{PLACE}/rows") == []
    fill(stage, NEWER)
    check_complete(stage, NEWER)


def test_a_stage_may_not_outgrow_its_limit() -> None:
    stage = stage_on(disk(), bytes_max=10_000)
    with pytest.raises(Full, match=r"raise \[stage\] bytes_max"):
        stage.prepare(snapshot(), 5)
    small = {"log/4-6": b"l" * 4000, "log/7-7": b"m" * 100}
    stage.prepare(snapshot(small), 5)
    with pytest.raises(Full, match=r"raise \[stage\] bytes_max"):
        stage.write("log/4-6", 0, b"l" * 20_000)
    fill(stage, small)


@pytest.mark.parametrize("spoil", [b"", b"half of it", None])
def test_a_stage_without_a_readable_manifest_is_begun_anew(spoil: bytes | None) -> None:
    place = disk()
    stage = stage_on(place)
    stage.prepare(snapshot(), 5)
    fill(stage, only={"rows/block-1"})
    if spoil is None:
        place.remove(f"{PLACE}/manifest")
    else:
        place.replace(f"{PLACE}/manifest", spoil)
    assert read_manifest(place, LAYOUT, TABLET) is None
    again = stage_on(place)
    again.prepare(snapshot(), 6)
    assert again.have() == {}
    assert read_manifest(place, LAYOUT, TABLET) == StageManifest(tablet_id=TABLET, used_us=6, snapshot=snapshot())


def test_a_stage_that_is_of_another_tablet_is_not_used() -> None:
    place = disk()
    stage_on(place).prepare(snapshot(), 5)
    place.rename(PLACE, f"{LAYOUT.copying}/u")
    assert read_manifest(place, LAYOUT, TabletId("u")) is None


def test_a_stage_is_removed_durably_and_only_if_there_is_one() -> None:
    place = disk()
    before = place.faults.operations
    remove_stage(place, LAYOUT, TABLET)
    assert place.faults.operations == before
    stage_on(place).prepare(snapshot(), 5)
    remove_stage(place, LAYOUT, TABLET)
    assert not place.crash(random.Random(1)).exists(PLACE)


def operations_of(story: Callable[[VirtualDisk], None]) -> int:
    place = disk()
    story(place)
    return place.faults.operations


def both_copies(place: VirtualDisk, side_work: Callable[[], SideWork]) -> None:
    """A copy that was interrupted in the middle, and one of another snapshot that goes on with its stage."""
    stage = stage_on(place, side_work=side_work)
    stage.prepare(snapshot(), 5)
    fill(stage, only={"rows/block-1", "rows/block-2", "log/4-6"})
    stage.write("log/7-7", 0, b"m" * 50)
    stage.prepare(snapshot(NEWER, last=9), 6)
    fill(stage, NEWER)
    stage.settle()


@pytest.mark.parametrize("side_work", [DoneAtOnce, DoneLate])
@pytest.mark.parametrize("seed", range(2))
def test_power_lost_at_any_operation_never_leaves_an_item_that_passes_for_another(
    seed: int, side_work: Callable[[], SideWork]
) -> None:
    named = 0
    for number in range(operations_of(lambda _: None) + 1, operations_of(lambda one: both_copies(one, side_work)) + 1):
        place = disk()
        place.faults.lose_power_after(operations=number - place.faults.operations)
        with suppress(PowerLost):
            both_copies(place, side_work)
        after = place.crash(random.Random(seed * 1000 + number))
        manifest = read_manifest(after, LAYOUT, TABLET)
        if manifest is not None:
            for item in manifest.snapshot.items:
                if after.exists(f"{PLACE}/{item.name}"):
                    assert unit(item.name, after.read_bytes(f"{PLACE}/{item.name}")) == item, number
                    named += 1
        again = stage_on(after)
        again.prepare(snapshot(NEWER, last=9), 7)
        fill(again, NEWER)
        check_complete(again, NEWER)
    assert named > 20


def test_an_item_that_is_renamed_before_it_is_durable_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above catches it."""
    from stelae.sim import disk_file

    sync: Any = disk_file.VirtualFile.sync

    def planted(file: Any, **arguments: Any) -> None:
        if f"{PLACE}/" not in file.path or "/." not in file.path:
            sync(file, **arguments)

    monkeypatch.setattr(disk_file.VirtualFile, "sync", planted)
    with pytest.raises(AssertionError):
        test_power_lost_at_any_operation_never_leaves_an_item_that_passes_for_another(0, DoneAtOnce)


def test_a_manifest_that_is_replaced_before_the_items_are_removed_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above catches it, too."""
    keep: Any = CopyStage._keep_only
    monkeypatch.setattr(CopyStage, "_keep_only", lambda stage, names: keep(stage, set(stage._items)))
    with pytest.raises(AssertionError):
        test_power_lost_at_any_operation_never_leaves_an_item_that_passes_for_another(0, DoneAtOnce)


def test_manifests_round_trip() -> None:
    one = StageManifest(tablet_id=TABLET, used_us=1, snapshot=snapshot())
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(one), type=StageManifest) == one


NAME = "log/4-6"


def test_an_item_that_arrives_from_its_beginning_on_is_not_read_again_when_it_is_complete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = stage_on(disk())
    stage.prepare(snapshot(), 1)
    monkeypatch.setattr("stelae.lifecycle.copy_stage._contents", _must_not_be_read)
    fill_without_checksum(stage, CONTENTS[NAME])
    stage.finish(NAME)
    assert NAME in stage.have()


@pytest.mark.parametrize("restarted", [False, True])
def test_the_digest_of_an_item_that_was_written_in_part_before_is_that_of_the_whole_file(restarted: bool) -> None:
    place = disk()
    stage = stage_on(place)
    stage.prepare(snapshot(), 1)
    stage.write(NAME, 0, CONTENTS[NAME][:1000])
    stage.close()
    stage = stage_on(place) if restarted else stage
    stage.prepare(snapshot(), 2)
    assert stage.stored(NAME) == 1000
    fill_without_checksum(stage, CONTENTS[NAME], 1000)
    stage.finish(NAME)
    assert stage.verify() == [name for name in CONTENTS if name != NAME]


def test_a_write_that_failed_in_part_and_an_item_that_begins_again_do_not_spoil_the_digest() -> None:
    place, data = disk(), CONTENTS[NAME]
    stage = stage_on(place)
    stage.prepare(snapshot(), 1)
    stage.write(NAME, 0, data[:1000])
    file = stage._part(NAME, create=False)
    assert file is not None
    file.pwritev([data[1000:1500]], 1000)  # What a write leaves that fails for lack of space.
    fill_without_checksum(stage, data, stage.stored(NAME))
    stage.finish(NAME)
    other = stage_on(disk())
    other.prepare(snapshot(), 1)
    other.write(NAME, 0, b"x" * 1000)
    other.discard(NAME)
    fill_without_checksum(other, data)
    other.finish(NAME)
    assert NAME in stage.have() and NAME in other.have()


def fill_without_checksum(stage: CopyStage, data: bytes, start: int = 0) -> None:
    for at in range(start, len(data), 700_000):
        stage.write(NAME, at, data[at : at + 700_000])


def _must_not_be_read(*_: object) -> object:
    raise AssertionError("the file is read again")


def test_an_item_is_named_once_it_is_durable_and_a_stage_waits_for_that_before_anybody_relies_on_it() -> None:
    place = disk()
    stage = stage_on(place, side_work=DoneLate)
    late = stage._syncs
    assert isinstance(late, DoneLate)
    stage.prepare(snapshot(), 1)
    stage.write(NAME, 0, CONTENTS[NAME])
    stage.finish(NAME)
    assert late.begun and not place.exists(f"{PLACE}/{NAME}")
    assert NAME in stage.have() and not late.begun
    fill(stage)
    assert late.begun
    check_complete(stage)


def test_an_item_that_cannot_be_made_durable_is_an_error_and_never_counts_as_whole() -> None:
    place = disk()
    stage = stage_on(place, side_work=DoneLate)
    stage.prepare(snapshot(), 1)
    stage.write(NAME, 0, CONTENTS[NAME])
    stage.finish(NAME)
    place.faults.fail_syncs()
    with pytest.raises(SyncFailed):
        stage.settle()
    assert NAME in stage.verify()
