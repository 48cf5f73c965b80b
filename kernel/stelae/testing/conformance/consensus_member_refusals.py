"""Conformance checks for consensus engines: changes of config that are refused or aborted (C9, C12)."""

from __future__ import annotations

import pytest

from stelae.spi.consensus import Role
from stelae.spi.consensus_events import ChangeMembers
from stelae.spi.ids import OpId
from stelae.spi.members import AddServer, ChangeRole, MemberChange, MemberType, RemoveServer
from stelae.testing.conformance.consensus_harness import ConsensusHarness
from stelae.testing.conformance.consensus_members import member_types, promote, remove
from stelae.testing.conformance.consensus_nodes import node_name


def _add(number: int, member_type: MemberType = MemberType.PRE_VOTER, address: str = "") -> AddServer:
    return AddServer(node_id=node_name(number), address=address or f"node-{number}:1", member_type=member_type)


def _retype(number: int, member_type: MemberType) -> ChangeRole:
    return ChangeRole(node_id=node_name(number), member_type=member_type)


REFUSED: list[tuple[MemberChange, str]] = [
    (_add(5, MemberType.VOTER), "WRONG_MEMBER_TYPE"),
    (_add(5, MemberType.WITNESS), "WRONG_MEMBER_TYPE"),
    (_add(2), "NO_CHANGE"),
    (_add(2, MemberType.NON_VOTER), "WRONG_MEMBER_TYPE"),
    (_add(4, MemberType.NON_VOTER), "NO_CHANGE"),
    (_add(4, MemberType.PRE_VOTER), "WRONG_MEMBER_TYPE"),
    (remove(5), "NO_CHANGE"),
    (_retype(5, MemberType.VOTER), "NOT_A_MEMBER"),
    (_retype(2, MemberType.VOTER), "NO_CHANGE"),
    (_retype(2, MemberType.PRE_VOTER), "WRONG_MEMBER_TYPE"),
    (_retype(2, MemberType.WITNESS), "WRONG_MEMBER_TYPE"),
    (_retype(4, MemberType.WITNESS), "WRONG_MEMBER_TYPE"),
    (_retype(4, MemberType.PRE_WITNESS), "WRONG_MEMBER_TYPE"),
    (_add(4, MemberType.PRE_WITNESS), "WRONG_MEMBER_TYPE"),
    (_add(2, MemberType.PRE_WITNESS), "NO_CHANGE"),
    (_add(2, MemberType.NON_VOTER, "moved:1"), "WRONG_MEMBER_TYPE"),
    (_add(4, MemberType.PRE_VOTER, "moved:1"), "WRONG_MEMBER_TYPE"),
    (_add(4, MemberType.PRE_WITNESS, "moved:1"), "WRONG_MEMBER_TYPE"),
]


