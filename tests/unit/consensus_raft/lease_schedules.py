"""Random schedules for read leases: old leaders that are cut off, voters that restart, handovers, drifting clocks.

The cluster checks that every read covers what was committed when it was asked for. Unlike in ``schedules``, no clock
stands still: leases rest on clocks whose rates are known within a bound."""

from __future__ import annotations

import random
from collections.abc import Callable

from stelae.spi.consensus import Role
from stelae.spi.consensus_events import Tick
from stelae.spi.members import ChangeRole, MemberType, RemoveServer
from stelae.testing.conformance.consensus_cluster import ConsensusCluster
from stelae.testing.conformance.consensus_nodes import ClusterNode, InFlightMessage, node_name
from stelae_consensus_raft import RaftEngine
from stelae_consensus_raft.config import RaftConfig
from stelae_consensus_raft.messages import TimeoutNow

T_US = 1_000_000
DRIFT_PPM = 100_000
CONFIG = RaftConfig(clock_drift_ppm_max=DRIFT_PPM)


class LeaseSchedule:
    """One run. ``answered_at_once`` counts the reads that a lease answered, also those of a leader that was cut off."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        kinds = [MemberType.NON_VOTER] * (seed % 3)
        self.cluster = ConsensusCluster(RaftEngine, CONFIG, 3, member_types=kinds, seed=seed)
        for number in self.cluster.nodes:
            self.cluster.drift_ppm[number] = self.random.choice((-DRIFT_PPM, DRIFT_PPM))
        self.answered_at_once = 0
        self._moves: list[tuple[int, Callable[[], None]]] = [
            (20, self.serve),
            (10, self.strand),
            (8, self.restart_voters_of_a_stranded_leader),
            (8, self.hand_over_and_cut_off),
            (6, self.late_request_to_a_successor),
            (6, self.change_members_and_cut_off),
            (8, self.hold_back_voters),
            (3, self.crash_and_start),
        ]

    def run(self, steps: int) -> None:
        """Make moves. After each one everything is healed, so that the next one begins with a leader."""
        weights = [weight for weight, _ in self._moves]
        for move in self.random.choices([move for _, move in self._moves], weights, k=steps):
            self._heal()
            if self.cluster.leader() is not None:
                move()

    def _heal(self) -> None:
        self.cluster.heal()
        for node in self.cluster.nodes.values():
            node.holds = False
            while node.core is not None and node.pending:
                self.cluster.persist(node.number)
            if node.core is None:
                self.cluster.start(node.number)
        self.cluster.advance(self.random.choice((T_US // 10, T_US, 4 * T_US)))

    # -- parts of moves --------------------------------------------------------------------------

    def _leader(self) -> ClusterNode:
        leader = self.cluster.leader()
        assert leader is not None
        return leader

    def _others(self, number: int) -> list[int]:
        return [other for other in self.cluster.nodes if other != number]

    def _lease(self, *, write: bool = True) -> ClusterNode:
        """Let the leader get a lease, or renew it, after a write that others must have to be elected."""
        leader = self._leader()
        if write:
            self.cluster.propose(leader.number, b"x")
            self.cluster.deliver_all()
        self.cluster.read(leader.number)
        if self.random.random() < 0.3:
            # Some answers take long: a lease counts from the time at which its round was sent.
            self.cluster.now_us += self.random.randrange(T_US // 2)
        self.cluster.deliver_all()
        return leader

    def _write_elsewhere(self, old: int, within_us: int) -> None:
        """Let time pass until another node may lead, and write through it."""
        steps = 12
        for _ in range(steps):
            self.cluster.advance(within_us // steps)
            new = self.cluster.leader()
            if new is not None and new.number != old:
                self.cluster.propose(new.number, b"new")
                self.cluster.deliver_all()
            self._read_from(old)

    def _read_from(self, number: int) -> None:
        """Read from a node that may believe to lead. The cluster judges the answer."""
        node = self.cluster.nodes[number]
        if node.core is None or node.status.role is not Role.LEADER:
            return
        token = self.cluster.read(number)
        self.answered_at_once += token in self.cluster.reads

    # -- moves -----------------------------------------------------------------------------------

    def serve(self) -> None:
        """Reads and writes while nothing is wrong."""
        leader = self._lease()
        self.cluster.advance(self.random.randrange(T_US))
        self._read_from(leader.number)

    def strand(self) -> None:
        """Cut the leader off. It steps down by itself, but another one may lead before."""
        leader = self._lease()
        self.cluster.isolate(leader.number)
        self._write_elsewhere(leader.number, 2 * T_US)

    def _make_one_lonely(self) -> tuple[ClusterNode, list[int]] | None:
        """Cut one voter off from the leader for so long that it campaigns again and again. The others refuse it.

        Return the leader and the other nodes, if the leader still leads."""
        leader = self._leader()
        voters = [
            number for number in self._others(leader.number) if node_name(number) in leader.status.config.voters()
        ]
        if not voters:
            return None
        lonely = self.random.choice(voters)
        self.cluster.cut_links |= {(leader.number, lonely), (lonely, leader.number)}
        self.cluster.advance(self.random.randrange(2 * T_US, 3 * T_US))
        if self.cluster.leader() is not leader or leader.core is None:
            return None
        return leader, [number for number in self._others(leader.number) if number != lonely]

    def restart_voters_of_a_stranded_leader(self) -> None:
        """One voter has not heard from the leader for long, and another one restarts: together they are a majority."""
        if (found := self._make_one_lonely()) is None:
            return
        leader, rest = found
        self._lease(write=False)
        for number in rest:
            self.cluster.restart(number)
        self.cluster.isolate(leader.number)
        self._write_elsewhere(leader.number, T_US)

    def hand_over_and_cut_off(self) -> None:
        """The successor is asked to campaign, and the old leader hears nothing of what follows."""
        leader = self._lease()
        self.cluster.transfer(leader.number, None)
        self.cluster.deliver_all(lambda p: p.sender != leader.number or not isinstance(p.message, TimeoutNow))
        requests = [p for p in self.cluster.network if isinstance(p.message, TimeoutNow)]
        self.cluster.isolate(leader.number)
        for request in requests:
            self.cluster.deliver(request)
        self.cluster.deliver_all()
        self._write_elsewhere(leader.number, T_US // 2)

    def late_request_to_a_successor(self) -> None:
        """A request to a successor is on its way for longer than the leader waits for it."""
        leader = self._lease()
        self.cluster.transfer(leader.number, None)
        late: list[InFlightMessage] = []
        for _ in range(8):
            self.cluster.advance(T_US // 4, deliver=False)
            late += [p for p in self.cluster.network if isinstance(p.message, TimeoutNow)]
            self.cluster.drop(lambda p: isinstance(p.message, TimeoutNow))
            self.cluster.deliver_all()
        if self.cluster.leader() is not leader or leader.core is None:
            return
        self._lease()
        self.cluster.isolate(leader.number)
        for request in late:
            self.cluster.deliver(request)
        self.cluster.deliver_all()
        self._write_elsewhere(leader.number, T_US // 2)

    def change_members_and_cut_off(self) -> None:
        """The members change, so that a majority of the new config need not have heard the leader."""
        leader = self._lease()
        config = leader.status.config
        for member in config.members:
            if member.node_id == node_name(leader.number):
                continue
            wanted = MemberType.VOTER if member.member_type is not MemberType.VOTER else MemberType.NON_VOTER
            self.cluster.change(leader.number, ChangeRole(node_id=member.node_id, member_type=wanted))
            self.cluster.deliver_all()
        for number in self._others(leader.number):
            if self.random.random() < 0.3:
                self.cluster.change(leader.number, RemoveServer(node_id=node_name(number)))
                self.cluster.deliver_all()
        self._read_from(leader.number)
        self.cluster.isolate(leader.number)
        self._write_elsewhere(leader.number, T_US)

    def hold_back_voters(self) -> None:
        """The disks of voters are full: their clocks stand still for their cores while messages arrive."""
        if (found := self._make_one_lonely()) is None:
            return
        leader, rest = found
        for number in rest:
            self.cluster.clocks_stopped.add(number)
            self.cluster.nodes[number].running.step([Tick(self.cluster.clock_us(number), held_back=True)])
        # The leader stays in office because of the heartbeats, and reads just before the clocks go on.
        self.cluster.advance(self.random.randrange(T_US, 2 * T_US))
        if self.cluster.leader() is leader and leader.core is not None:
            self._lease(write=False)
        for number in rest:
            self.cluster.clocks_stopped.discard(number)
        self.cluster.isolate(leader.number)
        self._write_elsewhere(leader.number, T_US)

    def crash_and_start(self) -> None:
        """Any node restarts."""
        number = self.random.choice(list(self.cluster.nodes))
        self.cluster.crash(number)
        self.cluster.advance(self.random.randrange(T_US))


def run(seed: int, steps: int = 60) -> LeaseSchedule:
    """Run the schedule of a seed."""
    schedule = LeaseSchedule(seed)
    schedule.run(steps)
    return schedule
