"""A config that removes a node is in the log of a replica, and is not committed: the node is heard until it is.

Another leader may replace that entry (durability rule 11). That leader can be the node which the entry removes."""

from __future__ import annotations

from unittest.mock import MagicMock

import msgspec

from stelae.host.peer_codec import PeerMessageHeader
from stelae.host.peer_traffic import RemovalNotice
from stelae.spi.consensus import Role
from stelae.spi.ids import OpId
from stelae.spi.members import TabletConfig
from stelae_consensus_raft.messages import AppendEntries, VoteRequest
from tests.unit.consensus_raft.solo import A, entries
from tests.unit.host.test_hostile_peers import FORMER, RUN, World
from tests.unit.host.test_replica_failure import LOG

COMMITTED, REMOVAL = OpId(1, 1), OpId(1, 2)


def in_force(world: World) -> TabletConfig:
    config = world.replica.status.config
    assert world.replica.status.committed_config.op_id == COMMITTED
    return config


def test_a_leader_that_a_pending_config_removes_replaces_that_config() -> None:
    """Seed 683 of the profile ``membership``: a leader appended the removal of a node, reached one follower, and
    crashed. The removed node had every committed entry, and the others elected it. The old leader and the follower
    refused all its messages for ever, because their config in force did not list it, and its committed config was
    theirs. So its next change of members never had a majority."""
    world = World(Role.FOLLOWER, commit=1)
    world.replica._copy_requests = MagicMock()
    assert in_force(world).op_id == REMOVAL and in_force(world).member(FORMER) is None
    header = PeerMessageHeader(LOG.tablet_id, 3, OpId(3, 2), COMMITTED)
    append = AppendEntries(term=3, prev=COMMITTED, commit=1)
    world.traffic.consensus_arrived(FORMER, RUN, world.codec.encode(header, append, entries(2, 3)))
    world.run()
    assert world.replica.status.last == OpId(3, 2)
    assert in_force(world).op_id == COMMITTED and world.replica.status.leader == FORMER


def test_a_candidate_that_a_pending_config_removes_gets_the_vote_of_a_replica_that_has_this_config() -> None:
    """It may have the longest log. Then only it can be elected (Raft thesis, 4.2.2)."""
    world = World(Role.FOLLOWER, commit=1)
    header = PeerMessageHeader(LOG.tablet_id, 3, OpId(2, 3), COMMITTED)
    request = VoteRequest(term=3, last=OpId(2, 3), attempt=1)
    world.traffic.consensus_arrived(FORMER, RUN, world.codec.encode(header, request, ()))
    world.run()
    assert world.replica.core.status().voted_for == FORMER


def test_a_member_that_a_pending_config_removes_can_say_that_a_newer_config_removed_this_node() -> None:
    """The two others may have committed that config without this node, and one of them may be down by now."""
    world = World(Role.FOLLOWER, commit=1)
    world.traffic.removed_arrived(FORMER, [msgspec.msgpack.encode(RemovalNotice(LOG.tablet_id, OpId(3, 9)))])
    world.run()
    assert world.replica.status.role is Role.NON_PARTICIPANT
    world = World(Role.FOLLOWER, commit=1)
    world.traffic.removed_arrived(A, [msgspec.msgpack.encode(RemovalNotice(LOG.tablet_id, REMOVAL))])
    world.run()
    assert world.replica.status.role is Role.FOLLOWER, "its own log has that config"