class MemberRefusalChecks:
    """Checks of refusals; part of ``ConsensusConformance``."""

    @pytest.mark.parametrize(("change", "reason"), REFUSED)
    def test_a_change_that_makes_no_sense_is_refused_and_says_why(
        self, harness: ConsensusHarness, change: MemberChange, reason: str
    ) -> None:
        cluster = harness.led(3, MemberType.NON_VOTER)
        before = cluster.nodes[1].status
        token = cluster.change(1, change)
        assert cluster.rejected.get(token) == reason
        assert str(change.node_id) in cluster.rejections[token].detail
        assert cluster.nodes[1].status == before

    def test_a_member_with_another_address_is_not_added_as_another_type(self, harness: ConsensusHarness) -> None:
        """Its address was changed and its type was not, and only the client noticed: it blamed another operator."""
        cluster = harness.led(3, MemberType.NON_VOTER)
        token = cluster.change(1, _add(4, MemberType.PRE_VOTER, "moved:1"))
        assert cluster.rejected.get(token) == "WRONG_MEMBER_TYPE"
        for number, kind in ((4, MemberType.NON_VOTER), (2, MemberType.PRE_VOTER)):
            token = cluster.change(1, _add(number, kind, f"moved-{number}:1"))
            cluster.deliver_all()
            moved = cluster.changed[token].member(node_name(number))
            assert moved is not None and moved.address == f"moved-{number}:1"
        assert member_types(cluster, 1) == {1: "VOTER", 2: "VOTER", 3: "VOTER", 4: "NON_VOTER"}

    def test_a_config_without_a_possible_leader_is_refused(self, harness: ConsensusHarness) -> None:
        cluster = harness.led(1, MemberType.NON_VOTER)
        for change in (remove(1), _retype(1, MemberType.NON_VOTER)):
            token = cluster.change(1, change)
            assert cluster.rejected.get(token) == "LEADERLESS"

    def test_only_one_change_is_pending_also_within_one_turn(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.step(1, ChangeMembers(901, _add(4)), ChangeMembers(902, _add(5)))
        token = cluster.change(1, remove(3))
        assert cluster.rejected.get(902) == cluster.rejected.get(token) == "CHANGE_PENDING"
        cluster.deliver_all()
        assert 901 in cluster.changed and set(member_types(cluster, 1)) == {1, 2, 3, 4}

    def test_no_change_before_an_entry_of_the_leaders_term_is_committed(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.crash(1)
        cluster.win(2)
        token = cluster.change(2, remove(1))
        assert cluster.rejected.get(token) == "CONFIGURING"

    def test_a_follower_refuses_and_names_the_leader(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        for token in (cluster.change(2, _add(4)), cluster.abort(2)):
            assert cluster.rejected.get(token) == "NOT_LEADER"
            assert cluster.rejections[token].leader == node_name(1)

    def test_the_committed_config_is_compared_and_both_ids_are_named(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        present = cluster.nodes[1].status.committed_config.op_id
        token = cluster.change(1, remove(3), OpId(1, 7))
        assert cluster.rejected.get(token) == "WRONG_CONFIG_ID"
        assert "1.7" in cluster.rejections[token].detail and str(present) in cluster.rejections[token].detail
        token = cluster.change(1, remove(3), present)
        cluster.deliver_all()
        assert token in cluster.changed
        token = cluster.change(1, remove(3), present)
        assert cluster.rejected.get(token) == "NO_CHANGE", "a repeated request is answered as done"

    def test_a_member_that_lags_gets_no_vote(self, harness: ConsensusHarness) -> None:
        cluster = harness.led(3, MemberType.NON_VOTER)
        cluster.isolate(4)
        cluster.propose(1, b"a")
        cluster.deliver_all()
        cluster.advance(2 * cluster.timeout_us)
        token = cluster.change(1, promote(4))
        assert cluster.rejected.get(token) == "NOT_CAUGHT_UP"
        cluster.heal()
        cluster.advance(2 * cluster.timeout_us)
        token = cluster.change(1, promote(4))
        cluster.deliver_all()
        assert token in cluster.changed

    def test_a_config_whose_majority_is_silent_is_refused(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.crash(3)
        cluster.advance(4 * cluster.timeout_us)
        token = cluster.change(1, remove(2))
        assert cluster.rejected.get(token) == "NO_LIVE_MAJORITY"
        assert str(node_name(3)) in cluster.rejections[token].detail

    def test_a_new_leader_counts_no_voter_that_has_not_answered_it(self, harness: ConsensusHarness) -> None:
        """The change was appended and never committed. The tablet stayed down, although two of three voters ran."""
        cluster = harness.led()
        cluster.propose(1, b"a")
        cluster.deliver_all()
        cluster.advance(4 * cluster.timeout_us)
        cluster.crash(1)
        cluster.win(2)
        cluster.deliver_all()
        early = cluster.change(2, remove(3))
        assert cluster.rejected.get(early) == "NO_LIVE_MAJORITY"
        assert str(node_name(1)) in cluster.rejections[early].detail
        cluster.start(1)
        cluster.advance(4 * cluster.timeout_us)
        late = cluster.change(2, remove(3))
        cluster.deliver_all()
        assert late in cluster.changed and set(member_types(cluster, 1)) == {1, 2}

    def test_no_change_during_a_transfer(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.isolate(2)
        cluster.propose(1, b"a")
        cluster.transfer(1, 2)
        token = cluster.change(1, _add(4))
        assert cluster.rejected.get(token) == "TRANSFERRING"

    def test_a_leader_that_finds_no_successor_stays_leader_and_member(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.isolate(1)
        token = cluster.change(1, RemoveServer(node_id=node_name(1)))
        cluster.heal()
        cluster.nodes[2].holds = cluster.nodes[3].holds = True
        cluster.propose(1, b"a")
        cluster.advance(cluster.timeout_us)
        assert cluster.rejected.get(token) in ("NOT_TAKEN_OVER", "LEADERSHIP_LOST")
        assert set(member_types(cluster, 1)) == {1, 2, 3}

    # -- aborting --------------------------------------------------------------------------------

    def test_a_change_that_waits_for_a_handover_can_be_aborted(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.isolate(1)
        cluster.propose(1, b"a")
        token = cluster.change(1, remove(1))
        aborted = cluster.abort(1)
        assert cluster.aborted == {aborted} and cluster.rejected.get(token) == "ABORTED"
        cluster.heal()
        cluster.advance(cluster.timeout_us)
        assert cluster.role(1) is Role.LEADER and cluster.bodies(2) == [b"a"]

    def test_an_appended_change_cannot_be_aborted(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        token = cluster.change(1, _add(4))
        aborted = cluster.abort(1)
        assert cluster.rejected.get(aborted) == "CANNOT_ABORT"
        assert "never truncates its own log" in cluster.rejections[aborted].detail
        cluster.deliver_all()
        assert token in cluster.changed

    def test_there_may_be_nothing_to_abort(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        aborted = cluster.abort(1)
        assert cluster.rejected.get(aborted) == "NO_CHANGE"
        assert "no change" in cluster.rejections[aborted].detail

    def test_a_transfer_is_no_change_that_could_be_aborted(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.isolate(2)
        cluster.propose(1, b"a")
        cluster.transfer(1, 2)
        assert cluster.rejected.get(cluster.abort(1)) == "NO_CHANGE"
