"""The Raft engine holds to the consensus contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from stelae.spi.consensus import CopyRequest, Outbound
from stelae.spi.consensus_events import (
    BeatException,
    ChangeMembers,
    RangeCompacted,
    RangeSent,
    RecoverAlone,
    Removed,
    StandDown,
)
from stelae.spi.ids import ZERO, NodeId, OpId
from stelae.spi.members import AddServer, Member, TabletConfig
from stelae.spi.recovery_epoch import recovery_id
from stelae.testing.conformance.consensus import ConsensusConformance, ConsensusHarness
from stelae_consensus_raft import config_change_rules, election, membership, raft_state
from stelae_consensus_raft.commit_rule import RaftCommitRule
from stelae_consensus_raft.config_change_rules import Refusal, changed_members
from stelae_consensus_raft.config_history import ConfigHistory
from stelae_consensus_raft.core import RaftCore
from stelae_consensus_raft.durable_index import DurableIndex
from stelae_consensus_raft.election import Elections
from stelae_consensus_raft.follower import Follower
from stelae_consensus_raft.leader import Leader
from stelae_consensus_raft.leader_state import LeaderState
from stelae_consensus_raft.leadership_transfer import RaftTransfers
from stelae_consensus_raft.membership import RaftMembership
from stelae_consensus_raft.messages import TimeoutNow, VoteRefusal, VoteRequest
from stelae_consensus_raft.progress import Progress
from stelae_consensus_raft.raft_state import RaftState
from stelae_consensus_raft.ready_builder import ReadyBuilder
from stelae_consensus_raft.recovery import RaftRecovery
from stelae_consensus_raft.replication import Replicator
from stelae_consensus_raft.vote_rules import VoterState, decide_vote
from tests.conformance.consensus_plants import PlantedBug, assert_caught, names_of, raft_harness


class TestRaft(ConsensusConformance):
    @pytest.fixture
    def harness(self) -> ConsensusHarness:
        return raft_harness()


# -- the suite bites: each planted bug is caught by the check that is named beside it --------------


def _forgets_vote(self: RaftState, candidate: NodeId) -> None:
    self.voted_for = candidate


def _votes_for_anybody(request: VoteRequest, candidate: NodeId, ballot: VoterState) -> None:
    return None


def _ignores_the_log(request: VoteRequest, candidate: NodeId, ballot: VoterState) -> VoteRefusal | None:
    shortest = VoterState(term=ballot.term, voted_for=ballot.voted_for, last=ZERO, leader_alive=ballot.leader_alive)
    return decide_vote(request, candidate, shortest)


def _sends_before_durable(self: ReadyBuilder, to: NodeId, message: msgspec.Struct, term: int) -> None:
    self._at_once.append(Outbound(to, message, term))


def _commits_any_term(self: RaftCommitRule, lead: LeaderState) -> None:
    replica = self._state
    replica.commit_to(self.majority_value(replica.durable.index, [peer.match for peer in lead.voting]))


def _counts_itself_at_append(self: DurableIndex, ready_id: int, last_index: int) -> None:
    self.index = last_index


def _has_no_floor(self: DurableIndex, ready_id: int, index: int) -> None:
    self.index = min(self.index, index - 1)


def _counts_learners(self: RaftCommitRule, own: int, values: list[int]) -> int:
    lead = self._state.leadership
    assert lead is not None
    learners = [p.match for p in lead.peers.values() if p not in lead.voting]
    ranked = sorted([own, *values, *learners], reverse=True)
    return ranked[self._state.majority - 1]


def _confirms_reads_by_itself(self: Leader, lead: LeaderState) -> None:
    self._state.ready.reads_ready.extend(lead.reads.confirmed(lead.reads.round))


def _keeps_replaced_configs(self: ConfigHistory, index: int) -> bool:
    return False


def _never_gives_up(self: Leader, lead: LeaderState) -> None:
    return None


def _tells_no_commit(self: Replicator, lead: LeaderState, peer: Progress) -> None:
    return None


def _holds_back_whatever_it_hears(self: RaftCore, event: object) -> bool:
    return True


def _tells_a_successor_that_lags(self: RaftTransfers) -> None:
    lead = self._state.leadership
    if lead is not None and lead.handover is not None and not lead.handover.timeout_now_sent:
        lead.handover.timeout_now_sent = True
        self._state.send(lead.handover.to, TimeoutNow(term=self._state.term))


def _hands_over_for_ever(self: RaftTransfers) -> None:
    return None


def _hears_no_compaction(self: Leader, event: RangeCompacted) -> None:
    self.on_range_sent(RangeSent(event.peer, event.asked, None))


def _copies_no_damaged_replica(self: Leader, event: BeatException) -> None:
    return None


def _probes_with_the_next_request(self: Leader, peer: Progress, first_index: int) -> None:
    self._replicator.request_copy(peer, first_index)


def _leaves_out_silent_peers(self: RaftCommitRule, lead: LeaderState) -> None:
    heard = [peer.match for peer in lead.peers.values() if peer.match]
    self._state.advance_all_replicated(min([self._state.durable.index, *heard]))


def _leaves_out_learners(self: RaftCommitRule, lead: LeaderState) -> None:
    self._state.advance_all_replicated(min([self._state.durable.index, *(peer.match for peer in lead.voting)]))


def _leaves_out_whom_it_removes(self: RaftCommitRule, lead: LeaderState) -> None:
    own = self._state.durable.index
    self._state.advance_all_replicated(min([own, *(peer.match for peer in lead.peers.values())]))


def _leaves_out_itself(self: RaftCommitRule, lead: LeaderState) -> None:
    self._state.advance_all_replicated(min(peer.match for peer in lead.peers.values()))


def _tells_no_follower(self: RaftState, index: int) -> None:
    if self.leadership is not None:
        self.all_replicated = max(self.all_replicated, min(index, self.commit))


def _never_asks_again(self: Replicator, lead: LeaderState, peer: Progress, heard_at_us: int) -> None:
    return None


def _takes_configs_at_commit(self: RaftState) -> None:
    before = self.configs.committed if self.configs.current is not self.configs.committed else self.configs.current
    self.voters = before.voters()
    self.is_voter = self.node_id in self.voters
    self.majority = len(self.voters) // 2 + 1
    self.peer_ids = tuple(m.node_id for m in self.configs.current.members if m.node_id != self.node_id)
    self._may_campaign = self.is_voter


_COMMIT = Leader.commit


def _commits_on_acknowledgements_only(self: Leader) -> None:
    if self._state.leadership is not None:
        self._state.leadership.majority_changed = False
    _COMMIT(self)


def _allows_two_pending(self: RaftMembership) -> None:
    return None


def _compares_nothing(self: RaftMembership, expected: object) -> None:
    return None


def _compares_nothing_twice(self: RaftMembership, leadership: object, members: object) -> None:
    return None


def _promotes_by_count(self: RaftMembership, peer: Progress) -> bool:
    return self._state.log.last_index - peer.match <= 10


def _promotes_at_once(self: RaftMembership, peer: Progress) -> bool:
    return True


def _never_promotes(self: RaftMembership, peer: Progress) -> bool:
    return False


def _changes_while_configuring(self: RaftMembership, event: ChangeMembers) -> None:
    leadership = self._state.leadership
    members = changed_members(self._state.config, event.change)
    if leadership is not None and isinstance(members, tuple):
        self._append(leadership, members, event.token)


def _removes_whoever_is_silent(self: RaftMembership, peer: Progress) -> int:
    return peer.heard_at_us + self._join_timeout_us


def _waits_for_ever_for_newcomers(self: RaftMembership, peer: Progress) -> None:
    return None


def _removes_only_what_it_added(self: RaftMembership, peer: Progress) -> int | None:
    return peer.answered_at_us + self._join_timeout_us if peer.session and not peer.answered else None


def _waits_for_a_first_answer_only(self: RaftMembership, peer: Progress) -> int | None:
    return None if peer.answered else peer.answered_at_us + self._join_timeout_us


def _counts_no_refusal(self: Progress, at_us: int) -> None:
    self.answered = True


def _judges_by_the_silence_before(self: Progress, joining: bool, now_us: int) -> None:
    self.joining = joining


def _counts_its_vote_always(self: Elections) -> None:
    self._count_vote(self._state.node_id, granted=True)


def _counts_itself_outside_its_config(self: RaftCommitRule, own: int, values: list[int]) -> int:
    return sorted([own, *values], reverse=True)[self._state.majority - 1]


def _keeps_removed_peers(self: RaftState, leadership: LeaderState) -> None:
    known = dict(leadership.peers)
    LOAD_PEERS(self, leadership)
    leadership.peers = known | leadership.peers
    leadership.voting = [p for p in leadership.peers.values() if p not in leadership.learners]


def _has_one_session(self: RaftState, leadership: LeaderState) -> None:
    LOAD_PEERS(self, leadership)
    for peer in leadership.peers.values():
        peer.session = 0


def _believes_no_removal(self: RaftState, by: object) -> None:
    return None


def _believes_every_removal(self: RaftCore, event: Removed) -> None:
    self._state.removed(OpId(event.config_id.term, event.config_id.index + 100))


def _gives_up_its_vote_at_append(self: RaftState) -> None:
    LOAD_MEMBERS(self)
    self._may_campaign = self.is_voter


def _removes_itself(self: RaftMembership, change: object) -> bool:
    return False


def _asks_no_majority(members: object, is_live: object) -> None:
    return None


def _leads_nobody(config: object, members: object) -> None:
    return None


def _aborts_what_is_appended(self: RaftTransfers) -> bool:
    return True


def _heard_lately(self: Progress, since_us: int) -> bool:
    return self.heard_at_us >= since_us


def _names_anybody(self: RaftTransfers, peer: object) -> str:
    return ""


def _looks_at_the_address_first(config: TabletConfig, member: Member | None, change: AddServer) -> object:
    if member is not None and member.address != change.address:
        return config_change_rules._with(config, msgspec.structs.replace(member, address=change.address))
    return ADDED(config, member, change)


def _keeps_every_pin(config: TabletConfig, member: Member) -> tuple[Member, ...]:
    return tuple(one for one in config.members if one != member)


def _leaves_no_place(config: TabletConfig, member: Member) -> tuple[Member, ...]:
    """The mark stays when the member goes, and its own marks go with it."""
    return tuple(msgspec.structs.replace(one, pinned=msgspec.UNSET) for one in config.members if one != member)


def _ends_a_pin_for_a_move(config: TabletConfig, member: Member) -> tuple[Member, ...]:
    unmarked = [msgspec.structs.replace(one, replaces=msgspec.UNSET) for one in config.members]
    plain = msgspec.structs.replace(member, replaces=msgspec.UNSET)
    return WITHOUT(msgspec.structs.replace(config, members=tuple(unmarked)), plain)


def _forgets_who_was_removed(config: TabletConfig, members: object) -> tuple[NodeId, ...]:
    return ()


def _asks_for_copies_without_a_probe(self: Replicator, leadership: object, peer: Progress) -> None:
    self._state.ready.copy_requests.append(CopyRequest(peer.node_id, peer.match + 1))


def _knows_no_epoch(term: int, last_term: int) -> bool:
    return False


def _takes_the_old_log_for_the_recovered_one(self: Follower, prev: OpId, entries: object) -> None:
    return None


def _recovers_whatever_is_there(self: RaftRecovery, event: RecoverAlone) -> Refusal | None:
    return None


def _recovers_beside_a_leader(self: RaftRecovery, term: int, survivor: NodeId) -> Refusal | None:
    return None


def _only_says_that_it_stands_down(self: RaftRecovery, event: StandDown) -> None:
    self._state.ready.stood_down.append(event.token)


def _counts_any_later_term_as_stood_down(self: RaftRecovery, event: StandDown) -> bool:
    return recovery_id(self._state.term) == recovery_id(event.term) and self._state.term > event.term


def _answers_no_recovery(self: RaftRecovery) -> None:
    return None


ADDED, RETYPED = config_change_rules._added, config_change_rules._retyped
WITHOUT = config_change_rules._without
LOAD_PEERS, LOAD_MEMBERS = RaftState.load_peers, RaftState._load_members

PLANTED = [
    (raft_state, "stands_down", _knows_no_epoch, "two_members_that_stood_down"),
    (raft_state, "stands_down", _knows_no_epoch, "members_of_an_old_majority"),
    (Follower, "_check_before_recovery", _takes_the_old_log_for_the_recovered_one, "a_collected_log_is_not"),
    (RaftRecovery, "_changed_since", _recovers_whatever_is_there, "a_recovery_is_for_the_log"),
    (RaftRecovery, "_refusal", _recovers_beside_a_leader, "a_tablet_with_a_majority"),
    (RaftRecovery, "_refusal", _recovers_beside_a_leader, "a_survivor_that_stood_down"),
    (RaftRecovery, "stand_down", _only_says_that_it_stands_down, "a_survivor_that_stood_down"),
    (RaftRecovery, "_has_stood_down", _counts_any_later_term_as_stood_down, "a_survivor_whose_recovery_has_begun"),
    (RaftRecovery, "flush", _answers_no_recovery, "a_survivor_recovers_alone"),
    (RaftState, "_load_members", _takes_configs_at_commit, "a_config_takes_effect_when_it_is_appended"),
    (RaftMembership, "_change_pending", _allows_two_pending, "only_one_change_is_pending"),
    (RaftMembership, "_change_pending", _allows_two_pending, "a_member_whose_promotion_is_appended"),
    (RaftMembership, "_wrong_config_id", _compares_nothing, "the_committed_config_is_compared"),
    (RaftMembership, "_is_caught_up", _promotes_by_count, "a_promotion_waits_until"),
    (RaftMembership, "_is_caught_up", _promotes_at_once, "several_members_join_at_once"),
    (RaftMembership, "_is_caught_up", _never_promotes, "a_promotion_goes_on_under_another_leader"),
    (RaftMembership, "_not_caught_up", _compares_nothing_twice, "a_member_that_lags_gets_no_vote"),
    (RaftMembership, "change", _changes_while_configuring, "no_change_before_an_entry_of_the_leaders_term"),
    (RaftMembership, "_joins_until_us", _removes_whoever_is_silent, "a_member_that_has_joined_stays"),
    (RaftMembership, "_joins_until_us", _waits_for_ever_for_newcomers, "a_new_member_that_never_answers_is_removed"),
    (RaftMembership, "_joins_until_us", _removes_only_what_it_added, "a_new_member_that_never_answers_is_removed_by"),
    (RaftMembership, "_joins_until_us", _waits_for_a_first_answer_only, "a_new_member_that_dies_before"),
    (Progress, "has_answered", _counts_no_refusal, "a_new_member_stays_while_it_is_copied"),
    (Progress, "set_joining", _judges_by_the_silence_before, "a_silent_member_that_is_to_get_a_vote"),
    (RaftMembership, "_ends_leadership", _removes_itself, "a_leader_that_is_to_be_removed_hands_over"),
    (Elections, "_count_own_vote", _counts_its_vote_always, "a_candidate_outside_its_config_does_not_count"),
    (RaftCommitRule, "majority_value", _counts_itself_outside_its_config, "a_leader_outside_its_config_does_not"),
    (Leader, "commit", _commits_on_acknowledgements_only, "what_a_smaller_majority_has_is_committed"),
    (RaftState, "load_peers", _keeps_removed_peers, "a_removed_member_counts_no_more"),
    (RaftState, "load_peers", _has_one_session, "an_acknowledgement_from_before_the_removal"),
    (RaftState, "removed", _believes_no_removal, "a_removed_member_raises_no_term"),
    (RaftCore, "_on_removed", _believes_every_removal, "a_late_word_of_a_removal"),
    (RaftState, "_load_members", _gives_up_its_vote_at_append, "a_voter_that_a_pending_config_removes"),
    (membership, "without_live_majority", _asks_no_majority, "a_config_whose_majority_is_silent"),
    (membership, "leaderless", _leads_nobody, "a_config_without_a_possible_leader"),
    (config_change_rules, "_added", _looks_at_the_address_first, "a_member_with_another_address"),
    (config_change_rules, "_without", _keeps_every_pin, "a_pinned_member_is_pinned_until"),
    (config_change_rules, "_without", _leaves_no_place, "a_member_that_replaces_another_one"),
    (config_change_rules, "_without", _ends_a_pin_for_a_move, "a_member_that_replaces_another_one"),
    (membership, "former_voters", _forgets_who_was_removed, "a_voter_that_was_removed_is_known"),
    (RaftTransfers, "abort_change", _aborts_what_is_appended, "an_appended_change_cannot_be_aborted"),
    (Leader, "on_range_compacted", _hears_no_compaction, "a_copy_is_requested_again_and_again_for_a_peer"),
    (Leader, "on_beat_exception", _copies_no_damaged_replica, "a_copy_is_requested_for_a_peer_whose_replica_is"),
    (Leader, "_copy_and_probe", _probes_with_the_next_request, "a_peer_with_a_copy_is_served_at_once"),
    (RaftCommitRule, "advance_all_replicated", _leaves_out_silent_peers, "a_new_leader_does_not_count"),
    (RaftCommitRule, "advance_all_replicated", _leaves_out_learners, "entries_that_a_learner_lacks"),
    (RaftCommitRule, "advance_all_replicated", _leaves_out_itself, "entries_not_durable_on_the_leader"),
    (RaftCommitRule, "advance_all_replicated", _leaves_out_whom_it_removes, "a_member_whose_removal_is_pending"),
    (RaftState, "advance_all_replicated", _tells_no_follower, "leader_and_followers_know"),
    (Replicator, "request_copy_again", _asks_for_copies_without_a_probe, "after_a_copy_replication_to_the_peer"),
    (Replicator, "probe_again", _never_asks_again, "a_peer_that_was_restored_by_other_means"),
    (RaftTransfers, "flush", _tells_a_successor_that_lags, "a_lagging_successor_gets_the_log_first"),
    (RaftTransfers, "_cannot_take_over", _names_anybody, "a_transfer_to_a_voter_that_is_silent"),
    (Progress, "followed_since", _heard_lately, "a_new_leader_counts_no_voter"),
    (Progress, "followed_since", _heard_lately, "a_new_leader_hands_over_to_no_voter_that_it_has"),
    (RaftTransfers, "tick", _hands_over_for_ever, "a_leader_whose_successor_does_not_answer"),
    (RaftState, "vote_for", _forgets_vote, "a_vote_is_remembered_across_a_restart"),
    (election, "decide_vote", _votes_for_anybody, "a_vote_is_remembered_across_a_restart"),
    (election, "decide_vote", _ignores_the_log, "a_candidate_that_lacks_committed_entries"),
    (ReadyBuilder, "send_durable", _sends_before_durable, "a_follower_acknowledges_only_what_is_durable"),
    (ReadyBuilder, "send", _sends_before_durable, "a_vote_leaves_only_once_it_is_durable"),
    (
        RaftCommitRule,
        "advance",
        _commits_any_term,
        "entries_of_older_terms_commit_only_through_one_of_the_current_term",
    ),
    (DurableIndex, "appended", _counts_itself_at_append, "a_leader_counts_itself_only_once_durable"),
    (DurableIndex, "truncated", _has_no_floor, "persisted_entries_that_were_replaced"),
    (RaftCommitRule, "majority_value", _counts_learners, "acknowledgements_of_learners_never_count"),
    (Leader, "_confirm_reads", _confirms_reads_by_itself, "a_read_waits_for_a_majority"),
    (ConfigHistory, "cut", _keeps_replaced_configs, "a_config_that_never_committed"),
    (Leader, "_quorum_deadline_us", _never_gives_up, "a_leader_cut_off_from_the_majority"),
    (Replicator, "_send_commit", _tells_no_commit, "an_idle_follower_learns_of_a_commit"),
    (RaftCore, "can_wait", _holds_back_whatever_it_hears, "a_read_waits_for_a_majority"),
]


@pytest.mark.parametrize(("owner", "name", "bug", "check"), PLANTED, ids=names_of(PLANTED))
def test_a_planted_bug_is_caught_by_its_check(
    owner: Any, name: str, bug: Callable[..., Any], check: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_caught(PlantedBug(owner, name, bug, check), monkeypatch)
