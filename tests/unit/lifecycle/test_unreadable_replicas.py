"""Replicas whose superblock or consensus metadata cannot be read, and their deletion (rules 16 to 22)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stelae.host.metadata_files import MetadataMissing
from stelae.host.superblock import DataState
from stelae.lifecycle.tablet_manager import FenceMismatch
from stelae.sim.disk import VirtualDisk
from stelae.spi.ids import ZERO, LogId, OpId
from stelae_consensus_raft.messages import VoteRefusal
from tests.unit.lifecycle.copy_network import FakeNetwork
from tests.unit.lifecycle.copy_node import CopyNode, tombstone_disk
from tests.unit.lifecycle.disk_node import LAYOUT, OTHER, TABLET, DiskNode, moments

BLOCK, CONSENSUS = LAYOUT.superblock_of(TABLET), LAYOUT.consensus_of(TABLET)


def flipped(*paths: str) -> Callable[[VirtualDisk], None]:
    def flip(disk: VirtualDisk) -> None:
        for path in paths:
            disk.damage(path, 30)

    return flip


def without_superblock(disk: VirtualDisk) -> None:
    disk.remove(BLOCK)
    disk.sync_directory(LAYOUT.superblocks)


def without_metadata(disk: VirtualDisk) -> None:
    disk.remove(CONSENSUS)
    disk.sync_directory(LAYOUT.consensus)


BROKEN = {
    "superblock": flipped(BLOCK),
    "consensus": flipped(CONSENSUS),
    "both": flipped(BLOCK, CONSENSUS),
    "no superblock": without_superblock,
    "no consensus": without_metadata,
}


def started(disk: VirtualDisk) -> CopyNode:
    return CopyNode(disk, FakeNetwork({}))


def broken(how: str) -> CopyNode:
    """A node with two replicas, of which one does not start."""
    disk = DiskNode.with_rows(TABLET, OTHER).disk.clone()
    BROKEN[how](disk)
    node = started(disk)
    assert set(node.loader.failed) == node.loader.unknown_op_ids == {TABLET}
    return node


def seen(node: CopyNode) -> OpId:
    """What a master has seen of the replica: its committed config, if that can be read."""
    config = node.loader.failed_configs.get(TABLET)
    return ZERO if config is None else config.op_id


def delete(node: CopyNode, *, dropped: bool = False) -> list[Any]:
    answers: list[Any] = []
    node.manager.delete(TABLET, "evicted", answers.append, seen=None if dropped else seen(node))
    return answers


def refuses_to_vote(node: CopyNode) -> bool:
    answer = node.vote(99)
    return answer is None or answer.refusal == VoteRefusal.LOG_UNKNOWN


def check_is_deleted(node: CopyNode) -> None:
    """It is a tombstone that never votes, also after a restart, and all that it had is in quarantine."""
    for one in (node, started(node.disk.clone())):
        assert TABLET not in one.loader.failed and TABLET not in one.recovered and OTHER in one.recovered
        block = one.block()
        assert (block.data_state, block.tombstone) == (DataState.DELETED, "UNKNOWN")
        assert LogId(TABLET, 1) not in one.wal.logs() and not one.disk.exists(LAYOUT.data_of(TABLET))
        assert {"about", "data", "wals"} <= set(one.disk.listdir(f"{LAYOUT.root}/{block.quarantine}"))
        assert refuses_to_vote(one)
        assert one.refusal() == "LAST_OP_ID_UNKNOWN"


@pytest.mark.parametrize("dropped", [True, False])
@pytest.mark.parametrize("how", BROKEN)
def test_what_is_left_of_it_goes_to_quarantine_and_it_never_votes(how: str, dropped: bool) -> None:
    """Its rows and its log stayed for ever, and the masters asked every two seconds, even if the table was dropped."""
    node = broken(how)
    kept = {path: node.disk.read_bytes(path) for path in (BLOCK, CONSENSUS) if node.disk.exists(path)}
    assert delete(node, dropped=dropped) == [None]
    check_is_deleted(node)
    assert node.block().removed == dropped
    place = f"{LAYOUT.root}/{node.block().quarantine}"
    for path, name in ((BLOCK, "superblock"), (CONSENSUS, "consensus-meta")):
        if path in kept:
            assert node.disk.read_bytes(f"{place}/{name}") == kept[path], "a person may need it as it is"
        else:
            assert not node.disk.exists(f"{place}/{name}")
    assert delete(node, dropped=dropped) == [None], "it can be repeated"


@pytest.mark.parametrize("how", BROKEN)
def test_at_no_moment_could_an_empty_replica_be_created_in_its_place(how: str) -> None:
    node = broken(how)
    config = seen(node)
    disks = moments(node.disk, lambda: node.manager.delete(TABLET, "evicted", lambda _: None, seen=config))
    assert len(disks) > 10
    for disk in disks:
        again = started(disk.clone())
        assert again.loader.has(TABLET)
        assert again.refusal() == "LAST_OP_ID_UNKNOWN"
        assert refuses_to_vote(again)
        assert delete(again) == [None]
        check_is_deleted(again)


def test_one_whose_config_can_be_read_is_deleted_only_by_compare_and_set() -> None:
    node, answers = broken("superblock"), list[Any]()
    node.manager.delete(TABLET, "evicted", answers.append, seen=OpId(7, 7))
    assert isinstance(answers[0], FenceMismatch)
    assert TABLET in node.loader.failed and LogId(TABLET, 1) in node.wal.logs()


@pytest.mark.parametrize("dropped", [True, False])
def test_a_tombstone_whose_votes_are_lost_stays_one_and_never_votes(dropped: bool) -> None:
    disk = tombstone_disk()
    flipped(CONSENSUS)(disk)
    node = started(disk)
    assert TABLET in node.loader.failed
    assert delete(node, dropped=dropped) == [None]
    for one in (node, started(node.disk.clone())):
        assert TABLET not in one.loader.failed and refuses_to_vote(one)
        assert (one.block().tombstone, one.block().removed) == ("UNKNOWN", dropped)
        assert one.refusal() == "LAST_OP_ID_UNKNOWN"


def test_a_tablet_that_was_never_there_gets_no_tombstone() -> None:
    node, answers = started(DiskNode.with_rows(OTHER).disk.clone()), list[Any]()
    node.manager.delete(TABLET, "dropped", answers.append, seen=None)
    assert "never on this node" in str(answers[0])
    with pytest.raises(MetadataMissing):
        node.block()
