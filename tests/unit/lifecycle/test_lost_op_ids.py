"""Which replicas lost their last op id: masters never make such a replica a member again (rule 19)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stelae.host.superblock import SuperblockFile
from stelae.spi.ids import LogId
from tests.unit.lifecycle.disk_node import LAYOUT, OTHER, TABLET, DiskNode


def no_superblock(node: DiskNode) -> None:
    node.disk.damage(LAYOUT.superblock_of(TABLET), 30)


def no_consensus(node: DiskNode) -> None:
    node.disk.damage(LAYOUT.consensus_of(TABLET), 30)


def no_log(node: DiskNode) -> None:
    node.wal.drop(LogId(TABLET, 1))


@pytest.mark.parametrize("breaks", [no_superblock, no_consensus, no_log])
def test_one_whose_log_superblock_or_metadata_cannot_be_read_has_lost_it(breaks: Callable[[DiskNode], None]) -> None:
    node = DiskNode.with_rows(TABLET, OTHER)
    breaks(node)
    again = DiskNode(node.disk.clone())
    assert OTHER in again.recovered()
    assert set(again.loader.failed) == again.loader.unknown_op_ids == {TABLET}


@pytest.mark.parametrize("name", ["g1-000000000001.seg", "g1.base"])
def test_one_whose_log_cannot_be_read_now_is_offline_and_has_lost_nothing(name: str) -> None:
    node = DiskNode.with_rows(TABLET, OTHER)
    node.wal.close()
    disk = node.disk.clone()
    disk.faults.fail_reads(f"{TABLET}/{name}", 1 << 30)
    again = DiskNode(disk)
    assert list(again.recovered()) == [OTHER]
    assert "cannot be read now; the next start" in again.loader.failed[TABLET] and name in again.loader.failed[TABLET]
    assert not again.loader.unknown_op_ids
    again.wal.close()
    disk.faults.heal()
    assert set(DiskNode(disk).recovered()) == {TABLET, OTHER}


def test_one_that_fails_for_another_reason_still_knows_it() -> None:
    node = DiskNode.with_rows(TABLET, OTHER)
    block = node.block()
    other_engine = type(block)(**{n: getattr(block, n) for n in block.__struct_fields__} | {"store_engine": "other"})
    SuperblockFile(node.disk, LAYOUT, TABLET).save(other_engine)
    again = DiskNode(node.disk.clone())
    again.recovered()
    assert TABLET in again.loader.failed and not again.loader.unknown_op_ids
