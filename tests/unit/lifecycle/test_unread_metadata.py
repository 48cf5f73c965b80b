"""A tablet whose metadata the disk does not return, or may not have, stays offline until the next start of its node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stelae.host.metadata_files import CrashPoints
from stelae.host.tombstone_voter import SAVE_AGAIN_US
from stelae.lifecycle.copy_guards import CopyRefusalCode
from stelae.sim.disk import VirtualDisk
from stelae.spi.errors import Full
from stelae.spi.members import MemberType
from tests.unit.lifecycle.copy_node import CopyNode, check_complete, never_disk, tombstone_disk
from tests.unit.lifecycle.disk_node import LAST, LAYOUT, TABLET
from tests.unit.lifecycle.test_tablet_copy import ADOPTED, lagging, network


class _Passes(CrashPoints):
    """Calls something when a point is passed."""

    def __init__(self, point: str, call: Callable[[], None]) -> None:
        self.point, self.call = point, call

    def hit(self, point: str) -> None:
        if point == self.point:
            self.call()


@pytest.mark.parametrize("path", [LAYOUT.superblock_of(TABLET), LAYOUT.consensus_of(TABLET)])
@pytest.mark.parametrize("disk", [tombstone_disk, never_disk])
@pytest.mark.parametrize("held", [False, True])
def test_a_copied_replica_whose_metadata_cannot_be_read_now_is_failed(
    path: str, disk: Callable[[], VirtualDisk], held: bool
) -> None:
    """It was neither a replica nor failed, so masters took it for deleted."""
    node = CopyNode(disk(), network(), _Passes("" if held else "copy.after_stage_removed", lambda: fail()))

    def fail() -> None:
        node.disk.faults.fail_reads(path)

    if held:
        hold = node.tombstones.hold
        node.tombstones.hold = lambda tablet: (fail(), hold(tablet))  # type: ignore[func-returns-value, method-assign]
    copy = node.ask_until_end(member_type=MemberType.PRE_VOTER)
    assert copy.sequence.committed
    if held and path == LAYOUT.superblock_of(TABLET):
        assert TABLET in node.hosted, "nothing reads it any more"
        node.disk.faults.heal()
    else:
        assert node.hosted == {} and "cannot be read" in node.loader.failed[TABLET]
        assert TABLET not in node.tombstones._held
    assert TABLET not in node.loader.unknown_op_ids
    check_complete(node, ADOPTED)


@pytest.mark.parametrize("path", [LAYOUT.superblock_of(TABLET), LAYOUT.consensus_of(TABLET)])
def test_a_replica_whose_files_cannot_be_read_then_is_failed_until_it_is_deleted(path: str) -> None:
    """A tablet that is neither a replica nor failed counts as deleted."""
    node, answers = lagging(), list[Any]()

    def fails(_operation: str, where: str) -> None:
        if where.startswith(f"{LAYOUT.quarantine}/"):
            node.disk.faults.fail_reads(path)
            raise Full("no space", path=where)

    node.disk.faults.hook = fails
    node.manager.delete(TABLET, "dropped", answers.append, seen=None)
    assert isinstance(answers.pop(), Full)
    assert TABLET not in node.peers.replicas and "cannot be read" in node.loader.failed[TABLET]
    node.disk.faults.hook = None
    node.manager.delete(TABLET, "dropped", answers.append, seen=None)
    assert answers == [None] and (node.block().tombstone, node.block().removed) == (LAST, True)
    assert TABLET not in node.loader.failed


def test_no_copy_begins_over_a_tombstone_whose_last_vote_may_not_be_durable() -> None:
    """Each one fetched and installed everything, ended when it merged its metadata, and was asked for again."""
    node = CopyNode(tombstone_disk(), network())
    node.disk.faults.fail_syncs("consensus-meta/")
    assert node.vote(6) is None
    tree = node.disk.tree()
    node.ask()
    refusal = node.copies.last_refusal(TABLET)
    assert refusal.startswith(CopyRefusalCode.OFFLINE) and "cannot vote" in refusal
    assert node.disk.tree() == tree and not node.network.asked
    again = CopyNode(node.disk.clone(), network())
    assert again.ask_until_end().sequence.committed
    node.pass_us(SAVE_AGAIN_US)
    assert node.ask_until_end().sequence.committed
