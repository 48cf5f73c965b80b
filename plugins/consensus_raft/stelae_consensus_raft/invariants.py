"""Everything that must hold in a core between two events. Tests and the simulator check it."""

from __future__ import annotations

from stelae.spi.consensus import Role
from stelae_consensus_raft.replica import Replica


def check(replica: Replica) -> None:
    """Check a replica; raises ``AssertionError``."""
    _check_log(replica)
    _check_role(replica)
    _check_peers(replica)


def _check_log(replica: Replica) -> None:
    replica.log.validate()
    replica.configs.validate(replica.log.last_index)
    assert replica.log.last_term <= replica.term, "an entry of a term that has not begun"
    assert replica.log.base.index <= replica.durable.index <= replica.log.last_index
    assert replica.applied <= replica.commit
    assert replica.all_replicated <= replica.commit
    if replica.serving:
        assert replica.log.term_at(replica.commit) == replica.term


def _check_role(replica: Replica) -> None:
    assert (replica.role is Role.LEADER) == (replica.leadership is not None)
    assert (replica.role is Role.LEADER) == (replica.leader == replica.node_id)
    assert (replica.role is Role.CANDIDATE) == (replica.campaign is not None)
    if replica.role in (Role.LEADER, Role.CANDIDATE):
        assert replica.is_voter
    if replica.role is Role.LEADER:
        assert replica.voted_for == replica.node_id
        assert replica.election_deadline_us is None
    elif replica.may_campaign:
        assert replica.election_deadline_us is not None, "would never campaign"


def _check_peers(replica: Replica) -> None:
    lead = replica.leadership
    if lead is None:
        return
    assert replica.node_id not in lead.peers
    for peer in lead.peers.values():
        peer.validate()
        assert peer.match <= replica.log.last_index
        assert peer.next <= replica.log.last_index + 1
        assert peer.round_acked <= lead.reads.round
    reached = sum(peer.match >= replica.commit for peer in lead.voting)
    reached += replica.is_voter and replica.durable.index >= replica.commit
    if replica.serving:
        assert reached >= replica.majority, "committed without a majority"
