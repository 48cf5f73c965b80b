"""The invariants of a core between two events. Tests and the simulator check them."""

from __future__ import annotations

from stelae.spi.consensus import Role
from stelae_consensus_raft.raft_state import RaftState


def check(state: RaftState) -> None:
    """Check the invariants of a replica.

    Raises:
        AssertionError: one does not hold.
    """
    _check_log(state)
    _check_role(state)
    _check_peers(state)


def _check_log(state: RaftState) -> None:
    state.log.validate()
    state.configs.validate(state.log.last_index)
    assert state.log.last_term <= state.term, "the log has an entry of a later term"
    assert state.log.base.index <= state.durable.index <= state.log.last_index
    assert state.applied <= state.commit
    assert state.all_replicated <= state.commit
    if state.serving:
        assert state.log.term_at(state.commit) == state.term


def _check_role(state: RaftState) -> None:
    assert (state.role is Role.LEADER) == (state.leadership is not None)
    assert (state.role is Role.LEADER) == (state.leader == state.node_id)
    assert (state.role is Role.CANDIDATE) == (state.campaign is not None)
    if state.role is Role.CANDIDATE:
        assert state.may_campaign
        assert state.log.last >= state.vote_floor, "it campaigns without entries that it has acknowledged"
    if state.role is Role.LEADER:
        assert not (state.is_caretaker and state.serving), "a caretaker serves"
        assert state.voted_for == state.node_id
        assert state.election_deadline_us is None
    elif state.may_campaign:
        assert state.election_deadline_us is not None, "no election deadline: this replica would never campaign"


def _check_peers(state: RaftState) -> None:
    leadership = state.leadership
    if leadership is None:
        return
    assert state.node_id not in leadership.peers
    for peer in leadership.peers.values():
        peer.validate()
        assert peer.match <= state.log.last_index
        assert peer.next <= state.log.last_index + 1
        assert peer.round_acked <= leadership.reads.round
    for peer in leadership.learners:
        assert peer.catch_up is not None
    if state.config.op_id != state.configs.committed.op_id:
        return  # Entries below the new config were committed by a majority of the one before.
    reached = sum(peer.match >= state.commit for peer in leadership.voting)
    reached += state.is_voter and state.durable.index >= state.commit
    if state.serving:
        assert reached >= state.majority, "committed without a majority"
