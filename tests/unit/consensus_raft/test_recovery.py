"""Recovery of a tablet that lost its majority, where the conformance suite cannot look: votes, and random schedules."""

from __future__ import annotations

import random

import pytest

from stelae.spi.consensus import Role
from stelae.spi.consensus_events import PersistFailed, Received, RecoverAlone, Removed, Tick
from stelae.spi.ids import OpId
from stelae.spi.recovery_epoch import (
    EPOCH_MAX,
    TAG_MAX,
    first_term,
    is_first_term,
    recovery_epoch,
    recovery_id,
    stands_down,
)
from stelae.testing.conformance.consensus_cluster import ConsensusCluster
from stelae.testing.conformance.consensus_recovery import recover, stand_down
from stelae_consensus_raft import RaftEngine
from stelae_consensus_raft.messages import NUMBER_MAX, AppendEntries, VoteRefusal, VoteRequest
from stelae_consensus_raft.vote_rules import VoterState, decide_vote
from tests.unit.consensus_raft.solo import ME, A, B, Solo, entries, log_of

T_US = 1_000_000
TERM = first_term(1, 9)


def test_the_epoch_is_the_high_bits_of_a_term() -> None:
    assert [recovery_epoch(term) for term in (0, 7, (1 << 40) - 1, TERM, TERM + 5)] == [0, 0, 0, 1, 1]
    assert recovery_id(7) == recovery_id(1 << 30) == 0
    assert recovery_id(TERM) == recovery_id(TERM + 5) != recovery_id(first_term(1, 10))
    assert is_first_term(TERM) and not is_first_term(TERM + 1) and not is_first_term(5)
    assert stands_down(TERM, 7) and not stands_down(TERM + 1, TERM) and not stands_down(7, 3)
    assert first_term(EPOCH_MAX, TAG_MAX) < NUMBER_MAX


@pytest.mark.parametrize(("epoch", "tag"), [(0, 0), (EPOCH_MAX + 1, 0), (1, -1), (1, TAG_MAX + 1)])
def test_an_epoch_that_does_not_fit_is_refused(epoch: int, tag: int) -> None:
    with pytest.raises(ValueError, match="epoch"):
        first_term(epoch, tag)


@pytest.mark.parametrize("pre", [True, False])
def test_a_candidate_with_a_log_of_an_earlier_epoch_gets_no_vote(pre: bool) -> None:
    voter = VoterState(term=TERM, voted_for=None, last=OpId(1, 5), leader_alive=False)
    old = VoteRequest(term=TERM + 1, last=OpId(1, 50), pre=pre)
    assert decide_vote(old, A, voter) is VoteRefusal.OLD_EPOCH
    new = VoteRequest(term=TERM + 1, last=OpId(TERM, 3), pre=pre)
    assert decide_vote(new, A, voter) is None


def test_a_candidate_that_hears_of_a_recovery_never_campaigns_again() -> None:
    """It had set the time of its next campaign before it saw the new term, and asked for that time for ever."""
    solo = Solo(term=1)
    answer = solo.vote(A, TERM + 1, OpId(TERM, 2))
    assert answer.refusal is None and answer.term == TERM + 1
    assert solo.core.status().role is Role.NON_PARTICIPANT
    assert solo.core.next_deadline() is None


def test_a_restored_replica_still_stands_down() -> None:
    solo = Solo(log=log_of(1, 1), term=TERM, voted_for=B)
    assert solo.core.status().role is Role.NON_PARTICIPANT and solo.core.next_deadline() is None


def test_a_replica_that_has_the_recovered_log_does_not_stand_down() -> None:
    solo = Solo(log=log_of(1, TERM), term=TERM + 1)
    assert solo.core.status().role is Role.FOLLOWER and solo.core.next_deadline() is not None
    assert solo.core.status().node_id == ME


def without_its_tail() -> Solo:
    """A replica that lost entries 2 and 3 by a failed write after they were committed, and maybe applied."""
    solo = Solo()
    solo.holds = True
    solo.append(1, OpId(1, 1), *entries(2, 1, 1), commit=3)
    solo.step(PersistFailed(solo.readies[-1].id, 1))
    solo.holds = False
    return solo


def test_a_replica_that_lost_committed_entries_by_a_failed_write_is_not_recovered_before_a_restart() -> None:
    """Its store had applied them, and never applied the entries that came at their indexes after the recovery."""
    solo = without_its_tail()
    (ready,) = solo.step(Tick(2 * T_US), RecoverAlone(7, TERM, OpId(1, 1), OpId(1, 1)))
    assert [rejection.reason for rejection in ready.rejections] == ["CHANGED_SINCE"]
    assert "restart this node" in ready.rejections[0].detail
    assert solo.core.status().term == 1


def test_a_replica_that_lost_committed_entries_does_not_take_those_of_a_recovery_in_their_place() -> None:
    solo = without_its_tail()
    new = AppendEntries(term=TERM + 1, prev=OpId(1, 1), commit=3)
    (ready,) = solo.step(Received(B, new, entries(2, TERM, TERM + 1)))
    assert ready.fatal is not None and "left this replica behind" in ready.fatal.reason


