"""Random schedules with witnesses: they join, vote, lead as caretakers, get their rows, and leave, under every fault.

The rest is as in ``schedules``. The cluster checks after each step that no replica without rows serves, that a leader
has every committed entry, and that no two different entries are committed at one index."""

from __future__ import annotations

from stelae.spi.consensus import Role
from stelae.spi.core_restore import merged
from stelae.spi.members import ChangeRole, Member, MemberChange, MemberType, RemoveServer
from stelae.testing.conformance.consensus_cluster import ConsensusCluster
from stelae.testing.conformance.consensus_nodes import ClusterNode, node_name
from stelae.testing.conformance.consensus_witnesses import has_rows, join_witness
from stelae_consensus_raft import RaftEngine
from stelae_consensus_raft.config import RaftConfig
from stelae_consensus_raft.progress import PeerState
from tests.unit.consensus_raft.schedules import T_US, Schedule

NODES_MAX = 7


class WitnessSchedule(Schedule):
    """One run. ``caretakers`` counts terms in which a replica without rows led, because only it had an entry."""

    def __init__(self, seed: int) -> None:
        config = RaftConfig(member_join_timeout_ms=5_000)
        super().__init__(ConsensusCluster(RaftEngine, config, 3, seed=seed), seed)
        self.caretakers = 0
        self._moves = [pair for pair in self._moves if pair[1] not in (self.fail_persist, self.stop_clock)]
        self._moves += [
            (4, self.add_a_witness),
            (6, self.create_replicas),
            (3, self.demote),
            (4, self.promote),
            (2, self.remove),
            (2, self.give_rows),
            (3, self.leave_the_witness_alone_with_an_entry),
            (5, self.come_to_rest),
        ]

    # -- moves -----------------------------------------------------------------------------------

    def _serving(self) -> ClusterNode | None:
        leader = self.cluster.leader()
        return leader if leader is not None and leader.status.serving else None

    def _change(self, change: MemberChange) -> None:
        leader = self._serving()
        if leader is not None:
            self.cluster.change(leader.number, change)

    def add_a_witness(self, _number: int) -> None:
        """Add a witness on a new node, or a node that was removed, with what it has."""
        leader = self._serving()
        if leader is None:
            return
        config = leader.status.config
        outside = [n for n in self.cluster.nodes if config.member(node_name(n)) is None]
        new = [len(self.cluster.nodes) + 1] if len(self.cluster.nodes) < NODES_MAX else []
        if (free := outside + new) and len(config.members) < 5:
            self.cluster.add(leader.number, self.random.choice(free), MemberType.PRE_WITNESS)
            self.seen.add("witness added")

    def create_replicas(self, _number: int) -> None:
        """The leader's request reaches the node of a new witness."""
        leader = self.cluster.leader()
        if leader is None:
            return
        for member in leader.status.committed_config.members:
            number = int(member.node_id, 16)
            committed = leader.status.commit > leader.disk.base.index
            if member.member_type is MemberType.PRE_WITNESS and number not in self.cluster.nodes and committed:
                join_witness(self.cluster, number, leader.number)

    def _members(self, *kinds: MemberType) -> list[Member]:
        leader = self._serving()
        if leader is None:
            return []
        return [member for member in leader.status.config.members if member.member_type in kinds]

    def demote(self, _number: int) -> None:
        if len(self._members(MemberType.VOTER)) > 1:
            chosen = self.random.choice(self._members(MemberType.VOTER))
            self._change(ChangeRole(node_id=chosen.node_id, member_type=MemberType.NON_VOTER))

    def promote(self, _number: int) -> None:
        if found := self._members(MemberType.NON_VOTER, MemberType.WITNESS):
            self._change(ChangeRole(node_id=self.random.choice(found).node_id, member_type=MemberType.VOTER))

    def remove(self, _number: int) -> None:
        if found := self._members(MemberType.NON_VOTER, MemberType.WITNESS, MemberType.PRE_WITNESS):
            self._change(RemoveServer(node_id=self.random.choice(found).node_id))

    def give_rows(self, _number: int) -> None:
        without = [number for number, node in self.cluster.nodes.items() if node.disk.log_only]
        if without:
            has_rows(self.cluster, self.random.choice(without))
            self.seen.add("rows copied")

    def leave_the_witness_alone_with_an_entry(self, number: int) -> None:
        """Commit an entry on the leader and a witness only, then stop the leader."""
        leader = self._serving()
        witnesses = {int(member.node_id, 16) for member in self._members(MemberType.WITNESS)}
        if leader is None or not witnesses or leader.number in witnesses:
            return
        self.cluster.isolate(*(n for n in self.cluster.nodes if n not in {leader.number, *witnesses}))
        self.propose(leader.number)
        self.cluster.deliver_all()
        self.cluster.crash(leader.number)
        self.cluster.heal()
        known = set(self.cluster.leaders)
        self.cluster.advance(self.random.randrange(4 * T_US, 8 * T_US))  # A caretaker campaigns after 2 T to 3 T.
        new = [leads for term, leads in self.cluster.leaders.items() if term not in known]
        self.caretakers += sum(self.cluster.nodes[leads].disk.log_only for leads in new)

    def come_to_rest(self, _number: int) -> None:
        """Changes of members need a leader that serves, which storms seldom leave."""
        self.cluster.heal()
        self.cluster.clocks_stopped.clear()
        for node in self.cluster.nodes.values():
            if node.core is None:
                self.cluster.start(node.number)
            node.holds = False
            while node.pending:
                self.cluster.persist(node.number)
        self.cluster.advance(2 * T_US)
        self.create_replicas(0)
        self._copy_to_those_in_need()
        self.cluster.advance(T_US)

    def _copy_to_those_in_need(self) -> None:
        """Give a former witness that is added again the rows and the log of a leader whose log begins after its end."""
        leader = self._serving()
        for peer in leader.status.peers if leader is not None else ():
            number = int(peer.node_id, 16)
            if leader is None or peer.state != PeerState.COPY or number not in self.cluster.nodes:
                continue
            self.cluster.crash(number)
            self.cluster.install(number, leader.number)
            disk = self.cluster.nodes[number].disk
            disk.hard_state, disk.log_only = merged(disk.hard_state, leader.status.term), False
            self.cluster.start(number)
            self.seen.add("replica copied")

    # -- the end ---------------------------------------------------------------------------------

    def settle(self) -> None:
        for _ in range(4):
            self.come_to_rest(0)
        self.cluster.advance(8 * T_US)
        leader = self._serving()
        assert leader is not None, "no leader that serves within 20 T of peace"
        self.cluster.propose(leader.number, b"last")
        self.cluster.advance(3 * T_US)
        for member in leader.status.config.members:
            node = self.cluster.nodes.get(int(member.node_id, 16))
            if node is not None:
                late = max(node.disk.base.index, leader.disk.base.index)  # The log of a witness begins late.
                ends = [[one for one in log if one.op_id.index > late] for log in (node.log, leader.log)]
                assert ends[0] == ends[1], f"node {node.number} did not converge"
                assert node.status.commit == leader.log[-1].op_id.index
                assert (node.status.role is Role.LEADER) == (node is leader)
        assert leader.log[-1].body == b"last" and not leader.disk.log_only


def run(seed: int, steps: int = 500) -> WitnessSchedule:
    """Run the schedule of a seed."""
    schedule = WitnessSchedule(seed)
    schedule.run(steps)
    return schedule
