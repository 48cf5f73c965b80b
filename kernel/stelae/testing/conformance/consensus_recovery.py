"""Conformance checks for consensus engines: a tablet that lost its majority is recovered (durability rule 29)."""

from __future__ import annotations

from stelae.spi.consensus import RECOVERS, Role
from stelae.spi.consensus_events import RecoverAlone, Removed, StandDown
from stelae.spi.ids import OpId
from stelae.spi.members import MemberType
from stelae.spi.recovery_epoch import EPOCHS_AHEAD_MAX, first_term, recovery_epoch
from stelae.testing.conformance.consensus_cluster import ConsensusCluster
from stelae.testing.conformance.consensus_harness import ConsensusHarness
from stelae.testing.conformance.consensus_members import member_types, remove
from stelae.testing.conformance.consensus_nodes import node_name
from stelae.testing.conformance.consensus_witnesses import join_witness

TERM = first_term(1, 7)


def recover(cluster: ConsensusCluster, number: int, term: int = TERM, *, last: OpId | None = None) -> int:
    """Ask a node to become the only voter; return the token."""
    cluster.tokens += 1
    status = cluster.nodes[number].status
    cluster.step(number, RecoverAlone(cluster.tokens, term, last or status.last, status.config.op_id))
    return cluster.tokens


def stand_down(cluster: ConsensusCluster, number: int, survivor: int, term: int = TERM) -> int:
    """Ask a node to leave the tablet to a survivor; return the token."""
    cluster.tokens += 1
    cluster.step(number, StandDown(cluster.tokens, term, node_name(survivor)))
    return cluster.tokens


def lose_majority(cluster: ConsensusCluster, *lost: int) -> None:
    """Crash nodes, and let the others notice that no leader is alive."""
    for number in lost:
        cluster.crash(number)
    cluster.advance(3 * cluster.timeout_us)


def recovered(cluster: ConsensusCluster, number: int) -> None:
    """Recover a node and check that it serves alone. What it lacks is lost, and counts as committed no more."""
    last = cluster.nodes[number].status.last.index
    cluster.safety.recovered(1, last)
    token = recover(cluster, number)
    assert token in cluster.changed, cluster.rejections.get(token)
    assert member_types(cluster, number) == {number: "VOTER"}
    status = cluster.nodes[number].status
    assert status.role is Role.LEADER and status.serving
    assert recovery_epoch(status.term) == 1


def rejoin(cluster: ConsensusCluster, leader: int, number: int) -> None:
    """Add a node to the recovered tablet, and wait until it votes."""
    token = cluster.add(leader, number)
    cluster.advance(4 * cluster.timeout_us)
    assert token in cluster.changed, cluster.rejections.get(token)
    assert member_types(cluster, leader).get(number) == "VOTER"


