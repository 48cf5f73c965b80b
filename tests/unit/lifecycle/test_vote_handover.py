"""A vote that the tombstone gave while its copy ended, and whose save fails just as the replica starts (rule 20)."""

from __future__ import annotations

from typing import Any

import pytest

from stelae.host.consensus_metadata import VoteRegression
from stelae.lifecycle.copy_states import CopyState
from stelae.lifecycle.tablet_copy import TabletCopy
from stelae.spi.consensus import HardState
from stelae.spi.errors import Full, StorageError
from tests.unit.lifecycle.copy_network import FakeNetwork
from tests.unit.lifecycle.copy_node import FOLLOWER, LEADER, TERM, CopyNode, served, tombstone_disk
from tests.unit.lifecycle.disk_node import TABLET

VOTED = HardState(TERM + 3, FOLLOWER)
FAILURES = [StorageError("input/output error"), Full("no space")]


def voting_at_the_end(node: CopyNode, error: StorageError) -> TabletCopy:
    """Copy; the voter votes after the superblock says READY, and each save of this vote fails for now."""
    recover = node.loader.recover

    def fails(_operation: str, path: str) -> None:
        if "consensus" in path:
            raise error

    def votes(found: Any) -> Any:
        recovered = recover(found)
        node.disk.faults.hook = fails
        node.vote(VOTED.term, FOLLOWER)
        return recovered

    node.loader.recover = votes  # type: ignore[method-assign]
    copy = node.ask()
    assert copy is not None
    for _ in range(4):
        node.pass_time()
    return copy


@pytest.mark.parametrize("error", FAILURES, ids=["input/output", "no space"])
def test_a_vote_that_cannot_be_saved_for_a_while_delays_the_start_of_the_replica(error: StorageError) -> None:
    """The tablet was offline until the node was restarted, although the save was repeated and succeeded."""
    node = CopyNode(tombstone_disk(), FakeNetwork({LEADER: served()}))
    copy = voting_at_the_end(node, error)
    assert copy.sequence.state is CopyState.HOSTING and TABLET not in node.hosted
    node.disk.faults.hook = None
    node.pass_all_time()
    assert copy.sequence.state is CopyState.ENDED
    assert node.hosted[TABLET].hard_state == VOTED and node.loader.failed == {}


def test_while_it_cannot_be_saved_the_tablet_is_shown_as_failed_with_what_follows() -> None:
    node = CopyNode(tombstone_disk(), FakeNetwork({LEADER: served()}))
    voting_at_the_end(node, StorageError("input/output error"))
    assert "input/output error" in node.loader.failed[TABLET]
    assert "the replica starts once its vote is saved" in node.loader.failed[TABLET]


def test_a_voter_that_is_closed_meanwhile_ends_the_copy() -> None:
    """The node stops, and waits for its copies."""
    node = CopyNode(tombstone_disk(), FakeNetwork({LEADER: served()}))
    copy = voting_at_the_end(node, Full("no space"))
    node.peers.voters[TABLET].close()
    node.pass_all_time()
    assert copy.sequence.state is CopyState.ENDED and TABLET not in node.hosted


def test_a_voter_that_has_stopped_for_good_leaves_a_tablet_that_needs_a_restart() -> None:
    node = CopyNode(tombstone_disk(), FakeNetwork({LEADER: served()}))
    copy = voting_at_the_end(node, VoteRegression("the file has a newer vote"))
    assert copy.sequence.state is CopyState.ENDED and TABLET not in node.hosted
    assert "restart the node" in node.loader.failed[TABLET]
