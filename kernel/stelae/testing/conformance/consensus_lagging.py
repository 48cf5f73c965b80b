"""Conformance checks for consensus engines: lagging peers, collection of the log, and peers that need a copy."""

from __future__ import annotations

from stelae.spi.consensus import CopyRequest
from stelae.spi.consensus_events import DAMAGED, FAILED, UNKNOWN, BeatException, PeerUnreachable
from stelae.spi.members import MemberType, RemoveServer
from stelae.testing.conformance.consensus_cluster import ConsensusCluster
from stelae.testing.conformance.consensus_harness import ConsensusHarness
from stelae.testing.conformance.consensus_nodes import node_name


class LaggingChecks:
    """Checks of lagging peers; part of ``ConsensusConformance``."""

    def test_leader_and_followers_know_the_all_replicated_index(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        self._propose(cluster, 1, 3)
        last_index = cluster.nodes[1].status.last.index
        assert cluster.nodes[1].status.all_replicated_index == last_index
        self._propose(cluster, 1, 1)
        for number in (2, 3):
            assert cluster.nodes[number].status.all_replicated_index >= last_index

    def test_entries_that_a_member_lacks_are_above_the_all_replicated_index(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.isolate(3)
        had = cluster.nodes[3].status.last.index
        self._propose(cluster, 1, 5)
        assert max(n.status.all_replicated_index for n in cluster.nodes.values()) <= had
        cluster.heal()
        cluster.advance(3 * cluster.timeout_us)
        self._propose(cluster, 1, 2)
        assert min(n.status.all_replicated_index for n in cluster.nodes.values()) > had

    def test_entries_not_durable_on_the_leader_are_above_the_all_replicated_index(
        self, harness: ConsensusHarness
    ) -> None:
        cluster = harness.led()
        cluster.nodes[1].holds = True
        had = cluster.nodes[1].disk.last.index
        self._propose(cluster, 1, 2)
        assert cluster.nodes[1].status.commit > had, "a majority commits without it"
        assert max(n.status.all_replicated_index for n in cluster.nodes.values()) <= had

    def test_a_new_leader_does_not_count_entries_that_a_member_has_not_acknowledged(
        self, harness: ConsensusHarness
    ) -> None:
        cluster = harness.led()
        cluster.isolate(3)
        had = cluster.nodes[3].status.last.index
        self._propose(cluster, 1, 5)
        cluster.elect(2)
        self._propose(cluster, 2, 3)
        assert cluster.nodes[2].status.commit > had
        assert max(n.status.all_replicated_index for n in cluster.nodes.values()) <= had

    def test_entries_that_a_learner_lacks_are_above_the_all_replicated_index(self, harness: ConsensusHarness) -> None:
        cluster = harness.led(1, MemberType.NON_VOTER)
        cluster.isolate(2)
        had = cluster.nodes[2].status.last.index
        self._propose(cluster, 1, 2)
        assert cluster.nodes[1].status.commit > had >= cluster.nodes[1].status.all_replicated_index

    def test_a_member_whose_removal_is_pending_keeps_the_log_that_it_lacks(self, harness: ConsensusHarness) -> None:
        """Another leader may replace the entry that removes it. It is a member then, and needs the log."""
        cluster = harness.led()
        cluster.isolate(3)
        had = cluster.nodes[3].status.last.index
        self._propose(cluster, 1, 3)
        cluster.nodes[2].holds = True
        token = cluster.change(1, RemoveServer(node_id=node_name(3)))
        cluster.deliver_all()
        assert token not in cluster.changed
        assert max(n.status.all_replicated_index for n in cluster.nodes.values()) <= had
        cluster.nodes[2].holds = False
        while cluster.nodes[2].pending:
            cluster.persist(2)
        cluster.deliver_all()
        assert token in cluster.changed and cluster.nodes[1].status.all_replicated_index > had

    def test_a_restarted_replica_learns_the_all_replicated_index_again(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        self._propose(cluster, 1, 3)
        known = cluster.nodes[2].status.all_replicated_index
        assert known > 0
        cluster.restart(2)
        assert cluster.nodes[2].status.all_replicated_index == 0
        self._propose(cluster, 1, 1)
        cluster.advance(2 * cluster.timeout_us)
        assert cluster.nodes[2].status.all_replicated_index >= known

    def test_no_peer_needs_a_copy_while_logs_are_collected_only_as_far_as_the_core_allows(
        self, harness: ConsensusHarness
    ) -> None:
        """A regression that lost replicas: one node is down, the others go on and are restarted in turn."""
        cluster = harness.led()
        self._propose(cluster, 1, 3)
        cluster.crash(3)
        for leader, other in ((1, 2), (2, 1), (1, 2)):
            cluster.elect(leader)
            self._propose(cluster, leader, 4)
            cluster.collect(1)
            cluster.collect(2)
            cluster.restart(other)
            cluster.advance(2 * cluster.timeout_us)
        cluster.start(3)
        cluster.advance(4 * cluster.timeout_us)
        assert cluster.nodes[3].status.last == cluster.nodes[1].status.last == cluster.nodes[2].status.last
        assert not any(ready.copy_requests for node in cluster.nodes.values() for ready in node.readies)

    # -- copies ------------------------------------------------------------------------------------

    def test_a_copy_is_requested_again_and_again_for_a_peer_that_the_log_cannot_catch_up(
        self, harness: ConsensusHarness
    ) -> None:
        cluster = self._with_a_gap(harness)
        assert self._state(cluster, 3) == "COPY"
        asked, ranges = self._requests(cluster), self._ranges(cluster, 3)
        assert {(request.peer, request.first_index) for request in asked} == {(node_name(3), 2)}
        for _ in range(5):
            self._propose(cluster, 1, 1)
            cluster.advance(2 * cluster.timeout_us)
        assert self._state(cluster, 3) == "COPY" and self._ranges(cluster, 3) == ranges
        again = self._requests(cluster)
        assert len(asked) < len(again) < len(asked) + 50, "again and again, at growing intervals"
        cluster.crash(3)
        cluster.advance(cluster.timeout_us)
        silent = self._requests(cluster)
        cluster.advance(8 * cluster.timeout_us)
        assert self._requests(cluster) == silent, "nothing is asked of a peer that is not alive"

    def test_a_config_whose_majority_needs_a_peer_that_is_to_be_copied_is_refused(
        self, harness: ConsensusHarness
    ) -> None:
        """The peer answers heartbeats and no append. The change and every write would wait for the end of its copy."""
        cluster = self._with_a_gap(harness)
        cluster.advance(cluster.timeout_us)
        token = cluster.change(1, RemoveServer(node_id=node_name(2)))
        assert cluster.rejected.get(token) == "NO_LIVE_MAJORITY"
        assert str(node_name(3)) in cluster.rejections[token].detail

    def test_a_copy_is_requested_again_although_the_leader_confirms_reads_all_the_time(
        self, harness: ConsensusHarness
    ) -> None:
        """Each read sends a message to every peer, and the repetition waited until a time without messages.

        A request that was lost, or refused because the peer had no free slot, was then never repeated."""
        cluster = self._with_a_gap(harness)
        asked = len(self._requests(cluster))
        for _ in range(40):
            cluster.read(1)
            cluster.advance(cluster.timeout_us // 10)
        assert len(self._requests(cluster)) > asked

    def test_after_a_copy_replication_to_the_peer_goes_on_from_the_end_of_its_log(
        self, harness: ConsensusHarness
    ) -> None:
        cluster = self._with_a_gap(harness)
        cluster.crash(3)
        cluster.install(3, 2)
        self._propose(cluster, 1, 2)
        cluster.start(3)
        cluster.advance(8 * cluster.timeout_us)
        assert self._state(cluster, 3) == "REPLICATE", "it was probed with a later request for a copy"
        assert cluster.nodes[3].status.last == cluster.nodes[1].status.last

    def test_a_peer_that_was_restored_by_other_means_needs_no_copy(self, harness: ConsensusHarness) -> None:
        cluster = self._with_a_gap(harness)
        cluster.crash(3)
        cluster.step(1, PeerUnreachable(node_name(3)))
        cluster.install(3, 2)
        cluster.start(3)
        cluster.advance(4 * cluster.timeout_us)
        self._propose(cluster, 1, 1)
        assert self._state(cluster, 3) == "REPLICATE"
        assert cluster.nodes[3].status.last == cluster.nodes[1].status.last

    def test_a_peer_with_a_copy_is_served_at_once_by_a_leader_that_does_not_know_its_own_log_base(
        self, harness: ConsensusHarness
    ) -> None:
        """The leader learns of the collection only when it reads collected entries for the peer that has its copy."""
        cluster = harness.led()
        cluster.crash(3)
        self._propose(cluster, 1, 3)
        for node in (1, 2):
            cluster.collect(node, 3)
        cluster.install(3, 2)
        cluster.start(3)
        cluster.step(1, PeerUnreachable(node_name(3)))
        cluster.advance(2 * cluster.timeout_us)
        assert self._state(cluster, 3) == "REPLICATE"
        assert cluster.nodes[3].status.last == cluster.nodes[1].status.last
        assert len(self._requests(cluster)) <= 1, "it is probed with the first request for a copy"

    def test_a_copy_is_requested_for_a_peer_whose_replica_is_damaged_although_it_has_the_whole_log(
        self, harness: ConsensusHarness
    ) -> None:
        cluster = harness.led()
        self._propose(cluster, 1, 3)
        term, match = cluster.nodes[1].status.term, cluster.nodes[3].status.last.index
        cluster.crash(3)
        cluster.step(1, BeatException(node_name(3), term, DAMAGED))
        assert self._requests(cluster) == [CopyRequest(node_name(3), match + 1, damaged=True)]
        self._propose(cluster, 1, 1)
        assert self._state(cluster, 3) == "COPY", "and nothing is sent to it"
        cluster.install(3, 2)
        cluster.start(3)
        cluster.advance(4 * cluster.timeout_us)
        assert self._state(cluster, 3) == "REPLICATE"
        assert cluster.nodes[3].status.last == cluster.nodes[1].status.last

    def test_a_learner_that_has_lost_its_replica_gets_the_log_again_from_the_same_leader(
        self, harness: ConsensusHarness
    ) -> None:
        """It refused what it had acknowledged, which the leader took for a late answer, for ever."""
        for noticed in (False, True):
            cluster = harness.led(3, MemberType.NON_VOTER)
            self._propose(cluster, 1, 3)
            cluster.crash(4)
            cluster.step(1, PeerUnreachable(node_name(4)))
            if noticed:
                cluster.step(1, BeatException(node_name(4), 0, UNKNOWN))
            cluster.join(4)
            cluster.advance(8 * cluster.timeout_us)
            assert self._state(cluster, 4) == "REPLICATE"
            assert cluster.nodes[4].status.last == cluster.nodes[1].status.last

    def test_a_learner_that_has_lost_its_replica_gets_a_copy_if_the_log_was_collected(
        self, harness: ConsensusHarness
    ) -> None:
        cluster = harness.led(3, MemberType.NON_VOTER)
        self._propose(cluster, 1, 3)
        cluster.crash(4)
        cluster.step(1, PeerUnreachable(node_name(4)))
        cluster.collect(1, 3)
        cluster.join(4)
        cluster.advance(8 * cluster.timeout_us)
        assert self._state(cluster, 4) == "COPY"
        assert {request.peer for request in self._requests(cluster)} == {node_name(4)}
        cluster.crash(4)
        cluster.install(4, 1)
        cluster.start(4)
        cluster.advance(8 * cluster.timeout_us)
        assert self._state(cluster, 4) == "REPLICATE"
        assert cluster.nodes[4].status.last == cluster.nodes[1].status.last

    # -- slow peers and bad links ------------------------------------------------------------------

    def test_entries_are_sent_again_to_a_slow_peer_no_more_often_while_reads_are_confirmed(
        self, harness: ConsensusHarness
    ) -> None:
        """A peer with a slow disk confirms reads at once. Each time it got all that it had not acknowledged yet."""
        ranges = []
        for reads in (False, True):
            cluster = harness.led()
            cluster.nodes[3].holds = True
            self._propose(cluster, 1, 20)
            before = self._ranges(cluster, 3)
            for _ in range(200):
                if reads:
                    cluster.read(1)
                cluster.advance(cluster.timeout_us // 20)
            ranges.append(self._ranges(cluster, 3) - before)
        assert 0 < ranges[1] <= 2 * ranges[0]

    def test_a_peer_whose_link_fails_again_and_again_catches_up_in_between(self, harness: ConsensusHarness) -> None:
        """Each failure put the retry off, which is due after up to two election timeouts once a peer was silent."""
        cluster = harness.led()
        cluster.crash(3)
        self._propose(cluster, 1, 1)
        cluster.advance(20 * cluster.timeout_us)
        cluster.start(3)
        for _ in range(8):
            cluster.step(1, PeerUnreachable(node_name(3)))
            cluster.advance(cluster.timeout_us)
        assert cluster.nodes[3].status.last == cluster.nodes[1].status.last

    def test_a_replica_that_has_failed_is_sent_entries_no_more_often_than_a_silent_one(
        self, harness: ConsensusHarness
    ) -> None:
        ranges = []
        for failed in (False, True):
            cluster = harness.led()
            cluster.crash(3)
            self._propose(cluster, 1, 3)
            before = self._ranges(cluster, 3)
            for _ in range(100):
                if failed:
                    cluster.step(1, BeatException(node_name(3), cluster.nodes[1].status.term, FAILED))
                cluster.advance(cluster.timeout_us // 5)
            ranges.append(self._ranges(cluster, 3) - before)
        assert 0 < ranges[1] <= 2 * ranges[0]

    def _requests(self, cluster: ConsensusCluster) -> list[CopyRequest]:
        return [request for ready in cluster.nodes[1].readies for request in ready.copy_requests]

    def _with_a_gap(self, harness: ConsensusHarness) -> ConsensusCluster:
        """Make a cluster in which node 1 leads and has collected entries that node 3, which runs again, lacks."""
        cluster = harness.led()
        cluster.crash(3)
        self._propose(cluster, 1, 1)
        self._propose(cluster, 1, 1)
        cluster.collect(1, 2)
        cluster.start(3)
        cluster.step(1, PeerUnreachable(node_name(3)))
        cluster.advance(4 * cluster.timeout_us)
        return cluster

    def _propose(self, cluster: ConsensusCluster, number: int, count: int) -> None:
        for _ in range(count):
            cluster.propose(number, b"more")
            cluster.deliver_all()

    def _state(self, cluster: ConsensusCluster, peer: int) -> str:
        (found,) = [p.state for p in cluster.nodes[1].status.peers if p.node_id == node_name(peer)]
        return found

    def _ranges(self, cluster: ConsensusCluster, peer: int) -> int:
        return sum(wanted.to == node_name(peer) for ready in cluster.nodes[1].readies for wanted in ready.ranges)
