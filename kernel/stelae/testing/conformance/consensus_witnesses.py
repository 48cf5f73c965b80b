"""Conformance checks for consensus engines: witnesses, which vote and keep the log, and have no rows.

Source: the appendix of "Raft config change", t=1 to t=5, with the fences of durability rule 12 (behaviour C13)."""

from __future__ import annotations

from stelae.spi.consensus import HardState, Role
from stelae.spi.consensus_events import DAMAGED, UNKNOWN, BeatException
from stelae.spi.ids import OpId
from stelae.spi.members import ChangeRole, MemberType
from stelae.testing.conformance.consensus_cluster import ConsensusCluster
from stelae.testing.conformance.consensus_disk import ConsensusDisk
from stelae.testing.conformance.consensus_harness import ConsensusHarness
from stelae.testing.conformance.consensus_members import member_types, promote, remove
from stelae.testing.conformance.consensus_nodes import ClusterNode, node_name

WITNESS = 4
"""The number of the witness in most checks. Nodes 1 to 3 are voters, and 3 is the one that fails."""


def join_witness(cluster: ConsensusCluster, number: int, leader: int) -> None:
    """Run a replica without rows, as a node creates it when a leader asks: at the leader's commit index.

    It has the leader's committed config, whose entry may lie below the log's base."""
    source = cluster.nodes[leader]
    base = source.log[source.status.commit - source.disk.base.index - 1].op_id
    disk = ConsensusDisk(source.status.committed_config, base, HardState(term=base.term), log_only=True)
    cluster.nodes[number] = ClusterNode(number, disk)
    cluster.start(number)


def has_rows(cluster: ConsensusCluster, number: int) -> None:
    """Restart a replica without rows as one that has copied them."""
    cluster.crash(number)
    cluster.nodes[number].disk.log_only = False
    cluster.start(number)


def with_witness(harness: ConsensusHarness, *, dead: int = 3) -> ConsensusCluster:
    """Make a cluster at t=4 of the appendix: voters 1 and 2, a witness, and a voter that failed and was demoted."""
    cluster = harness.led()
    cluster.propose(1, b"a")
    cluster.deliver_all()
    cluster.crash(dead)
    added = cluster.add(1, WITNESS, MemberType.PRE_WITNESS)
    cluster.deliver_all()
    join_witness(cluster, WITNESS, 1)
    cluster.advance(2 * cluster.timeout_us)
    demoted = cluster.change(1, ChangeRole(node_id=node_name(dead), member_type=MemberType.NON_VOTER))
    cluster.deliver_all()
    assert {added, demoted} <= set(cluster.changed)
    return cluster


def beside_lagging_voter(harness: ConsensusHarness) -> ConsensusCluster:
    """Make a cluster with a witness whose log begins after that of voter 3 ends, because that one is cut off."""
    cluster = harness.led()
    cluster.isolate(3)
    cluster.propose(1, b"a")
    cluster.deliver_all()
    cluster.add(1, WITNESS, MemberType.PRE_WITNESS)
    cluster.deliver_all()
    join_witness(cluster, WITNESS, 1)
    cluster.advance(2 * cluster.timeout_us)
    assert member_types(cluster, 1)[WITNESS] == "WITNESS"
    return cluster


