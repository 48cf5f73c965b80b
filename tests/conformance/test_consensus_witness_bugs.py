"""The suite bites: bugs of the consensus engine ``raft`` about witnesses, each beside the check that catches it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from stelae.spi.ids import NodeId
from stelae.spi.members import ChangeRole, Member, MemberType, TabletConfig
from stelae.spi.rejections import RejectReason
from stelae_consensus_raft import config_change_rules, membership
from stelae_consensus_raft.config_change_rules import Refusal, rows_at_risk
from stelae_consensus_raft.leader_state import LeaderState
from stelae_consensus_raft.leadership_transfer import RaftTransfers
from stelae_consensus_raft.membership import RaftMembership
from stelae_consensus_raft.progress import Progress
from stelae_consensus_raft.raft_state import RaftState
from stelae_consensus_raft.recovery import RaftRecovery
from stelae_consensus_raft.replication import Replicator
from tests.conformance.consensus_plants import PlantedBug, assert_caught, names_of

LOAD_MEMBERS, RETYPED = RaftState._load_members, config_change_rules._retyped


def _serves_as_a_caretaker(self: RaftState) -> None:
    self.serving = self.term > 0 and self.log.term_at(self.commit) == self.term
    self.is_caretaker = False


def _keeps_the_office(self: RaftTransfers, leadership: object) -> None:
    return None


def _hands_over_to_anybody(self: RaftTransfers, leadership: LeaderState, match_min: int = 0) -> NodeId | None:
    return next((peer.node_id for peer in leadership.voting), None)


def _lets_no_laggard_go(
    before: TabletConfig, members: object, has_reached: Callable[[NodeId], bool], is_silent: object
) -> Refusal | None:
    behind = [member for member in before.members if not has_reached(member.node_id)]
    return Refusal(RejectReason.NOT_CAUGHT_UP, "somebody lags") if behind else None


def _waits_for_the_silent(
    before: TabletConfig, members: tuple[Member, ...], has_reached: Callable[[NodeId], bool], is_silent: object
) -> Refusal | None:
    return rows_at_risk(before, members, has_reached, lambda _: False)


def _counts_lost_replicas(self: RaftMembership, leadership: LeaderState, members: tuple[Member, ...]) -> object:
    reached = self._state.config.op_id.index
    matches = {node: peer.match for node, peer in leadership.peers.items()}
    return rows_at_risk(
        self._state.config, members, lambda node: matches.get(node, reached) >= reached, lambda _: False
    )


def _asks_for_no_rows(self: RaftMembership, leadership: object, change: object) -> None:
    return None


def _promotes_without_rows(self: RaftMembership, peer: Progress, now: MemberType) -> MemberType | None:
    return MemberType.VOTER if now is MemberType.WITNESS or self._is_caught_up(peer) else None


def _promotes_no_witness(self: RaftMembership, peer: Progress, now: MemberType) -> MemberType | None:
    return MemberType.VOTER if now is MemberType.PRE_VOTER and self._is_caught_up(peer) else None


def _lets_no_witness_win(self: RaftState) -> None:
    LOAD_MEMBERS(self)
    self._may_campaign = self._may_campaign and not self.is_caretaker


def _forgets_who_was_demoted(config: TabletConfig, member: Member | None, change: ChangeRole) -> object:
    found = RETYPED(config, member, change)
    if isinstance(found, Refusal):
        return found
    return tuple(msgspec.structs.replace(one, was_voter=msgspec.UNSET) for one in found)


def _asks_no_idle_witness(self: Replicator, leadership: object, peer: object) -> bool:
    return False


def _recovers_witnesses(self: RaftRecovery) -> Refusal | None:
    return None


def _promotes_no_witness_as_a_caretaker(self: RaftMembership, leadership: LeaderState) -> None:
    return None


PLANTED = [
    (
        RaftMembership,
        "_promote_as_caretaker",
        _promotes_no_witness_as_a_caretaker,
        "a_witness_that_has_its_rows_when_the_last_voter_is_lost",
    ),
    (RaftRecovery, "_not_a_survivor", _recovers_witnesses, "a_witness_is_no_survivor"),
    (RaftState, "refresh_serving", _serves_as_a_caretaker, "a_caretaker_serves_nobody"),
    (RaftTransfers, "_hand_back", _keeps_the_office, "a_witness_with_the_only_copy_of_an_entry"),
    (RaftTransfers, "_best_successor", _hands_over_to_anybody, "a_leader_hands_over_to_no_witness"),
    (RaftMembership, "_without_rows", _asks_for_no_rows, "a_witness_becomes_a_voter_once_it_has_all_rows"),
    (RaftMembership, "_rows_at_risk", _asks_for_no_rows, "no_voter_goes_that_a_lagging_one_may_need"),
    (RaftMembership, "_rows_at_risk", _counts_lost_replicas, "no_voter_goes_that_one_without_a_replica_may_need"),
    (membership, "rows_at_risk", _waits_for_the_silent, "voters_that_are_down_and_may_lag"),
    (membership, "rows_at_risk", _lets_no_laggard_go, "a_voter_that_lags_below_the_log_of_a_witness_may_go"),
    (RaftMembership, "_promoted", _promotes_without_rows, "a_witness_becomes_a_voter_once_it_has_all_rows"),
    (RaftMembership, "_promoted", _promotes_without_rows, "a_member_without_rows_is_no_voter"),
    (RaftMembership, "_promoted", _promotes_no_witness, "a_witness_joins_at_a_committed_entry"),
    (RaftState, "_load_members", _lets_no_witness_win, "a_witness_with_the_only_copy_of_an_entry"),
    (config_change_rules, "_retyped", _forgets_who_was_demoted, "a_voter_that_was_demoted_is_known"),
    (Replicator, "_asks_for_rows", _asks_no_idle_witness, "a_witness_becomes_a_voter_once_it_has_all_rows"),
]


@pytest.mark.parametrize(("owner", "name", "bug", "check"), PLANTED, ids=names_of(PLANTED))
def test_a_planted_bug_of_witnesses_is_caught_by_its_check(
    owner: Any, name: str, bug: Callable[..., Any], check: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_caught(PlantedBug(owner, name, bug, check), monkeypatch)
