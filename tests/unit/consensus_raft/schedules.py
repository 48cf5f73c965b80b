"""Random schedules: one integer draws every delivery, loss, crash, failure and proposal."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from stelae.spi.consensus import Role
from stelae.spi.consensus_events import PeerUnreachable, Tick
from stelae.testing.conformance.consensus_cluster import ConsensusCluster
from stelae.testing.conformance.consensus_nodes import node_name
from stelae_consensus_raft.core import RaftCore

T_US = 1_000_000


class Schedule:
    """Runs a cluster through ``steps`` random events; safety is checked by the cluster itself."""

    def __init__(self, cluster: ConsensusCluster, seed: int) -> None:
        self.cluster = cluster
        self.random = random.Random(seed)
        self.written = 0
        self.seen: set[str] = set()
        self._moves: list[tuple[int, Callable[[int], None]]] = [
            (40, self.deliver),
            (5, self.drop),
            (4, self.duplicate),
            (10, self.time_passes),
            (4, self.time_jumps),
            (14, self.propose),
            (10, self.read),
            (20, self.persist),
            (6, self.hold),
            (2, self.crash),
            (2, self.crash_within_a_ready),
            (4, self.start),
            (1, self.fail_persist),
            (2, self.partition),
            (2, self.strand),
            (2, self.heal),
            (2, self.stop_clock),
            (3, self.start_clocks),
            (2, self.unreachable),
        ]
        if seed % 3 == 0:  # not in all of them: a leader that hands over is seldom one that was cut off
            self._moves.append((4, self.transfer))

    def run(self, steps: int) -> None:
        """Fault upon fault, then heal, and everything must come to rest on one log."""
        weights = [weight for weight, _ in self._moves]
        moves = [move for _, move in self._moves]
        for move in self.random.choices(moves, weights, k=steps):
            move(self.random.choice(list(self.cluster.nodes)))
        self.settle()

    def settle(self) -> None:
        cluster = self.cluster
        cluster.heal()
        cluster.clocks_stopped.clear()
        for node in cluster.nodes.values():
            if node.core is None:
                cluster.start(node.number)
            node.holds = False
            while node.pending:
                cluster.persist(node.number)
        cluster.advance(8 * T_US)
        leader = cluster.leader()
        assert leader is not None, "no leader within 8 T of peace"
        cluster.propose(leader.number, b"last")
        cluster.advance(3 * T_US)
        for node in cluster.nodes.values():
            assert node.fatal is None
            assert node.log == leader.log, f"node {node.number} did not converge"
            assert node.status.commit == leader.log[-1].op_id.index
        assert leader.log[-1].body == b"last"

    def transitions(self) -> Counter[tuple[Role, Any]]:
        """Cells of the transition table that the running cores met."""
        met: Counter[tuple[Role, Any]] = Counter()
        for node in self.cluster.nodes.values():
            assert isinstance(node.core, RaftCore)
            met.update(node.core.transitions)
        return met

    def up(self, number: int) -> bool:
        return self.cluster.nodes[number].core is not None

    def deliver(self, _number: int) -> None:
        for _ in range(self.random.choice((1, 1, 4, 20))):
            if self.cluster.network:
                # Mostly in order, sometimes not: links reorder only across reconnects.
                width = 1 if self.random.random() < 0.8 else len(self.cluster.network)
                packet = self.cluster.network[self.random.randrange(width)]
                self.cluster.network.remove(packet)
                self.cluster.deliver(packet)

    def drop(self, number: int) -> None:
        self.cluster.drop(lambda packet: packet.to == number and self.random.random() < 0.5)

    def duplicate(self, _number: int) -> None:
        if self.cluster.network:
            self.cluster.network.append(self.random.choice(list(self.cluster.network)))

    def time_passes(self, _number: int) -> None:
        self.cluster.advance(self.random.randrange(T_US // 4), deliver=False)

    def time_jumps(self, number: int) -> None:
        if self.up(number):
            self.cluster.now_us += self.random.randrange(T_US)
            self.cluster.step(number, Tick(self.cluster.now_us))

    def propose(self, number: int) -> None:
        leader = self.cluster.leader()
        target = leader.number if leader is not None and self.random.random() < 0.8 else number
        if self.up(target):
            count = self.random.choice((1, 1, 3, 30))
            bodies = [f"{self.written + i}".encode() for i in range(count)]
            self.written += count
            self.cluster.propose(target, *bodies)

    def read(self, number: int) -> None:
        if self.up(number):
            self.cluster.read(number)

    def transfer(self, number: int) -> None:
        """Ask whoever leads to hand over: to a node, to itself, to nobody by name."""
        leader = self.cluster.leader()
        if leader is not None:
            self.cluster.transfer(leader.number, self.random.choice((number, None)))
            if self.random.random() < 0.5:
                self.cluster.deliver_all()  # in a storm nobody catches up in time

    def persist(self, number: int) -> None:
        if self.up(number) and self.cluster.nodes[number].pending:
            self.cluster.persist(number)

    def hold(self, number: int) -> None:
        node = self.cluster.nodes[number]
        node.holds = not node.holds

    def crash(self, number: int) -> None:
        if self.up(number):
            self.seen.add(f"crash of {self.cluster.nodes[number].status.role}")
            self.cluster.crash(number)

    def crash_within_a_ready(self, number: int) -> None:
        node = self.cluster.nodes[number]
        if self.up(number) and node.pending:
            self.cluster.persist(number, partly=self.random.randrange(4))
            self.seen.add("torn Ready")
            self.cluster.crash(number)

    def start(self, number: int) -> None:
        for each in self.cluster.nodes:
            if not self.up(each):
                self.cluster.start(each)

    def fail_persist(self, number: int) -> None:
        node = self.cluster.nodes[number]
        if self.up(number) and node.pending:
            self.seen.add("failed persist")
            self.cluster.fail_persist(number)

    def partition(self, number: int) -> None:
        self.cluster.isolate(number)
        if self.up(number) and self.cluster.nodes[number].status.role is Role.LEADER:
            self.seen.add("leader cut off")

    def strand(self, number: int) -> None:
        """Cut off whoever leads with a clock that stands, so that it believes on while another writes."""
        stranded = self.cluster.leader()
        if stranded is None:
            return
        self.cluster.isolate(stranded.number)
        self.cluster.clocks_stopped.add(stranded.number)
        stranded.holds = self.random.random() < 0.5
        self.propose(stranded.number)
        self.cluster.advance(self.random.randrange(3 * T_US))
        self.propose(number)
        self.cluster.deliver_all()
        self.read(stranded.number)

    def heal(self, _number: int) -> None:
        self.cluster.heal()

    def stop_clock(self, number: int) -> None:
        """Safety must not depend on clocks: not even on that of a leader that was cut off."""
        self.cluster.clocks_stopped.add(number)

    def start_clocks(self, _number: int) -> None:
        self.cluster.clocks_stopped.clear()

    def unreachable(self, number: int) -> None:
        for node in self.cluster.nodes.values():
            if node.core is not None and node.number != number:
                self.cluster.step(node.number, PeerUnreachable(node_name(number)))