class WitnessChecks:
    """Checks of witnesses; part of ``ConsensusConformance``."""

    def test_a_witness_joins_at_a_committed_entry_and_restores_the_fault_tolerance(
        self, harness: ConsensusHarness
    ) -> None:
        cluster = with_witness(harness)
        assert member_types(cluster, 1) == {1: "VOTER", 2: "VOTER", 3: "NON_VOTER", WITNESS: "WITNESS"}
        assert cluster.nodes[WITNESS].disk.base > OpId(1, 1), "it has none of the older entries"
        cluster.crash(2)
        cluster.propose(1, b"b")
        cluster.deliver_all()
        assert cluster.bodies(1)[-1] == b"b", "one voter and the witness are a majority of three"
        assert cluster.bodies(WITNESS) == [b"b"]

    def test_no_voter_goes_that_a_lagging_one_may_need(self, harness: ConsensusHarness) -> None:
        """Node 3 lags below the log of the witness. Without node 2, the loss of node 1 alone would stop the tablet."""
        cluster = beside_lagging_voter(harness)
        for change in (remove(2), ChangeRole(node_id=node_name(2), member_type=MemberType.NON_VOTER)):
            token = cluster.change(1, change)
            assert cluster.rejected.get(token) == "NOT_CAUGHT_UP"
            assert str(node_name(3)) in cluster.rejections[token].detail
        cluster.heal()
        cluster.advance(2 * cluster.timeout_us)
        token = cluster.change(1, remove(2))
        cluster.deliver_all()
        assert token in cluster.changed
        cluster.crash(1)
        cluster.advance(8 * cluster.timeout_us)
        assert b"a" in cluster.bodies(3) and cluster.nodes[3].status.role is Role.LEADER

    def test_no_voter_goes_that_one_without_a_replica_may_need(self, harness: ConsensusHarness) -> None:
        """Node 3 has acknowledged all, and its rows are damaged. Without node 2, node 1 has the only rows."""
        cluster = harness.led()
        cluster.add(1, WITNESS, MemberType.PRE_WITNESS)
        cluster.deliver_all()
        join_witness(cluster, WITNESS, 1)
        cluster.advance(2 * cluster.timeout_us)
        cluster.crash(3)
        cluster.step(1, BeatException(node_name(3), cluster.nodes[1].status.term, DAMAGED))
        token = cluster.change(1, remove(2))
        assert cluster.rejected.get(token) == "NOT_CAUGHT_UP"
        assert str(node_name(3)) in cluster.rejections[token].detail
        token = cluster.change(1, remove(3))
        cluster.deliver_all()
        assert token in cluster.changed

    def test_a_voter_that_lags_below_the_log_of_a_witness_may_go(self, harness: ConsensusHarness) -> None:
        cluster = beside_lagging_voter(harness)
        token = cluster.change(1, remove(3))
        cluster.deliver_all()
        assert token in cluster.changed

    def test_voters_that_are_down_and_may_lag_can_be_removed_one_after_the_other(
        self, harness: ConsensusHarness
    ) -> None:
        """A new leader knows nothing of their logs. Each of them kept the other one from being removed, for ever."""
        cluster = harness.led()
        for witness in (WITNESS, WITNESS + 1):
            cluster.add(1, witness, MemberType.PRE_WITNESS)
            cluster.deliver_all()
            join_witness(cluster, witness, 1)
            cluster.advance(2 * cluster.timeout_us)
        for number in (2, 3):
            cluster.crash(number)
        cluster.restart(1)
        cluster.elect(1)
        assert cluster.rejected.get(cluster.change(1, remove(2))) == "NOT_CAUGHT_UP", "it may answer in a moment"
        cluster.advance(2 * cluster.timeout_us)
        for number in (2, 3):
            token = cluster.change(1, remove(number))
            cluster.deliver_all()
            assert token in cluster.changed
        assert member_types(cluster, 1) == {1: "VOTER", WITNESS: "WITNESS", WITNESS + 1: "WITNESS"}

    def test_a_witness_that_has_its_rows_when_the_last_voter_is_lost_becomes_a_voter(
        self, harness: ConsensusHarness
    ) -> None:
        """Voter 1 was lost between the copy of its rows and the promotion. Both others are witnesses."""
        cluster = harness.led()
        cluster.propose(1, b"a")
        cluster.deliver_all()
        for number in (WITNESS, WITNESS + 1):
            cluster.add(1, number, MemberType.PRE_WITNESS)
            cluster.deliver_all()
            join_witness(cluster, number, 1)
            cluster.advance(2 * cluster.timeout_us)
        for number in (2, 3):
            cluster.change(1, remove(number))
            cluster.deliver_all()
        assert member_types(cluster, 1) == {1: "VOTER", WITNESS: "WITNESS", WITNESS + 1: "WITNESS"}
        cluster.crash(1)
        has_rows(cluster, WITNESS)
        cluster.advance(12 * cluster.timeout_us)
        assert cluster.nodes[WITNESS].status.role is Role.LEADER and cluster.nodes[WITNESS].status.serving
        assert member_types(cluster, WITNESS)[WITNESS] == "VOTER"
        cluster.propose(WITNESS, b"b")
        cluster.deliver_all()
        assert cluster.bodies(WITNESS + 1)[-1] == b"b"

    def test_a_witness_has_no_vote_before_it_has_caught_up(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.add(1, WITNESS, MemberType.PRE_WITNESS)
        cluster.deliver_all()
        join_witness(cluster, WITNESS, 1)
        cluster.nodes[WITNESS].holds = True
        cluster.propose(1, b"a")
        cluster.advance(3 * cluster.timeout_us)
        assert member_types(cluster, 1).get(WITNESS) == "PRE_WITNESS"
        cluster.nodes[WITNESS].holds = False
        while cluster.nodes[WITNESS].pending:
            cluster.persist(WITNESS)
        cluster.advance(2 * cluster.timeout_us)
        assert member_types(cluster, 1).get(WITNESS) == "WITNESS"

    def test_a_witness_is_fed_that_its_node_created_because_it_did_not_host_the_tablet(
        self, harness: ConsensusHarness
    ) -> None:
        cluster = harness.led()
        cluster.add(1, WITNESS, MemberType.PRE_WITNESS)
        cluster.deliver_all()
        cluster.step(1, BeatException(node_name(WITNESS), 0, UNKNOWN))
        asked = [request for ready in cluster.nodes[1].readies for request in ready.copy_requests]
        assert [(request.peer, request.hosted) for request in asked] == [(node_name(WITNESS), False)]
        join_witness(cluster, WITNESS, 1)
        assert cluster.nodes[WITNESS].status.term == cluster.nodes[1].status.term
        cluster.advance(2 * cluster.timeout_us)
        assert member_types(cluster, 1).get(WITNESS) == "WITNESS"

    def test_a_witness_that_never_answers_is_removed(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.add(1, WITNESS, MemberType.PRE_WITNESS)
        cluster.transfer(1, 2)
        cluster.advance(harness.member_join_timeout_us + 4 * cluster.timeout_us)
        leader = cluster.leader()
        assert leader is not None and WITNESS not in member_types(cluster, leader.number)

    def test_a_witness_keeps_its_vote_and_its_log_over_a_restart(self, harness: ConsensusHarness) -> None:
        cluster = with_witness(harness)
        cluster.crash(2)
        cluster.propose(1, b"b")
        cluster.deliver_all()
        before = cluster.nodes[WITNESS].status
        cluster.restart(WITNESS)
        after = cluster.nodes[WITNESS].status
        assert (after.term, after.voted_for, after.last) == (before.term, before.voted_for, before.last)
        assert after.role is Role.FOLLOWER and after.caretaker

    # -- the caretaker ---------------------------------------------------------------------------

    def test_a_witness_with_the_only_copy_of_an_entry_saves_it_and_hands_over(self, harness: ConsensusHarness) -> None:
        cluster = with_witness(harness)
        cluster.isolate(2)
        cluster.propose(1, b"b")
        cluster.advance(cluster.timeout_us // 2)
        assert cluster.bodies(1)[-1] == b"b"
        cluster.crash(1)
        cluster.heal()
        cluster.advance(8 * cluster.timeout_us)
        assert WITNESS in cluster.leaders.values(), "no other member has the entry"
        assert cluster.role(2) is Role.LEADER and cluster.nodes[2].status.serving
        assert cluster.bodies(2) == [b"a", b"b"]

    def test_a_caretaker_serves_nobody(self, harness: ConsensusHarness) -> None:
        cluster = with_witness(harness)
        cluster.crash(1)
        cluster.nodes[2].holds = True
        cluster.win_with(WITNESS, 2)
        self._refuses_everything(cluster)
        cluster.deliver_all()
        while cluster.nodes[2].pending:
            cluster.persist(2)
        cluster.deliver_all(lambda packet: packet.to == WITNESS)
        status = cluster.nodes[WITNESS].status
        assert status.commit == status.last.index, "it may commit, because that serves no request"
        self._refuses_everything(cluster)

    def _refuses_everything(self, cluster: ConsensusCluster) -> None:
        status = cluster.nodes[WITNESS].status
        assert status.role is Role.LEADER and not status.serving
        (proposed,), read = cluster.propose(WITNESS, b"x"), cluster.read(WITNESS)
        changed = cluster.change(WITNESS, remove(3))
        assert [cluster.rejected.get(token) for token in (proposed, read, changed)] == ["CONFIGURING"] * 3

    def test_a_caretaker_hands_over_to_no_voter_that_lacks_an_entry(self, harness: ConsensusHarness) -> None:
        cluster = with_witness(harness)
        cluster.crash(1)
        cluster.nodes[2].holds = True
        cluster.win_with(WITNESS, 2)
        cluster.advance(cluster.timeout_us // 2)
        assert cluster.role(WITNESS) is Role.LEADER, "node 2 has nothing durable of the new term yet"
        assert cluster.role(2) is Role.FOLLOWER
        cluster.nodes[2].holds = False
        while cluster.nodes[2].pending:
            cluster.persist(2)
        cluster.advance(cluster.timeout_us)
        assert cluster.role(2) is Role.LEADER and cluster.nodes[2].status.serving

    def test_a_caretaker_tries_again_if_its_successor_does_not_take_over(self, harness: ConsensusHarness) -> None:
        cluster = with_witness(harness)
        cluster.crash(1)
        cluster.win_with(WITNESS, 2)
        cluster.deliver_all(lambda packet: packet.to == WITNESS or bool(packet.entries))
        cluster.deliver_all(lambda packet: packet.to == WITNESS)
        lost = cluster.drop(lambda packet: packet.sender == WITNESS)
        assert lost, "the request to take over was not lost"
        cluster.advance(4 * cluster.timeout_us)
        assert cluster.role(2) is Role.LEADER and cluster.nodes[2].status.serving

    def test_voters_campaign_before_a_witness(self, harness: ConsensusHarness) -> None:
        cluster = with_witness(harness)
        cluster.crash(1)
        cluster.advance(3 * cluster.timeout_us)
        assert cluster.role(2) is Role.LEADER
        assert WITNESS not in cluster.leaders.values()

    def test_a_leader_hands_over_to_no_witness(self, harness: ConsensusHarness) -> None:
        cluster = with_witness(harness)
        refused = cluster.transfer(1, WITNESS)
        assert cluster.rejected.get(refused) == "NOT_A_VOTER"
        cluster.crash(2)
        cluster.advance(cluster.timeout_us + cluster.timeout_us // 4)
        alone = cluster.transfer(1, None)
        cluster.deliver_all()
        assert cluster.rejected.get(alone) == "NO_SUCCESSOR" and cluster.role(1) is Role.LEADER

    # -- becoming a voter ------------------------------------------------------------------------

    def test_a_witness_becomes_a_voter_once_it_has_all_rows(self, harness: ConsensusHarness) -> None:
        cluster = with_witness(harness)
        token = cluster.change(1, promote(WITNESS))
        assert cluster.rejected.get(token) == "ROWS_MISSING"
        assert str(node_name(WITNESS)) in cluster.rejections[token].detail
        cluster.advance(4 * cluster.timeout_us)
        assert member_types(cluster, 1).get(WITNESS) == "WITNESS"
        has_rows(cluster, WITNESS)
        cluster.advance(2 * cluster.timeout_us)
        assert member_types(cluster, 1) == {1: "VOTER", 2: "VOTER", 3: "NON_VOTER", WITNESS: "VOTER"}
        assert not cluster.nodes[WITNESS].status.caretaker
        cluster.elect(WITNESS)
        assert cluster.nodes[WITNESS].status.serving

    def test_a_member_without_rows_is_no_voter_whatever_it_was_added_as(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.add(1, WITNESS)
        cluster.deliver_all()
        join_witness(cluster, WITNESS, 1)
        cluster.advance(4 * cluster.timeout_us)
        assert member_types(cluster, 1).get(WITNESS) == "PRE_VOTER"
        token = cluster.change(1, promote(WITNESS))
        assert cluster.rejected.get(token) == "ROWS_MISSING"
        has_rows(cluster, WITNESS)
        cluster.advance(2 * cluster.timeout_us)
        assert member_types(cluster, 1).get(WITNESS) == "VOTER"

    def test_a_voter_that_was_demoted_is_known_until_it_has_its_vote_back(self, harness: ConsensusHarness) -> None:
        cluster = with_witness(harness)

        def was_voter() -> bool:
            member = cluster.nodes[1].status.config.member(node_name(3))
            assert member is not None
            return member.was_voter is True

        assert was_voter()
        cluster.start(3)
        cluster.advance(2 * cluster.timeout_us)
        cluster.change(1, ChangeRole(node_id=node_name(3), member_type=MemberType.PRE_VOTER))
        assert member_types(cluster, 1)[3] == "PRE_VOTER" and was_voter()
        cluster.advance(4 * cluster.timeout_us)
        assert member_types(cluster, 1)[3] == "VOTER" and not was_voter()
        removed = cluster.change(1, remove(WITNESS))
        cluster.deliver_all()
        assert removed in cluster.changed
        assert member_types(cluster, 1) == dict.fromkeys((1, 2, 3), "VOTER")

    def test_a_voter_that_was_removed_is_known_when_it_is_added_again(self, harness: ConsensusHarness) -> None:
        """It has acknowledged entries. If it has lost them, an empty replica could help to elect a leader without them:
        one that lags, and has an old config in which this voter counts."""
        cluster = harness.led()
        cluster.crash(3)
        removed = cluster.change(1, remove(3))
        cluster.deliver_all()
        assert removed in cluster.changed
        assert cluster.nodes[2].status.config.former_voters == (node_name(3),)
        cluster.restart(2)
        cluster.elect(2)
        cluster.deliver_all()
        added = cluster.add(2, 3)
        cluster.deliver_all()
        assert added in cluster.changed
        config = cluster.nodes[1].status.config
        member = config.member(node_name(3))
        assert member is not None and member.was_voter is True and config.former_voters == ()
        cluster.start(3)
        cluster.advance(4 * cluster.timeout_us)
        member = cluster.nodes[2].status.config.member(node_name(3))
        assert member is not None and member.member_type is MemberType.VOTER and member.was_voter is not True
        newcomer = cluster.add(2, 5)
        cluster.deliver_all()
        assert newcomer in cluster.changed
        member = cluster.nodes[2].status.config.member(node_name(5))
        assert member is not None and member.was_voter is not True, "it never had a vote"
