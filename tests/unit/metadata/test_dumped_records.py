"""What ``stelae fs dump`` shows of tablets that were deleted or are being copied."""

from __future__ import annotations

from stelae.cli.fs_dump import dump_files
from stelae.host.superblock import DataState, PartitionBounds, Superblock, SuperblockFile
from stelae.lifecycle.copy_stage import CopyStage
from stelae.partition.schema import HashLevel, PartitionSchema
from stelae.spi.ids import OpId
from tests.unit.lifecycle.disk_node import LAYOUT
from tests.unit.lifecycle.test_copy_stage import CONTENTS, TABLET, disk, snapshot


def test_a_tombstone_of_a_partitioned_table_is_shown_although_it_keeps_no_schemas() -> None:
    """The command ended with an IndexError."""
    place = disk()
    scheme = PartitionSchema((HashLevel((1,), 2),)).to_bytes()
    block = Superblock(
        tablet_id=TABLET,
        data_state=DataState.DELETED,
        tombstone=OpId(2, 20),
        partition=PartitionBounds(hash_buckets=(1,), scheme=scheme),
    )
    SuperblockFile(place, LAYOUT, TABLET).save(block)
    (found,) = dump_files(place, LAYOUT.superblock_of(TABLET), directory=False)
    assert found["record"]["data_state"] == "DELETED" and found["record"]["schemas"] == []


def test_the_stage_of_a_copy_is_shown_with_its_items() -> None:
    place = disk()
    CopyStage(place, LAYOUT, TABLET, 1 << 30).prepare(snapshot(), 5)
    (found,) = (one for one in dump_files(place, LAYOUT.root, directory=True) if one.get("kind") == "copy-stage")
    assert [item["name"] for item in found["record"]["snapshot"]["items"]] == list(CONTENTS)
    place.replace(f"{LAYOUT.stage_of(TABLET)}/manifest", b"STcs but not whole")
    unreadable = [one["path"] for one in dump_files(place, LAYOUT.root, directory=True) if "error" in one]
    assert f"{LAYOUT.stage_of(TABLET)}/manifest" in unreadable
