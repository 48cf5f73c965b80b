"""Conformance of a consensus engine: leadership is handed over, or kept (C8)."""

from __future__ import annotations

import pytest

from stelae.spi.consensus import MemberType, Role, StepDown
from stelae.testing.conformance.consensus_cluster import ConsensusCluster
from stelae.testing.conformance.consensus_harness import ConsensusHarness


class TransferChecks:
    """Checks of transfers; part of ``ConsensusConformance``."""

    def test_leadership_is_handed_to_the_voter_that_is_named_and_no_timeout_passes(
        self, harness: ConsensusHarness
    ) -> None:
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

    def test_without_a_name_it_goes_to_a_voter_that_has_the_log(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.isolate(2)
        cluster.propose(1, b"a", b"b")
        cluster.deliver_all()
        cluster.transfer(1, None)
        cluster.deliver_all()
        assert cluster.role(3) is Role.LEADER

    def test_to_itself_it_is_done_at_once(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        token = cluster.transfer(1, 1)
        assert cluster.handed_over == {token} and cluster.role(1) is Role.LEADER
        cluster.propose(1, b"a")
        cluster.deliver_all()
        assert cluster.bodies(3) == [b"a"]

    def test_a_successor_that_lags_gets_the_log_first_and_nothing_is_lost(self, harness: ConsensusHarness) -> None:
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

    def test_no_proposal_is_taken_while_it_is_handed_over(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.isolate(2)
        cluster.propose(1, b"a")
        cluster.transfer(1, 2)
        (token,) = cluster.propose(1, b"b")
        assert cluster.rejected[token] == "TRANSFERRING"
        cluster.deliver_all()
        assert cluster.bodies(3) == [b"a"], "what was taken before goes on"

    def test_a_leader_whose_successor_is_not_heard_of_carries_on_after_one_timeout(
        self, harness: ConsensusHarness
    ) -> None:
        cluster = harness.led()
        cluster.isolate(2)
        cluster.propose(1, b"a")
        token = cluster.transfer(1, 2)
        cluster.advance(cluster.timeout_us - 1)
        assert token not in cluster.rejected
        cluster.advance(1)
        assert cluster.rejected.get(token) == "NO_SUCCESSOR" and not cluster.handed_over
        cluster.propose(1, b"b")
        cluster.deliver_all()
        assert cluster.role(1) is Role.LEADER and cluster.bodies(3) == [b"a", b"b"]

    @pytest.mark.parametrize("to", [4, 9])
    def test_a_learner_and_a_stranger_are_refused(self, harness: ConsensusHarness, to: int) -> None:
        cluster = harness.led(3, MemberType.NON_VOTER)
        token = cluster.transfer(1, to)
        assert cluster.rejected[token] == "NOT_A_VOTER"
        cluster.propose(1, b"a")
        cluster.deliver_all()
        assert cluster.bodies(2) == [b"a"], "and nothing has changed"

    def test_who_does_not_lead_cannot_hand_over(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        token = cluster.transfer(2, 3)
        assert cluster.rejected[token] == "NOT_LEADER"

    def test_a_second_transfer_waits_for_the_first_to_end(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.isolate(2)
        cluster.propose(1, b"a")
        cluster.transfer(1, 2)
        token = cluster.transfer(1, 3)
        assert cluster.rejected[token] == "TRANSFERRING"

    def test_a_leader_that_gives_up_meanwhile_says_that_it_does_not_know(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.isolate(2)
        cluster.propose(1, b"a")
        token = cluster.transfer(1, 2)
        cluster.step(1, StepDown())
        assert cluster.rejected[token] == "LEADERSHIP_LOST"

    def test_a_request_of_an_old_term_makes_nobody_campaign(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.transfer(1, 2)
        late = _keep(cluster, to=2)
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


def _keep(cluster: ConsensusCluster, *, to: int) -> list:  # type: ignore[type-arg]
    """Take what is on its way to a node off the network."""
    kept = [packet for packet in cluster.network if packet.to == to]
    for packet in kept:
        cluster.network.remove(packet)
    return kept