class RecoveryChecks:
    """Checks of ``RecoverAlone`` and ``StandDown``; part of ``ConsensusConformance``."""

    def test_a_survivor_recovers_alone_with_all_that_it_has(self, harness: ConsensusHarness) -> None:
        cluster = self._led(harness)
        cluster.propose(1, b"a", b"b")
        cluster.deliver_all()
        lose_majority(cluster, 1, 2)
        assert cluster.role(3) is not Role.LEADER
        recovered(cluster, 3)
        cluster.propose(3, b"c")
        assert cluster.bodies(3) == [b"a", b"b", b"c"]
        assert set(cluster.nodes[3].status.config.former_voters) == {node_name(1), node_name(2)}

    def test_an_entry_that_was_not_committed_is_kept_by_the_recovery(self, harness: ConsensusHarness) -> None:
        cluster = self._led(harness)
        cluster.isolate(2)
        cluster.propose(1, b"a")
        cluster.deliver_all(lambda packet: packet.to == 3)
        lose_majority(cluster, 1, 2)
        recovered(cluster, 3)
        assert cluster.bodies(3) == [b"a"]

    def test_a_tablet_with_a_majority_is_not_recovered(self, harness: ConsensusHarness) -> None:
        cluster = self._led(harness)
        cluster.advance(cluster.timeout_us)
        for number in (1, 2):
            token = recover(cluster, number)
            assert cluster.rejected.get(token) == "LEADER_ALIVE"
        token = stand_down(cluster, 2, 3)
        assert cluster.rejected.get(token) == "LEADER_ALIVE"
        assert cluster.nodes[1].status.serving

    def test_the_only_voter_begins_a_later_epoch_although_it_leads(self, harness: ConsensusHarness) -> None:
        """It is its own majority. A catalog that was begun anew gets above what the lost one has left in this way."""
        cluster = self._led(harness)
        lose_majority(cluster, 1, 2)
        recovered(cluster, 3)
        cluster.propose(3, b"a")
        token = recover(cluster, 3, first_term(2, 4))
        assert token in cluster.changed, cluster.rejections.get(token)
        status = cluster.nodes[3].status
        assert status.serving and recovery_epoch(status.term) == 2
        cluster.propose(3, b"b")
        assert cluster.bodies(3) == [b"a", b"b"]

    def test_a_recovery_is_for_the_log_and_config_that_the_plan_saw(self, harness: ConsensusHarness) -> None:
        cluster = self._led(harness)
        lose_majority(cluster, 1, 2)
        last = cluster.nodes[3].status.last
        token = recover(cluster, 3, last=OpId(last.term, last.index + 1))
        assert cluster.rejected.get(token) == "CHANGED_SINCE"
        assert str(last) in cluster.rejections[token].detail
        for term in (last.term + 1, TERM + 1):
            token = recover(cluster, 3, term)
            assert cluster.rejected.get(token) == "CHANGED_SINCE", "only the first term of an epoch begins a recovery"
        far = first_term(EPOCHS_AHEAD_MAX + 1, 0)
        for token in (recover(cluster, 3, far), stand_down(cluster, 3, 2, far)):
            assert cluster.rejected.get(token) == "CHANGED_SINCE", "the others would not believe this epoch"

    def test_a_witness_is_no_survivor(self, harness: ConsensusHarness) -> None:
        cluster = self._led(harness)
        join_witness(cluster, 4, 1)
        cluster.add(1, 4, MemberType.PRE_WITNESS)
        cluster.advance(2 * cluster.timeout_us)
        assert member_types(cluster, 4).get(4) == "WITNESS"
        lose_majority(cluster, 1, 2, 3)
        token = recover(cluster, 4)
        assert cluster.rejected.get(token) == "ROWS_MISSING"

    def test_a_removed_replica_is_no_survivor(self, harness: ConsensusHarness) -> None:
        cluster = self._led(harness)
        cluster.change(1, remove(3))
        cluster.deliver_all()
        cluster.step(3, Removed(cluster.nodes[1].status.committed_config.op_id))
        lose_majority(cluster, 1, 2)
        token = recover(cluster, 3)
        assert cluster.rejected.get(token) == "NOT_A_MEMBER"

    def test_a_learner_with_rows_can_be_the_survivor(self, harness: ConsensusHarness) -> None:
        cluster = self._led(harness, 3, MemberType.NON_VOTER)
        cluster.propose(1, b"a")
        cluster.deliver_all()
        lose_majority(cluster, 1, 2, 3)
        recovered(cluster, 4)
        assert cluster.bodies(4) == [b"a"]

    def test_a_repeated_recovery_is_told_that_it_is_done(self, harness: ConsensusHarness) -> None:
        cluster = self._led(harness)
        lose_majority(cluster, 1, 2)
        recovered(cluster, 3)
        token = recover(cluster, 3)
        assert cluster.rejected.get(token) == "RECOVERED"

    def test_a_recovery_goes_on_after_a_crash_at_each_of_its_effects(self, harness: ConsensusHarness) -> None:
        for effects in range(6):
            cluster = self._led(harness)
            cluster.propose(1, b"a")
            cluster.deliver_all()
            lose_majority(cluster, 1, 2)
            cluster.nodes[3].holds = True
            recover(cluster, 3)
            for _ in range(effects):
                if not cluster.nodes[3].pending:
                    break
                cluster.persist(3, partly=1)
                cluster.restart(3)
                cluster.nodes[3].holds = True
                recover(cluster, 3)
            cluster.restart(3)
            cluster.nodes[3].holds = False
            while cluster.nodes[3].pending:
                cluster.persist(3)
            recover(cluster, 3)
            cluster.advance(3 * cluster.timeout_us)
            assert cluster.nodes[3].status.serving, f"after {effects} effects"
            assert member_types(cluster, 3) == {3: "VOTER"}
            assert cluster.bodies(3) == [b"a"]

    def test_a_survivor_that_stood_down_is_not_recovered_in_the_same_epoch(self, harness: ConsensusHarness) -> None:
        cluster = self._led(harness, 5)
        lose_majority(cluster, 1, 2, 3)
        token = stand_down(cluster, 5, 4)
        assert token in cluster.stood_down
        for term in (TERM, first_term(1, 8)):
            token = recover(cluster, 5, term)
            assert cluster.rejected.get(token) == "STOOD_DOWN"
        token = stand_down(cluster, 5, 4)
        assert token in cluster.stood_down, "a repeated request is answered as done"
        cluster.restart(5)
        token = recover(cluster, 5)
        assert cluster.rejected.get(token) == "STOOD_DOWN", "also after a restart"
        recovered(cluster, 4)

    def test_survivors_that_heard_of_the_recovery_before_they_were_asked_take_part_in_it(
        self, harness: ConsensusHarness
    ) -> None:
        """The survivors still campaign. The refusals of one that has stood down tell the others the new term."""
        cluster = self._led(harness, 7)
        lose_majority(cluster, 1, 2, 3, 4)
        assert stand_down(cluster, 7, 5) in cluster.stood_down
        cluster.advance(10 * cluster.timeout_us)
        assert {cluster.nodes[number].status.term for number in (5, 6, 7)} == {TERM}
        assert stand_down(cluster, 6, 5) in cluster.stood_down
        assert cluster.rejected.get(recover(cluster, 6)) == "STOOD_DOWN"
        recovered(cluster, 5)

    def test_a_survivor_whose_recovery_has_begun_does_not_stand_down_in_the_same_epoch(
        self, harness: ConsensusHarness
    ) -> None:
        cluster = self._led(harness, 5)
        lose_majority(cluster, 1, 2, 3)
        cluster.nodes[5].holds = True
        recover(cluster, 5)
        cluster.persist(5, partly=1)
        cluster.restart(5)
        cluster.nodes[5].holds = False
        assert cluster.nodes[5].status.term >= TERM
        token = stand_down(cluster, 5, 4)
        assert cluster.rejected.get(token) == "STOOD_DOWN"
        recovered(cluster, 5)

    def test_a_survivor_that_was_recovered_stands_down_for_no_other_one(self, harness: ConsensusHarness) -> None:
        """A second plan of a later epoch was made while the first one was carried out. Its survivor lacks what the
        first survivor has committed since."""
        cluster = self._led(harness, 5)
        lose_majority(cluster, 1, 2, 3)
        assert stand_down(cluster, 4, 5) in cluster.stood_down
        recovered(cluster, 5)
        cluster.propose(5, b"acknowledged")
        later = first_term(2, 3)
        assert cluster.rejected.get(stand_down(cluster, 5, 4, later)) == "LEADER_ALIVE"
        cluster.restart(5)
        assert cluster.rejected.get(stand_down(cluster, 5, 4, later)) == "LEADER_ALIVE", "also before it leads again"
        cluster.advance(3 * cluster.timeout_us)
        assert cluster.nodes[5].status.serving and cluster.bodies(5) == [b"acknowledged"]

    def test_standing_down_is_answered_once_it_is_durable(self, harness: ConsensusHarness) -> None:
        cluster = self._led(harness, 5)
        lose_majority(cluster, 1, 2, 3)
        cluster.nodes[5].holds = True
        token = stand_down(cluster, 5, 4)
        assert token not in cluster.stood_down
        cluster.persist(5)
        assert token in cluster.stood_down

    def test_a_later_epoch_recovers_a_replica_that_stood_down(self, harness: ConsensusHarness) -> None:
        cluster = self._led(harness, 5)
        lose_majority(cluster, 1, 2, 3)
        stand_down(cluster, 5, 4)
        cluster.crash(4)
        token = recover(cluster, 5, first_term(2, 0))
        assert token in cluster.changed

    def test_members_of_an_old_majority_stand_down_when_they_hear_of_the_recovery(
        self, harness: ConsensusHarness
    ) -> None:
        cluster = self._led(harness)
        lose_majority(cluster, 1, 2)
        recovered(cluster, 3)
        cluster.start(1)
        cluster.start(2)
        cluster.advance(10 * cluster.timeout_us)
        for number in (1, 2):
            status = cluster.nodes[number].status
            assert status.role is Role.NON_PARTICIPANT and not status.serving
            assert recovery_epoch(status.term) == 1
        leader = cluster.leader()
        assert leader is not None and leader.number == 3 and leader.status.serving
        cluster.propose(3, b"kept")
        assert cluster.bodies(3) == [b"kept"]

    def test_a_replica_that_is_told_of_a_recovered_config_stands_down_also_as_leader(
        self, harness: ConsensusHarness
    ) -> None:
        cluster = self._led(harness)
        cluster.isolate(3)
        cluster.advance(3 * cluster.timeout_us)
        leader = cluster.leader()
        assert leader is not None and leader.number != 3
        recovered(cluster, 3)
        config_id = cluster.nodes[3].status.committed_config.op_id
        for number in (1, 2):
            cluster.step(number, Removed(config_id))
            cluster.restart(number)
            status = cluster.nodes[number].status
            assert status.role is Role.NON_PARTICIPANT and recovery_epoch(status.term) == 1
        cluster.advance(5 * cluster.timeout_us)
        assert all(cluster.role(number) is Role.NON_PARTICIPANT for number in (1, 2))

    def test_two_members_that_stood_down_elect_none_of_them(self, harness: ConsensusHarness) -> None:
        """The danger: both are in the new epoch, and are a majority of the config in their logs."""
        cluster = self._led(harness)
        lose_majority(cluster, 1, 2)
        recovered(cluster, 3)
        for number in (1, 2):
            cluster.start(number)
        cluster.advance(4 * cluster.timeout_us)
        cluster.crash(3)
        for number in (1, 2):
            cluster.restart(number)
        cluster.advance(20 * cluster.timeout_us)
        assert all(cluster.role(number) is Role.NON_PARTICIPANT for number in (1, 2))

    def test_an_old_leader_that_returns_is_deposed_at_the_first_contact(self, harness: ConsensusHarness) -> None:
        cluster = self._led(harness)
        cluster.isolate(3)
        cluster.advance(3 * cluster.timeout_us)
        cluster.propose(1, b"lost")
        cluster.deliver_all()
        recovered(cluster, 3)
        cluster.heal()
        cluster.advance(4 * cluster.timeout_us)
        for number in (1, 2):
            status = cluster.nodes[number].status
            assert status.role is Role.NON_PARTICIPANT and recovery_epoch(status.term) == 1
        token = cluster.propose(1, b"late")[0]
        assert cluster.rejected.get(token) == "NOT_LEADER"

    def test_a_replica_that_stood_down_joins_again_if_the_survivor_had_all_that_it_committed(
        self, harness: ConsensusHarness
    ) -> None:
        cluster = self._led(harness)
        cluster.propose(1, b"a")
        cluster.deliver_all()
        cluster.isolate(1)
        cluster.propose(1, b"never committed")
        lose_majority(cluster, 1, 2)
        recovered(cluster, 3)
        cluster.heal()
        cluster.start(1)
        rejoin(cluster, 3, 1)
        cluster.propose(3, b"b")
        cluster.advance(cluster.timeout_us)
        assert cluster.bodies(1) == cluster.bodies(3) == [b"a", b"b"]
        cluster.elect(1)
        assert cluster.nodes[1].status.serving, "it has the recovered log now"

    def test_a_replica_with_committed_entries_that_the_survivor_lacks_stops(self, harness: ConsensusHarness) -> None:
        cluster = self._led(harness)
        cluster.isolate(3)
        cluster.propose(1, b"lost")
        cluster.deliver_all()
        cluster.advance(cluster.timeout_us)
        lose_majority(cluster, 1, 2)
        recovered(cluster, 3)
        cluster.heal()
        cluster.start(2)
        cluster.fatal_expected = True
        cluster.add(3, 2)
        cluster.advance(4 * cluster.timeout_us)
        fatal = cluster.nodes[2].fatal
        assert fatal is not None and "delete this replica" in fatal.reason
        assert member_types(cluster, 3).get(2) != "VOTER"

    def test_a_collected_log_is_not_taken_for_the_recovered_one(self, harness: ConsensusHarness) -> None:
        cluster = self._led(harness)
        cluster.isolate(3)
        cluster.propose(1, *(b"lost",) * 6)
        cluster.deliver_all()
        cluster.advance(cluster.timeout_us)
        cluster.collect(2, cluster.nodes[2].status.commit)
        lose_majority(cluster, 1, 2)
        recovered(cluster, 3)
        cluster.heal()
        cluster.start(2)
        cluster.fatal_expected = True
        cluster.add(3, 2)
        cluster.advance(4 * cluster.timeout_us)
        assert cluster.nodes[2].fatal is not None

    def _led(self, harness: ConsensusHarness, size: int = 3, *others: MemberType) -> ConsensusCluster:
        harness.needs(RECOVERS)
        return harness.led(size, *others)
