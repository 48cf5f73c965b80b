"""Conformance checks for consensus engines: transfers of leadership (C8)."""

from __future__ import annotations

import pytest

from stelae.spi.consensus import Role
from stelae.spi.consensus_events import StepDown
from stelae.spi.members import MemberType
from stelae.testing.conformance.consensus_cluster import ConsensusCluster
from stelae.testing.conformance.consensus_harness import ConsensusHarness
from stelae.testing.conformance.consensus_nodes import node_name


class TransferChecks:
    """Checks of transfers; part of ``ConsensusConformance``."""

    def test_leadership_is_transferred_to_the_named_voter_without_a_timeout(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        token = cluster.transfer(1, 2)
        cluster.deliver_all()
        assert cluster.role(2) is Role.LEADER and cluster.nodes[2].status.serving
        assert cluster.role(1) is Role.FOLLOWER
        assert cluster.handed_over == {token} and cluster.now_us == 0

    def test_voters_that_hear_a_leader_vote_for_its_successor(self, harness: ConsensusHarness) -> None:
        cluster = harness.led(5)
        cluster.advance(cluster.timeout_us)
        cluster.transfer(1, 4)
        cluster.deliver_all()
        assert cluster.role(4) is Role.LEADER
        assert {cluster.nodes[n].status.term for n in (1, 2, 3, 5)} == {cluster.nodes[4].status.term}

    def test_a_transfer_without_a_name_goes_to_a_voter_that_has_the_log(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.isolate(2)
        cluster.propose(1, b"a", b"b")
        cluster.deliver_all()
        cluster.transfer(1, None)
        cluster.deliver_all()
        assert cluster.role(3) is Role.LEADER

    def test_a_transfer_of_a_leader_to_itself_succeeds_at_once(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        token = cluster.transfer(1, 1)
        assert cluster.handed_over == {token} and cluster.role(1) is Role.LEADER
        cluster.propose(1, b"a")
        cluster.deliver_all()
        assert cluster.bodies(3) == [b"a"]

    def test_a_lagging_successor_gets_the_log_first_and_nothing_is_lost(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.isolate(2)
        cluster.propose(1, b"a", b"b")
        cluster.deliver_all()
        token = cluster.transfer(1, 2)
        cluster.deliver_all()
        assert cluster.role(1) is Role.LEADER and not cluster.handed_over
        cluster.heal()
        cluster.advance(cluster.timeout_us * 9 // 10)
        assert cluster.role(2) is Role.LEADER and cluster.handed_over == {token}
        cluster.propose(2, b"c")
        cluster.deliver_all()
        assert cluster.bodies(1) == cluster.bodies(3) == [b"a", b"b", b"c"]

    def test_no_proposal_is_accepted_during_a_transfer(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.isolate(2)
        cluster.propose(1, b"a")
        cluster.transfer(1, 2)
        (token,) = cluster.propose(1, b"b")
        assert cluster.rejected[token] == "TRANSFERRING"
        cluster.deliver_all()
        assert cluster.bodies(3) == [b"a"], "proposals from before the transfer are still replicated"

    def test_a_leader_whose_successor_does_not_answer_goes_on_after_one_timeout(
        self, harness: ConsensusHarness
    ) -> None:
        cluster = harness.led()
        cluster.isolate(2)
        cluster.propose(1, b"a")
        token = cluster.transfer(1, 2)
        cluster.advance(cluster.timeout_us - 1)
        assert token not in cluster.rejected
        cluster.advance(1)
        assert cluster.rejected.get(token) == "NOT_TAKEN_OVER" and not cluster.handed_over
        cluster.propose(1, b"b")
        cluster.deliver_all()
        assert cluster.role(1) is Role.LEADER and cluster.bodies(3) == [b"a", b"b"]

    def test_a_transfer_to_a_voter_that_is_silent_is_refused_and_writes_go_on(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.crash(3)
        cluster.advance(4 * cluster.timeout_us)
        _check_refused_until_it_answers(cluster, 1, 3)

    def test_a_new_leader_hands_over_to_no_voter_that_it_has_not_heard(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.crash(3)
        cluster.transfer(1, 2)
        cluster.deliver_all()
        _check_refused_until_it_answers(cluster, 2, 3)

    @pytest.mark.parametrize("to", [4, 9])
    def test_a_transfer_to_a_learner_or_an_unknown_node_is_refused(self, harness: ConsensusHarness, to: int) -> None:
        cluster = harness.led(3, MemberType.NON_VOTER)
        token = cluster.transfer(1, to)
        assert cluster.rejected[token] == "NOT_A_VOTER"
        cluster.propose(1, b"a")
        cluster.deliver_all()
        assert cluster.bodies(2) == [b"a"], "a refused transfer changes nothing"

    def test_a_follower_cannot_transfer_leadership(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        token = cluster.transfer(2, 3)
        assert cluster.rejected[token] == "NOT_LEADER"

    def test_a_second_transfer_is_refused_while_the_first_runs(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.isolate(2)
        cluster.propose(1, b"a")
        cluster.transfer(1, 2)
        token = cluster.transfer(1, 3)
        assert cluster.rejected[token] == "TRANSFERRING"

    def test_a_transfer_of_a_leader_that_steps_down_meanwhile_ends_as_leadership_lost(
        self, harness: ConsensusHarness
    ) -> None:
        cluster = harness.led()
        cluster.isolate(2)
        cluster.propose(1, b"a")
        token = cluster.transfer(1, 2)
        cluster.step(1, StepDown())
        assert cluster.rejected[token] == "LEADERSHIP_LOST"

    def test_a_transfer_request_of_an_old_term_starts_no_election(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.transfer(1, 2)
        late = _take_messages(cluster, to=2)
        cluster.advance(cluster.timeout_us)
        term = max(node.status.term for node in cluster.nodes.values())
        leader = cluster.leader()
        assert leader is not None
        cluster.transfer(leader.number, leader.number % 3 + 1)
        cluster.deliver_all()
        for packet in late:
            cluster.deliver(packet)
        cluster.deliver_all()
        assert max(node.status.term for node in cluster.nodes.values()) == term + 1


def _check_refused_until_it_answers(cluster: ConsensusCluster, leader: int, to: int) -> None:
    token = cluster.transfer(leader, to)
    assert cluster.rejected.get(token) == "NO_SUCCESSOR"
    assert str(node_name(to)) in cluster.rejections[token].detail
    cluster.propose(leader, b"a")
    cluster.deliver_all()
    assert cluster.bodies(leader) == [b"a"]
    cluster.start(to)
    cluster.advance(4 * cluster.timeout_us)
    token = cluster.transfer(leader, to)
    cluster.deliver_all()
    assert token in cluster.handed_over and cluster.role(to) is Role.LEADER


def _take_messages(cluster: ConsensusCluster, *, to: int) -> list:  # type: ignore[type-arg]
    """Take the messages for a node out of the network."""
    taken = [packet for packet in cluster.network if packet.to == to]
    for packet in taken:
        cluster.network.remove(packet)
    return taken
