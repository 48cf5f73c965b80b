"""Deletion: whatever step a crash comes at, the replica is whole or a clean tombstone after the restart (T2, T10)."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from stelae.host.consensus_metadata import ConsensusMetadata
from stelae.host.metadata_files import CrashPoints
from stelae.host.superblock import DataState
from stelae.lifecycle.deletion import roll_forward
from stelae.lifecycle.quarantine import list_quarantine, purge
from stelae.sim.disk import Survival, VirtualDisk
from stelae.sim.disk_faults import PowerLost
from stelae.spi.consensus import HardState
from stelae.spi.errors import SyncFailed
from stelae.spi.ids import LogId
from tests.unit.lifecycle.disk_node import LAST, LAYOUT, NODE, OTHER, TABLET, DiskNode, ids, moments
from tests.unit.lifecycle.test_restore_from_quarantine import restored

POINTS = [
    "delete.after_quarantine_directory",
    "delete.after_superblock_copy",
    "superblock.before_replace",
    "superblock.after_replace",
    "delete.after_tombstone",
    "delete.after_consensus_copy",
    "delete.after_data_moved",
    "delete.after_data_durable",
    "delete.after_log",
]


class Killed(Exception):
    """The process ended here."""


class KillAt(CrashPoints):
    """Ends the process when a point is passed."""

    def __init__(self, point: str) -> None:
        self.point = point

    def hit(self, point: str) -> None:
        if point == self.point:
            raise Killed(point)


def check_after(disk: VirtualDisk) -> str:
    """Start on a disk after a crash; say what became of the tablet, having checked that nothing is between."""
    node = DiskNode(disk)
    recovered = node.recovered()
    assert not node.loader.failed
    assert ids(recovered[OTHER]) == list(range(1, 10)), "nobody else is disturbed"
    record = ConsensusMetadata(disk, LAYOUT, TABLET).load()
    assert record.hard_state == HardState(4, NODE), "term and vote stay for ever"
    if TABLET in recovered:
        assert ids(recovered[TABLET]) == list(range(1, 10))
        assert disk.listdir(LAYOUT.quarantine) == [], "what was begun is gone"
        return "READY"
    check_tombstone(node)
    again = DiskNode(disk.clone())
    assert TABLET not in again.recovered()
    check_tombstone(again)
    return "DELETED"


def check_tombstone(node: DiskNode) -> None:
    block = node.block()
    assert block.data_state is DataState.DELETED and block.tombstone == LAST
    assert not block.manifest and not block.schemas and not block.results, "records of the deleted are small"
    assert LogId(TABLET, 1) not in node.wal.logs()
    assert not node.disk.exists(LAYOUT.data_of(TABLET))
    assert block.quarantine is not None
    place = f"{LAYOUT.root}/{block.quarantine}"
    assert node.disk.listdir(place) == ["about", "consensus-meta", "data", "superblock", "wals"]
    assert node.disk.listdir(f"{place}/data") == ["rows-3"] and node.disk.listdir(f"{place}/wals")
    assert node.disk.listdir(LAYOUT.quarantine) == ["t.1"]


def test_a_deleted_replica_is_a_tombstone_and_its_data_are_set_aside() -> None:
    node = DiskNode.with_rows(TABLET, OTHER)
    node.delete()
    check_tombstone(node)
    assert check_after(node.disk.clone()) == "DELETED"


@pytest.mark.parametrize("point", POINTS)
def test_a_process_that_is_killed_at_a_step_leaves_a_whole_replica_or_a_clean_tombstone(point: str) -> None:
    disk = DiskNode.with_rows(TABLET, OTHER).disk.clone()
    with pytest.raises(Killed):
        DiskNode(disk, KillAt(point)).delete()
    expected = "READY" if POINTS.index(point) < POINTS.index("superblock.after_replace") else "DELETED"
    assert check_after(disk.clone()) == expected


@pytest.mark.parametrize("seed", range(2))
def test_power_lost_at_any_operation_leaves_a_whole_replica_or_a_clean_tombstone(seed: int) -> None:
    clean = DiskNode.with_rows(TABLET, OTHER)
    begun = clean.disk.faults.operations
    clean.delete()
    seen = set()
    for number in range(1, clean.disk.faults.operations - begun + 1):
        node = DiskNode.with_rows(TABLET, OTHER)
        node.disk.faults.lose_power_after(operations=number)
        with suppress(PowerLost):
            node.delete()
        seen.add(check_after(node.disk.crash(random.Random(seed * 1000 + number))))
    assert seen == {"READY", "DELETED"}


def test_what_a_start_makes_of_a_process_that_was_killed_at_any_operation_survives_a_power_loss() -> None:
    node = DiskNode.with_rows(TABLET, OTHER)
    killed = moments(node.disk, node.delete)
    seen = set()
    for number, disk in enumerate(killed):
        for survival in (Survival.LOST, Survival.DRAWN):
            start = disk.clone()
            DiskNode(start).recovered()
            after = start.crash(random.Random(number), survival)
            seen.add(state := check_after(after))
            if state == "DELETED":
                restored(again := DiskNode(after.clone()))
                assert ids(again.recovered()[TABLET]) == list(range(1, 10)), "the quarantine has the replica"
    assert len(killed) > 20 and seen == {"READY", "DELETED"}


def test_power_lost_while_a_deletion_is_rolled_forward_is_made_up_for_at_the_next_start() -> None:
    disk = DiskNode.with_rows(TABLET, OTHER).disk.clone()
    with pytest.raises(Killed):
        DiskNode(disk, KillAt("delete.after_tombstone")).delete()
    disk = disk.clone()
    clean = disk.clone()
    node = DiskNode(clean)
    begun = clean.faults.operations
    node.recovered()
    for number in range(1, clean.faults.operations - begun + 1):
        broken = disk.clone()
        again = DiskNode(broken)
        broken.faults.lose_power_after(operations=number)
        with suppress(PowerLost):
            again.recovered()
        assert check_after(broken.crash(random.Random(number))) == "DELETED"


def test_a_quarantine_that_was_emptied_keeps_what_a_killed_process_has_moved_there() -> None:
    disk = DiskNode.with_rows(TABLET, OTHER).disk.clone()
    with pytest.raises(Killed):
        DiskNode(disk, KillAt("delete.after_tombstone")).delete()
    disk = disk.clone()
    purge(disk, LAYOUT, ["t.1"])
    for killed in moments(disk, lambda: DiskNode(disk).recovered()):
        DiskNode(killed).recovered()
        after = killed.crash(random.Random(1), Survival.LOST)
        place = f"{LAYOUT.quarantine}/t.1"
        assert after.listdir(f"{place}/data") == ["rows-3"] and after.listdir(f"{place}/wals")


def test_a_tombstone_whose_sync_failed_is_durable_before_the_data_are_set_aside() -> None:
    node = DiskNode.with_rows(TABLET, OTHER)

    def fails(operation: str, path: str) -> None:
        if operation == "sync_directory" and path.endswith("tablet-meta"):
            raise SyncFailed("input/output error", path=path)

    node.disk.faults.hook = fails
    with pytest.raises(SyncFailed):
        node.delete()
    node.disk.faults.hook = None
    roll_forward(node.disk, LAYOUT, node.block(), node.wal.set_aside)
    assert check_after(node.disk.crash(random.Random(1), Survival.LOST)) == "DELETED"


def test_each_deletion_has_a_directory_of_its_own() -> None:
    node = DiskNode.with_rows(TABLET, OTHER)
    node.delete(TABLET)
    node.delete(OTHER)
    assert [(one.name, one.about.reason if one.about else "") for one in list_quarantine(node.disk, LAYOUT)] == [
        ("other.1", "test"),
        ("t.1", "test"),
    ]
