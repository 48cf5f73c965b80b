"""A replica that was set aside for a copy can be restored if the copy is abandoned (rule 23)."""

from __future__ import annotations

import random

import msgspec
import pytest

from stelae.host.superblock import DataState, SuperblockFile
from stelae.lifecycle import abandoned_copy
from stelae.lifecycle.restore_from_quarantine import BackInTime
from stelae.sim.disk import Survival, VirtualDisk
from stelae.spi.consensus import HardState
from stelae.spi.copy_plan import CopyOutcome
from tests.unit.lifecycle.copy_node import (
    CONFIG,
    CopyNode,
    FakeNetwork,
    KillAt,
    Killed,
    check_complete,
    check_tombstone,
)
from tests.unit.lifecycle.disk_node import LAST, LAYOUT, TABLET, DiskNode, ids
from tests.unit.lifecycle.test_interrupted_copy import LOST
from tests.unit.lifecycle.test_restore_from_quarantine import refused, restored
from tests.unit.lifecycle.test_tablet_copy import ADOPTED, VOTED, lagging, network


def without_sources(node: CopyNode) -> CopyNode:
    """Ask for a copy whose sources are all lost at the third chunk. Return the node after its next start."""
    chunks: list[str] = []

    def lose(item: str) -> CopyOutcome | None:
        chunks.append(item)
        if len(chunks) < 3:
            return None
        node.network.sources.clear()
        return LOST

    node.network.on_chunk = lose
    copy = node.ask_until_end(hosted=TABLET in node.peers.replicas)
    assert copy.sequence.marked and not copy.sequence.committed
    check_tombstone(node, VOTED)
    return CopyNode(node.disk.clone(), network())


def check_restored(disk: VirtualDisk, voted: HardState = VOTED) -> CopyNode:
    """Restore what is in quarantine: the replica has every row again, the vote since, and starts."""
    stopped = DiskNode(disk.clone())
    restored(stopped)
    node = CopyNode(stopped.disk.crash(random.Random(1), Survival.LOST), network())
    assert not node.loader.failed and ids(node.recovered[TABLET]) == list(range(1, 10))
    assert node.recovered[TABLET].log.last == LAST and node.metadata()[0] == voted
    return node


@pytest.mark.parametrize("times", [1, 2])
def test_a_lagging_replica_whose_copy_lost_all_its_sources_can_be_restored(times: int) -> None:
    """Its tombstone named no quarantine directory any more. If the sources did not come back, the last copy of the
    tablet was in quarantine, could not be restored, and was purged after a week."""
    node = lagging()
    for _ in range(times):
        node = without_sources(node)
    assert (node.block().generation, node.block().quarantine) == (1 + times, "quarantine/t.1")
    again = check_restored(node.disk)
    one = again.recovered.pop(TABLET)
    again.add_replica(TABLET, one.superblock, one.consensus)
    assert again.ask_until_end(hosted=True).sequence.committed, "and is copied as before once there is a source"
    check_complete(again, ADOPTED)


def test_a_replica_whose_copy_was_killed_before_the_metadata_was_merged_can_be_restored() -> None:
    crash = KillAt("copy.after_rows")
    node = lagging(crash=crash)
    with pytest.raises(Killed):
        node.ask_until_end(hosted=True)
    started = CopyNode(node.disk.clone(), FakeNetwork({}))
    check_tombstone(started, VOTED)
    check_restored(started.disk)


def test_a_replica_whose_copy_was_killed_after_the_merge_is_refused() -> None:
    """Its log lacks the committed config that its node knows by then. It would not start, and would never vote again.
    The tombstone still votes."""
    node = lagging(crash=KillAt("copy.after_merge"))
    with pytest.raises(Killed):
        node.ask_until_end(hosted=True)
    started = CopyNode(node.disk.clone(), network())
    check_tombstone(started, ADOPTED)
    assert started.metadata()[1] == CONFIG.op_id
    refused(DiskNode(started.disk.clone()), BackInTime, "the committed config of 4.22")
    assert started.ask_until_end().sequence.committed
    check_complete(started, ADOPTED)


def test_a_replica_that_was_copied_is_not_taken_back_to_what_was_set_aside() -> None:
    node = lagging()
    assert node.ask_until_end(hosted=True).sequence.committed
    assert node.block().quarantine is None
    refused(DiskNode(node.disk.clone()), BackInTime, "is READY on this node")


def test_a_superblock_of_a_later_generation_than_the_tombstone_is_refused() -> None:
    node = DiskNode(without_sources(lagging()).disk.clone())
    path = f"{LAYOUT.quarantine}/t.1/superblock"
    later = msgspec.structs.replace(node.block(), data_state=DataState.READY, generation=3)
    block = SuperblockFile(node.disk, LAYOUT, TABLET)
    before = block.load()
    block.save(later)
    node.disk.replace(path, node.disk.read_bytes(LAYOUT.superblock_of(TABLET)))
    node.disk.remove(LAYOUT.superblock_of(TABLET))
    block.save(before)
    refused(node, BackInTime, "is not of this replica: it is of t/3")


def test_a_quarantine_that_an_abandoned_copy_forgets_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    of = abandoned_copy.tombstone_of

    def planted(*args: object) -> object:
        return msgspec.structs.replace(of(*args), quarantine=None)  # type: ignore[arg-type]

    monkeypatch.setattr(abandoned_copy, "tombstone_of", planted)
    with pytest.raises(AssertionError, match=r"quarantine/t\.1"):
        test_a_lagging_replica_whose_copy_lost_all_its_sources_can_be_restored(1)
