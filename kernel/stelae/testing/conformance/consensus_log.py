"""Conformance checks for consensus engines: replication and commit."""

from __future__ import annotations

from stelae.spi.consensus import Role
from stelae.spi.consensus_events import Campaign
from stelae.spi.ids import OpId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.members import Member, MemberType, TabletConfig, encode_config
from stelae.testing.conformance.consensus_cluster import ConsensusCluster
from stelae.testing.conformance.consensus_harness import ConsensusHarness
from stelae.testing.conformance.consensus_nodes import InFlightMessage, node_name


class LogChecks:
    """Checks of replication and commit; part of ``ConsensusConformance``."""

    def test_the_first_entry_is_the_initial_config_and_later_terms_begin_with_a_no_op(
        self, harness: ConsensusHarness
    ) -> None:
        cluster = harness.led()
        cluster.crash(1)
        cluster.advance(3 * cluster.timeout_us)
        leader = cluster.leader()
        assert leader is not None
        kinds = [entry.kind for entry in leader.log]
        assert kinds == [EntryKind.CONFIG, EntryKind.NOOP]
        assert leader.status.config.members == cluster.initial.members

    def test_a_config_takes_effect_at_append_and_is_rolled_back_when_replaced(self, harness: ConsensusHarness) -> None:
        cluster = harness.cluster()
        cluster.step(1, Campaign())
        while cluster.nodes[1].status.role is not Role.LEADER:
            cluster.deliver(cluster.network.popleft())
        cluster.isolate(1)
        assert cluster.nodes[1].status.config.op_id == OpId(1, 1)
        assert cluster.nodes[1].status.committed_config.op_id == OpId(0, 0)
        cluster.advance(3 * cluster.timeout_us, beats=False)
        other = cluster.leader()
        assert other is not None and other.number != 1
        cluster.heal()
        cluster.advance(3 * cluster.timeout_us)
        config = cluster.nodes[1].status.config
        assert config.op_id == OpId(other.status.term, 1)
        assert cluster.nodes[1].disk.config == config

    def test_a_config_that_never_committed_is_rolled_back_when_its_entry_is_replaced(
        self, harness: ConsensusHarness
    ) -> None:
        cluster = harness.led()
        agreed = cluster.nodes[1].status.config
        cluster.crash(1)
        learner = Member(node_id=node_name(9), address="node-9:1", member_type=MemberType.NON_VOTER)
        wider = TabletConfig(op_id=OpId(1, 2), members=(*agreed.members, learner))
        entry = Entry(wider.op_id, EntryKind.CONFIG, 2, encode_config(wider))
        cluster.nodes[1].disk.put(entry)
        cluster.start(1)
        assert cluster.nodes[1].status.config == wider
        assert cluster.nodes[1].status.committed_config == agreed
        cluster.crash(1)
        cluster.advance(4 * cluster.timeout_us)
        cluster.start(1)
        cluster.advance(2 * cluster.timeout_us)
        assert cluster.nodes[1].log[1].kind is EntryKind.NOOP
        assert cluster.nodes[1].status.config == agreed

    def test_a_committed_config_is_durable_in_metadata_only_once_committed(self, harness: ConsensusHarness) -> None:
        cluster = harness.cluster()
        cluster.nodes[1].holds = True
        cluster.step(1, Campaign())
        assert cluster.nodes[1].disk.config.op_id == OpId(0, 0)
        cluster.nodes[1].holds = False
        while cluster.nodes[1].pending:
            cluster.persist(1)
        cluster.deliver_all()
        assert [n.disk.config.op_id for n in cluster.nodes.values()] == [OpId(1, 1)] * 3

    def test_nothing_commits_without_a_majority_and_pending_entries_commit_with_one(
        self, harness: ConsensusHarness
    ) -> None:
        cluster = harness.led()
        cluster.crash(2)
        cluster.crash(3)
        cluster.propose(1, b"a")
        cluster.deliver_all()
        assert cluster.bodies(1) == []
        cluster.start(2)
        cluster.advance(4 * cluster.timeout_us)
        assert cluster.bodies(1) == cluster.bodies(2) == [b"a"]

    def test_a_leader_counts_itself_only_once_durable(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.crash(3)
        cluster.nodes[1].holds = True
        cluster.propose(1, b"a")
        cluster.deliver_all()
        assert cluster.nodes[2].disk.last == OpId(1, 2)
        assert cluster.nodes[1].status.commit == 1
        while cluster.nodes[1].pending:
            cluster.persist(1)
        assert cluster.nodes[1].status.commit == 2

    def test_a_majority_without_the_leader_commits(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.nodes[1].holds = True
        cluster.propose(1, b"a")
        cluster.deliver_all()
        assert cluster.nodes[1].status.commit == 2

    def test_a_follower_acknowledges_only_what_is_durable(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.crash(3)
        cluster.nodes[2].holds = True
        cluster.propose(1, b"a")
        cluster.deliver_all()
        cluster.propose(1, b"b")
        cluster.deliver_all()
        assert cluster.nodes[2].status.last == OpId(1, 3)
        assert cluster.nodes[1].status.commit == 1
        cluster.nodes[2].holds = False
        while cluster.nodes[2].pending:
            cluster.persist(2)
        cluster.deliver_all()
        assert cluster.nodes[1].status.commit == 3

    def test_persisted_entries_that_were_replaced_do_not_count_as_durable(self, harness: ConsensusHarness) -> None:
        cluster = harness.led(5)
        cluster.isolate(1, 2)
        cluster.nodes[2].holds = True
        cluster.propose(1, b"old")
        cluster.propose(1, b"older")
        cluster.deliver_all()
        cluster.crash(1)
        cluster.advance(3 * cluster.timeout_us)
        cluster.heal()
        cluster.advance(2 * cluster.timeout_us)
        node = cluster.nodes[2]
        durable = [node.status.durable_index]
        while node.pending:
            assert node.status.durable_index <= node.disk.last.index
            held = node.log[: node.status.durable_index]
            assert node.disk.entries[: len(held)] == held, "the durable index counts entries that are not durable"
            cluster.persist(2)
            durable.append(node.status.durable_index)
        assert node.status.durable_index == node.disk.last.index

    def test_repeated_acknowledgements_count_once(self, harness: ConsensusHarness) -> None:
        cluster = harness.led(5)
        cluster.isolate(1, 2)
        cluster.propose(1, b"a")
        replies: list[InFlightMessage] = []
        for _ in range(20):
            if cluster.network:
                packet = cluster.network.popleft()
                replies += [packet] if packet.to == 1 else []
                cluster.deliver(packet)
        assert replies
        for packet in replies * 5:
            cluster.deliver(packet)
        assert cluster.nodes[1].status.commit == 1

    def test_acknowledgements_of_learners_never_count(self, harness: ConsensusHarness) -> None:
        cluster = harness.led(3, MemberType.NON_VOTER, MemberType.NON_VOTER)
        cluster.isolate(2, 3)
        cluster.propose(1, b"a")
        cluster.deliver_all()
        assert cluster.nodes[4].status.role is cluster.nodes[5].status.role is Role.LEARNER
        assert cluster.nodes[4].status.last == cluster.nodes[5].status.last == OpId(1, 2)
        assert cluster.nodes[1].status.commit == 1

    def test_a_learner_never_campaigns(self, harness: ConsensusHarness) -> None:
        cluster = harness.led(1, MemberType.NON_VOTER)
        cluster.crash(1)
        cluster.step(2, Campaign(hinted=False))
        cluster.advance(5 * cluster.timeout_us)
        assert cluster.nodes[2].status.role is Role.LEARNER
        assert cluster.leaders == {1: 1}

    def test_an_idle_follower_learns_of_a_commit_before_any_time_passes(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.propose(1, b"a")
        cluster.deliver_all()
        assert [cluster.bodies(n) for n in (1, 2, 3)] == [[b"a"]] * 3
        assert cluster.now_us == 0

    def test_uncommitted_entries_of_a_paused_leader_are_replaced(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.isolate(1)
        cluster.propose(1, b"lost", b"lost too")
        cluster.advance(4 * cluster.timeout_us, beats=False)
        leader = cluster.leader()
        assert leader is not None and leader.number != 1
        cluster.propose(leader.number, b"kept")
        cluster.heal()
        cluster.advance(4 * cluster.timeout_us)
        assert [cluster.bodies(n) for n in (1, 2, 3)] == [[b"kept"]] * 3
        assert cluster.nodes[1].status.role is Role.FOLLOWER

    def test_entries_of_older_terms_commit_only_through_one_of_the_current_term(
        self, harness: ConsensusHarness
    ) -> None:
        """Figure 8 of the Raft paper, up to the moment when node 1 must not commit entry 2."""
        cluster = harness.led(5)
        cluster.isolate(1, 2)
        cluster.propose(1, b"figure 8")
        cluster.deliver_all()
        cluster.crash(1)
        self._campaign_without_replicating(cluster, 5)
        cluster.crash(5)
        cluster.heal()
        cluster.start(1)
        self._campaign_without_replicating(cluster, 1)
        old = OpId(1, 2)
        for _ in range(100):
            if cluster.network:
                packet = cluster.network.popleft()
                entries = tuple(entry for entry in packet.entries if entry.op_id <= old)
                cluster.deliver(InFlightMessage(packet.sender, packet.to, packet.message, entries))
        holders = [n for n in (1, 2, 3, 4) if cluster.nodes[n].disk.entries[1:2]]
        assert len(holders) >= 3, "a majority holds the old entry"
        assert cluster.nodes[1].status.commit == 1

    def _campaign_without_replicating(self, cluster: ConsensusCluster, number: int) -> None:
        """Make a node win, while every message that carries entries is lost."""
        for _ in range(20):
            cluster.now_us += cluster.timeout_us
            cluster.step(number, Campaign(hinted=False))
            cluster.deliver_all(lambda packet: not packet.entries)
            if cluster.nodes[number].status.role is Role.LEADER:
                return
            cluster.drop()
        raise AssertionError(f"node {number} does not win")

    def test_a_follower_far_behind_catches_up_without_stepping_back_one_by_one(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.isolate(3)
        for i in range(100):
            cluster.propose(1, b"%d" % i)
            cluster.deliver_all()
        cluster.crash(1)
        cluster.heal()
        self._campaign_without_replicating(cluster, 2)
        cluster.propose(2, b"refused: no entry of this term has committed")
        assert cluster.deliver_all() < 30
        assert cluster.nodes[3].status.last == cluster.nodes[2].status.last
        assert len(cluster.bodies(3)) == 100