class _Schedule:
    """Five voters, of which three are lost and come back at the worst moments."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.cluster = ConsensusCluster(RaftEngine, RaftEngine.Config(), 5, seed=seed)
        self.lost = self.random.sample(range(1, 6), 3)
        self.survivors = [number for number in self.cluster.nodes if number not in self.lost]
        self.seen: set[str] = set()

    def run(self) -> None:
        cluster = self.cluster
        cluster.elect(self.random.randrange(1, 6))
        for _ in range(self.random.randrange(4)):
            self.write()
            cluster.deliver_all(lambda _packet: self.random.random() < 0.7)
        cluster.advance(self.random.choice((0, T_US // 3, T_US)))
        self.lose()
        chosen = self.recover()
        for _ in range(40):
            self.random.choice((self.come_back, self.crash, self.part, self.write, self.add, self.removed, self.time))()
        self.settle(chosen)

    def lose(self) -> None:
        cluster = self.cluster
        if self.random.random() < 0.5:
            for number in self.lost:
                cluster.crash(number)
        else:
            cluster.isolate(*self.lost)
            self.seen.add("the lost ones go on by themselves")
        cluster.advance(3 * T_US)
        self.write()

    def recover(self) -> int:
        """The survivor with the longest log is recovered; the node crashes at a random effect of it."""
        cluster = self.cluster
        chosen = max(self.survivors, key=lambda number: cluster.nodes[number].status.last)
        (other,) = set(self.survivors) - {chosen}
        assert stand_down(cluster, other, chosen, TERM) in cluster.stood_down
        node = cluster.nodes[chosen]
        node.holds = True
        cluster.safety.recovered(1, node.status.last.index)
        recover(cluster, chosen, TERM)
        torn = self.random.randrange(4)
        if torn < 3:
            cluster.persist(chosen, partly=torn)
            cluster.restart(chosen)
            self.seen.add(f"torn after {torn}")
        node.holds = False
        while node.pending:
            cluster.persist(chosen)
        recover(cluster, chosen, TERM)
        cluster.advance(3 * T_US)
        assert node.status.serving and recovery_epoch(node.status.last.term) == 1
        return chosen

    def come_back(self) -> None:
        down = [number for number, node in self.cluster.nodes.items() if node.core is None and node.fatal is None]
        if down:
            self.cluster.start(self.random.choice(down))

    def crash(self) -> None:
        number = self.random.randrange(1, 6)
        if self.cluster.nodes[number].core is not None:
            self.cluster.crash(number)

    def part(self) -> None:
        self.cluster.heal()
        if self.random.random() < 0.7:
            self.cluster.isolate(*self.random.sample(range(1, 6), self.random.randrange(1, 4)))

    def write(self) -> None:
        for node in list(self.cluster.nodes.values()):
            if node.core is not None and node.status.role is Role.LEADER and self.random.random() < 0.8:
                self.cluster.propose(node.number, f"{self.cluster.tokens}".encode())
                epoch = recovery_epoch(node.status.term)
                self.seen.add(f"write in epoch {epoch}{' of old' if epoch < self.cluster.safety.epoch else ''}")

    def add(self) -> None:
        leader = self.cluster.leader()
        if leader is not None and recovery_epoch(leader.status.term) == 1:
            self.cluster.add(leader.number, self.random.randrange(1, 6))

    def removed(self) -> None:
        leader, number = self.cluster.leader(), self.random.randrange(1, 6)
        if leader is not None and self.cluster.nodes[number].core is not None:
            config = leader.status.committed_config
            if config.member(self.cluster.nodes[number].status.node_id) is None:
                self.cluster.step(number, Removed(config.op_id))

    def time(self) -> None:
        self.cluster.advance(self.random.randrange(2 * T_US), deliver=self.random.random() < 0.8)
        self.fatal_is_expected()

    def fatal_is_expected(self) -> None:
        for node in self.cluster.nodes.values():
            assert node.fatal is None or "left this replica behind" in node.fatal.reason, node.fatal
            if node.fatal is not None:
                self.seen.add("left behind")

    def settle(self, chosen: int) -> None:
        cluster = self.cluster
        cluster.heal()
        for number, node in cluster.nodes.items():
            if node.core is None and node.fatal is None:
                cluster.start(number)
        cluster.advance(12 * T_US)
        self.fatal_is_expected()
        running = [node for node in cluster.nodes.values() if node.core is not None]
        leading = [node for node in running if node.status.role is Role.LEADER]
        assert all(recovery_epoch(node.status.term) == 1 for node in leading)
        leader = cluster.leader()
        assert leader is not None and recovery_epoch(leader.status.term) == 1
        cluster.propose(leader.number, b"last")
        cluster.advance(2 * T_US)
        held = {entry.op_id.index: entry for entry in leader.log}
        assert all(held[index] == entry for index, entry in cluster.safety.committed.items())
        assert leader.log[-1].body == b"last" and leader.status.commit == leader.log[-1].op_id.index
        for node in cluster.nodes.values():
            if node.core is not None and node.status.config.member(node.status.node_id) is None:
                self.seen.add("not a member in the end")
        assert chosen in cluster.nodes


def test_no_late_survivor_undoes_a_recovery_whatever_happens() -> None:
    seen: set[str] = set()
    for seed in range(150):
        schedule = _Schedule(seed)
        schedule.cluster.fatal_expected = True
        schedule.run()
        seen |= schedule.seen
    assert {
        "the lost ones go on by themselves",
        "write in epoch 0 of old",
        "write in epoch 1",
        "left behind",
        "torn after 0",
        "torn after 1",
        "torn after 2",
    } <= seen
