"""A copy that ends early goes back to what was before it, whatever step a crash comes at (T2, rule 19)."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Literal

import msgspec
import pytest

from stelae.host.consensus_metadata import ConsensusMetadata
from stelae.host.superblock import DataState, SuperblockFile
from stelae.lifecycle.abandoned_copy import abandon_copy
from stelae.lifecycle.blocking_steps import run_now
from stelae.lifecycle.startup_decisions import StartupAction
from stelae.sim.disk import Survival, VirtualDisk
from stelae.sim.disk_faults import PowerLost
from stelae.spi.consensus import HardState
from stelae.spi.errors import SyncFailed
from stelae.spi.ids import LogId, OpId
from stelae.spi.members import TabletConfig
from tests.unit.lifecycle.disk_node import LAST, LAYOUT, NODE, OTHER, TABLET, DiskNode, ids

OLD, NEW = LogId(TABLET, 1), LogId(TABLET, 2)


def copying(kept: OpId | Literal["UNKNOWN"]) -> VirtualDisk:
    """A node that deleted its replica, and then copied it nearly to the end: log and rows are installed."""
    node = DiskNode.with_rows(TABLET, OTHER)
    node.delete(last=kept)
    block = msgspec.structs.replace(node.block(), data_state=DataState.COPYING, tombstone=kept, generation=2)
    SuperblockFile(node.disk, LAYOUT, TABLET).save(block)
    return installed(node)


def first_copy() -> VirtualDisk:
    """A node without the tablet that copied it nearly to the end: its metadata was saved as well."""
    node = DiskNode.with_rows(TABLET, OTHER)
    block = msgspec.structs.replace(node.block(), data_state=DataState.COPYING, generation=2)
    node.delete()
    node.disk.remove(LAYOUT.superblock_of(TABLET))
    node.disk.remove(LAYOUT.consensus_of(TABLET))
    node.disk.remove_tree(LAYOUT.quarantine)
    node.disk.make_directory(LAYOUT.quarantine)
    SuperblockFile(node.disk, LAYOUT, TABLET).save(block)
    ConsensusMetadata(node.disk, LAYOUT, TABLET).save(HardState(7, None), TabletConfig(op_id=OpId(3, 50), members=()))
    return installed(node)


def installed(node: DiskNode) -> VirtualDisk:
    node.wal.create(NEW, OpId(9, 99))  # Of another's history: not ours to speak of.
    for path in (LAYOUT.data_of(TABLET), LAYOUT.stage_of(TABLET)):
        node.disk.make_directory(path)
        node.disk.replace(f"{path}/rows", b"rows")
    for parent in (LAYOUT.data, LAYOUT.copying, LAYOUT.superblocks, LAYOUT.consensus):
        node.disk.sync_directory(parent)
    return node.disk.clone()


def check_nothing_of_the_copy_is_left(node: DiskNode) -> None:
    recovered = node.recovered()
    assert set(recovered) == {OTHER} and ids(recovered[OTHER]) == list(range(1, 10)), "nobody else is disturbed"
    assert not node.loader.failed
    assert {log.tablet_id for log in node.wal.logs()} == {OTHER}
    assert not node.disk.exists(LAYOUT.data_of(TABLET)) and not node.disk.exists(LAYOUT.stage_of(TABLET))


@pytest.mark.parametrize("kept", [LAST, "UNKNOWN"])
def test_a_copy_over_a_tombstone_is_that_tombstone_again_without_a_look_into_its_log(
    kept: OpId | Literal["UNKNOWN"],
) -> None:
    node = DiskNode(copying(kept))
    found = node.loader.inspect(TABLET, node.wal.logs())
    assert found.decision.action is StartupAction.DELETE_SELF
    check_nothing_of_the_copy_is_left(node)
    block = node.block()
    assert block.data_state is DataState.DELETED and block.tombstone == kept
    assert block.quarantine == "quarantine/t.1", "what it had can be restored"
    assert ConsensusMetadata(node.disk, LAYOUT, TABLET).load().hard_state == HardState(4, NODE)


def test_of_a_first_copy_nothing_is_left_so_that_it_never_votes_as_an_empty_replica() -> None:
    """It became a tombstone at 0.0, and voted for anyone. A voter that had lost its replica would have done so, too."""
    node = DiskNode(first_copy())
    found = node.loader.inspect(TABLET, node.wal.logs())
    assert found.decision.action is StartupAction.REMOVE
    check_nothing_of_the_copy_is_left(node)
    check_it_does_not_exist(node)


def check_it_does_not_exist(node: DiskNode) -> None:
    assert node.loader.inspect(TABLET, node.wal.logs()).decision.action is StartupAction.NOTHING
    assert not node.disk.exists(LAYOUT.superblock_of(TABLET)) and not node.disk.exists(LAYOUT.consensus_of(TABLET))


@pytest.mark.parametrize("first", [True, False])
def test_a_way_back_that_is_repeated_after_a_failed_sync_survives_a_power_loss(first: bool) -> None:
    """The second attempt found no metadata of the first copy, and did not sync their removal. They came back alone, and
    the tablet was failed for good: a replica with promises and without a superblock."""
    syncs = 0
    while True:
        disk = first_copy() if first else copying(LAST)
        node, left = DiskNode(disk), [syncs]
        block = node.block()

        def fails(operation: str, path: str, left: list[int] = left) -> None:
            left[0] -= operation == "sync_directory"
            if left[0] == -1 and operation == "sync_directory":
                raise SyncFailed("input/output error", path=path)

        disk.faults.hook = fails
        with suppress(SyncFailed):
            run_now(abandon_copy(disk, LAYOUT, block, keep_stage=False), node.wal)
        disk.faults.hook = None
        if left[0] >= 0:
            break
        run_now(abandon_copy(disk, LAYOUT, block, keep_stage=False), node.wal)
        after = DiskNode(disk.crash(random.Random(1), Survival.LOST))
        check_nothing_of_the_copy_is_left(after)
        if first:
            check_it_does_not_exist(after)
        syncs += 1
    assert syncs > 4


@pytest.mark.parametrize("first", [True, False])
def test_power_lost_at_any_operation_of_the_way_back_is_made_up_for_at_the_next_start(first: bool) -> None:
    disk = first_copy() if first else copying(LAST)
    clean = disk.clone()
    node = DiskNode(clean)
    begun = clean.faults.operations
    node.recovered()
    count = clean.faults.operations - begun
    assert count > 8
    for number in range(1, count + 1):
        broken = disk.clone()
        again = DiskNode(broken)
        broken.faults.lose_power_after(operations=number)
        with suppress(PowerLost):
            again.recovered()
        after = DiskNode(broken.crash(random.Random(number)))
        check_nothing_of_the_copy_is_left(after)
        if first:
            check_it_does_not_exist(after)
        else:
            assert after.block().tombstone == LAST and after.block().data_state is DataState.DELETED
