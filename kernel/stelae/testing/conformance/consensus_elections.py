"""Conformance checks for consensus engines: elections and votes."""

from __future__ import annotations

from stelae.spi.consensus import HardState, Role
from stelae.spi.consensus_events import Campaign, StepDown
from stelae.testing.conformance.consensus_cluster import ConsensusCluster
from stelae.testing.conformance.consensus_harness import ConsensusHarness
from stelae.testing.conformance.consensus_nodes import InFlightMessage, node_name


class ElectionChecks:
    """Checks of elections; part of ``ConsensusConformance``."""

    def test_a_hinted_first_leader_leads_without_waiting(self, harness: ConsensusHarness) -> None:
        cluster = harness.cluster()
        cluster.step(1, Campaign())
        cluster.deliver_all()
        assert cluster.role(1) is Role.LEADER
        assert cluster.now_us == 0

    def test_a_campaign_hint_is_ignored_once_a_config_is_committed(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.step(2, Campaign())
        assert cluster.nodes[2].status.role is Role.FOLLOWER
        cluster.restart(2)
        cluster.step(2, Campaign())
        assert cluster.nodes[2].status.role is Role.FOLLOWER

    def test_a_single_voter_leads_only_once_its_vote_is_durable(self, harness: ConsensusHarness) -> None:
        cluster = harness.cluster(1)
        cluster.nodes[1].holds = True
        cluster.step(1, Campaign())
        assert cluster.role(1) is Role.CANDIDATE
        cluster.persist(1)
        assert cluster.role(1) is Role.LEADER
        assert not cluster.nodes[1].status.serving
        while cluster.nodes[1].pending:
            cluster.persist(1)
        assert cluster.nodes[1].status.serving

    def test_a_follower_campaigns_within_one_to_two_timeouts(self, harness: ConsensusHarness) -> None:
        drawn = set()
        for seed in range(20):
            cluster = harness.cluster(seed=seed)
            deadline = cluster.nodes[1].running.next_deadline()
            assert deadline is not None
            assert cluster.timeout_us <= deadline <= 2 * cluster.timeout_us
            drawn.add(deadline)
        assert len(drawn) > 10, "the timeout is not random"

    def test_no_vote_request_leaves_before_term_and_vote_are_durable(self, harness: ConsensusHarness) -> None:
        cluster = harness.cluster()
        cluster.nodes[1].holds = True
        cluster.step(1, Campaign())
        cluster.deliver_all()
        assert cluster.nodes[1].status.term == 1
        assert cluster.role(1) is Role.CANDIDATE
        assert all(n.disk.hard_state == HardState() for n in cluster.nodes.values())
        while cluster.nodes[1].pending:
            cluster.persist(1)
        cluster.deliver_all()
        assert cluster.role(1) is Role.LEADER

    def test_a_vote_leaves_only_once_it_is_durable(self, harness: ConsensusHarness) -> None:
        cluster = harness.cluster()
        cluster.isolate(3)
        cluster.nodes[2].holds = True
        cluster.step(1, Campaign())
        cluster.deliver_all()
        assert cluster.role(1) is Role.CANDIDATE
        while cluster.nodes[2].pending:
            cluster.persist(2)
        cluster.deliver_all()
        assert cluster.role(1) is Role.LEADER

    def test_a_vote_is_remembered_across_a_restart(self, harness: ConsensusHarness) -> None:
        cluster = harness.cluster()
        self._two_candidates_of_term_1(cluster)
        cluster.deliver_all(lambda packet: packet.sender == 1 and packet.to == 3)
        assert cluster.nodes[3].disk.hard_state == HardState(1, node_name(1))
        cluster.restart(3)
        cluster.deliver_all(lambda packet: packet.sender == 2 and packet.to == 3)
        cluster.deliver_all(lambda packet: packet.to == 2)
        cluster.deliver_all(lambda packet: packet.to == 1)
        assert cluster.nodes[3].disk.hard_state == HardState(1, node_name(1))
        assert cluster.leaders == {1: 1}

    def _two_candidates_of_term_1(self, cluster: ConsensusCluster) -> None:
        """Let nodes 1 and 2 ask node 3 for its vote in term 1, with no link between the two."""
        cluster.cut_links |= {(1, 2), (2, 1)}
        cluster.step(1, Campaign())
        cluster.step(2, Campaign())
        for _ in range(5):
            if cluster.nodes[1].status.term == cluster.nodes[2].status.term == 1:
                return
            cluster.deliver_all(lambda packet: packet.to == 3)
            cluster.deliver_all(lambda packet: packet.to != 3)

    def test_a_repeated_request_of_the_same_candidate_gets_the_same_answer(self, harness: ConsensusHarness) -> None:
        cluster = harness.cluster()
        sent: list[InFlightMessage] = []
        cluster.step(1, Campaign())
        while cluster.nodes[1].status.role is not Role.LEADER:
            packet = cluster.network.popleft()
            sent.append(packet)
            cluster.deliver(packet)
        cluster.deliver_all()
        request = [p for p in sent if p.to == 2][-1]
        answers = [p for p in sent if p.sender == 2 and p.to == 1][-1:]
        cluster.restart(2)
        cluster.deliver(request)
        assert [p for p in cluster.network if p.sender == 2] == answers

    def test_a_candidate_that_lacks_committed_entries_is_not_elected(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.isolate(3)
        cluster.propose(1, b"a")
        cluster.deliver_all()
        cluster.crash(1)
        cluster.heal()
        cluster.now_us += 3 * cluster.timeout_us
        for _ in range(3):
            cluster.step(3, Campaign(hinted=False))
            cluster.deliver_all()
            assert cluster.nodes[3].status.role is not Role.LEADER
        cluster.advance(8 * cluster.timeout_us)
        leader = cluster.leader()
        assert leader is not None and leader.number == 2

    def test_a_partitioned_node_does_not_depose_the_leader_when_it_returns(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.isolate(3)
        cluster.advance(5 * cluster.timeout_us)
        cluster.heal()
        cluster.advance(5 * cluster.timeout_us)
        assert cluster.leaders == {1: 1}
        assert cluster.nodes[3].status.leader == node_name(1)

    def test_a_dead_leader_is_replaced_within_a_few_timeouts(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.crash(1)
        cluster.advance(3 * cluster.timeout_us)
        leader = cluster.leader()
        assert leader is not None and leader.status.serving

    def test_a_leader_cut_off_from_the_majority_steps_down_within_two_timeouts(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.isolate(1)
        cluster.advance(cluster.timeout_us)
        assert cluster.role(1) is Role.LEADER
        cluster.advance(cluster.timeout_us + cluster.timeout_us // 5)
        assert cluster.nodes[1].status.role is not Role.LEADER

    def test_a_leader_that_steps_down_sends_no_more_heartbeats(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        assert set(cluster.nodes[1].beats.peers) == {node_name(2), node_name(3)}
        cluster.step(1, StepDown())
        assert cluster.nodes[1].status.role is Role.FOLLOWER
        assert cluster.nodes[1].beats.peers == ()
