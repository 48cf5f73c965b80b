"""A cluster of consensus cores on a virtual network, disk and clock, for the conformance suite.

It drives cores only through the contract, and does what the contract asks of a driver: it makes Readies durable in
order, sends a reply only after what it depends on is durable, and loses in a crash what is not durable. Nothing happens
by itself: a test steps nodes, persists Readies, delivers and drops messages, and advances time. After each step it
checks the core's own invariants and Raft's safety properties."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from stelae.spi.consensus import ConsensusEngine, Outbound, Range, Ready, Role
from stelae.spi.consensus_events import (
    AbortChange,
    Campaign,
    ChangeMembers,
    Event,
    LeaderAlive,
    PeerAlive,
    Persisted,
    PersistFailed,
    Proposal,
    Propose,
    RangeCompacted,
    RangeSent,
    ReadRequest,
    Received,
    Tick,
    Transfer,
)
from stelae.spi.ids import ZERO, NodeId, OpId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.members import AddServer, Member, MemberChange, MemberType, TabletConfig
from stelae.spi.rejections import Rejection
from stelae.testing.conformance.consensus_disk import ConsensusDisk, effects_of
from stelae.testing.conformance.consensus_nodes import NO_BEATS, ClusterNode, InFlightMessage, node_name
from stelae.testing.conformance.consensus_ready_rules import ReadyRules
from stelae.testing.conformance.consensus_safety import RaftSafety
from stelae.testing.guarded_random import GuardedRandom

PARTS = 1_000_000


class ConsensusCluster:
    """A cluster of ``size`` voters of one tablet, numbered from 1. All of them run at first.

    ``range_entries_max`` is how many entries of a range the driver sends at most; ``None``: all of them.

    Args:
        engine: the engine under test.
        config: its ``Config``; ``election_timeout_us`` must be its election timeout.
        member_types: member types of further members, numbered after the voters.
        seed: cores draw from it, the node's number and the number of its starts.
    """

    range_entries_max: int | None = None

    def __init__(
        self,
        engine: type[ConsensusEngine],
        config: Any,
        size: int = 3,
        *,
        election_timeout_us: int = 1_000_000,
        member_types: Iterable[MemberType] = (),
        seed: int = 0,
    ) -> None:
        self.engine = engine
        self.config = config
        self.timeout_us = election_timeout_us
        self.seed = seed
        self.now_us = 0
        self.fatal_expected = False
        self.network: deque[InFlightMessage] = deque()
        self.cut_links: set[tuple[int, int]] = set()
        self.clocks_stopped: set[int] = set()
        self.drift_ppm: dict[int, int] = {}
        self.accepted: dict[int, OpId] = {}
        self.rejected: dict[int, str] = {}
        self.rejections: dict[int, Rejection] = {}
        self.changed: dict[int, TabletConfig] = {}
        self.aborted: set[int] = set()
        self.stood_down: set[int] = set()
        self.reads: dict[int, int] = {}
        self.handed_over: set[int] = set()
        self._read_floors: dict[int, int] = {}
        self.tokens = 0
        self.rules, self.safety = ReadyRules(), RaftSafety()
        self.committed, self.leaders = self.safety.committed, self.safety.leaders
        self.initial = _initial([MemberType.VOTER] * size + list(member_types))
        self.nodes = {i: ClusterNode(i, ConsensusDisk(self.initial)) for i in range(1, len(self.initial.members) + 1)}
        for number in self.nodes:
            self.start(number)

    # -- start and crash -------------------------------------------------------------------------

    def start(self, number: int) -> None:
        """Restore a node from its disk and run it."""
        node = self.nodes[number]
        disk = node.disk
        node.restarts += 1
        node.log = list(disk.entries)
        node.core = self.engine.restore(
            node_id=node_name(number),
            hard_state=disk.hard_state,
            log=disk.view(),
            commit=max(min(disk.commit_hint, disk.last.index), disk.base.index),
            applied=disk.base.index,
            committed_config=disk.config,
            config=self.config,
            rng=GuardedRandom(f"{self.seed}/{number}/{node.restarts}"),
            now_us=self.clock_us(number),
        )
        node.core.validate_state()
        self._drain(node)

    def join(self, number: int) -> None:
        """Run a replica with an empty log and no config, as a node does that a leader feeds from the first entry.

        A node that has lost its replica keeps its hard state."""
        known = self.nodes.get(number)
        disk = ConsensusDisk(TabletConfig(op_id=ZERO, members=()))
        if known is not None:
            self.crash(number)
            disk.hard_state = known.disk.hard_state
            known.disk = disk
        else:
            self.nodes[number] = ClusterNode(number, disk)
        self.start(number)

    def crash(self, number: int) -> None:
        """Stop a node and lose what is not durable. Messages that it sent stay in the network."""
        node = self.nodes[number]
        node.core = None
        node.pending.clear()
        node.deferred.clear()
        node.beats = NO_BEATS

    def restart(self, number: int) -> None:
        """Crash a node and start it again."""
        self.crash(number)
        self.start(number)

    # -- the driver's side -----------------------------------------------------------------------

    def step(self, number: int, *events: Event) -> None:
        """Give events to a core and carry out the effects.

        Like the driver, it delivers heartbeats first, then the time, then everything else. A single event that the
        core lets wait (``can_wait``) is delivered before all of these, and must have no effect alone."""
        node = self.nodes[number]
        heard = [e for e in events if isinstance(e, (LeaderAlive, PeerAlive))]
        others = [e for e in events if not isinstance(e, (LeaderAlive, PeerAlive))]
        time = [] if number in self.clocks_stopped else [Tick(self.clock_us(number))]
        if len(others) == 1 and node.running.can_wait(others[0]):
            node.running.step(others)
            assert node.running.take_ready() is None, f"can_wait is true for {others[0]}, which has an effect"
            others = []
        node.running.step([*heard, *time, *others])
        if node.fatal is None:
            node.running.validate_state()
        self._drain(node)

    def _drain(self, node: ClusterNode) -> None:
        while node.core is not None and (ready := node.running.take_ready()) is not None:
            node.readies.append(ready)
            if ready.fatal is not None:
                node.fatal = ready.fatal
                node.core = None
                assert self.fatal_expected, f"{ready.fatal.reason}\n{ready.fatal.history}"
                return
            self._take(node, ready)
        if not node.holds:
            while node.core is not None and node.pending:
                self.persist(node.number)
        self.safety.observe(node)

    def _take(self, node: ClusterNode, ready: Ready) -> None:
        self.rules.check(node, ready)
        if ready.append is not None:
            node.append(ready.append)
        waits_for = max((r.id for r in node.pending if r.hard_state is not None), default=0)
        node.pending.append(ready)
        for outbound in ready.at_once:
            if waits_for:
                node.deferred.append((waits_for, outbound))
            else:
                self._send(node, outbound)
        for wanted in ready.ranges:
            self._send_range(node, wanted)
        for accepted in ready.accepted:
            self.accepted[accepted.token] = accepted.op_id
        for rejection in ready.rejections:
            self.rejected[rejection.token] = rejection.reason.value
            self.rejections[rejection.token] = rejection
            assert not rejection.detail or "; " in rejection.detail, f"{rejection}: no next step after a semicolon"
        for changed in ready.config_changes:
            self.changed[changed.token] = changed.config
        self.aborted.update(ready.aborted)
        self.handed_over.update(ready.handed_over)
        for read in ready.reads_ready:
            self.reads[read.token] = read.index
            floor = self._read_floors[read.token]
            assert read.index >= floor, f"read at {read.index} misses what {floor} acknowledged"
        if ready.beats is not None:
            node.beats = ready.beats
        if ready.commit is not None:
            self.safety.committed_to(node, ready.commit)

    def persist(self, number: int, *, partly: int | None = None) -> None:
        """Make the oldest Ready durable, send what waited for it, and tell the core.

        Args:
            partly: make only this number of its effects durable (hard state first, then each entry), send nothing and
                do not tell the core. A ``crash`` must follow.
        """
        node = self.nodes[number]
        ready = node.pending[0]
        for effect in effects_of(ready, node.log, node.disk.base)[:partly]:
            effect(node.disk)
        if partly is not None:
            return
        node.pending.popleft()
        # The hint of a Ready is written with it, never sooner: its commit index may refer to entries that an
        # earlier Ready, not durable yet, is still to write.
        hint = min(ready.commit or 0, node.disk.last.index)
        node.disk.commit_hint = max(node.disk.commit_hint, hint)
        for outbound in ready.after_persist:
            self._send(node, outbound)
        self.stood_down.update(ready.stood_down)
        for waits_for, outbound in list(node.deferred):
            if waits_for <= ready.id:
                node.deferred.remove((waits_for, outbound))
                self._send(node, outbound)
        if ready.committed_config is not None:
            node.disk.config = ready.committed_config
        self.step(number, Persisted(ready.id))

    def collect(self, number: int, upto: int | None = None) -> None:
        """Collect a node's log up to an index; without one, up to the core's all-replicated index.

        The core gets no event. It learns of it when it asks for a range that is collected."""
        node, disk = self.nodes[number], self.nodes[number].disk
        index = node.status.all_replicated_index if upto is None else upto
        assert index <= min(node.status.commit, disk.last.index), "collects what is not committed and durable"
        if (count := index - disk.base.index) > 0:
            disk.base = disk.entries[count - 1].op_id
            del disk.entries[:count], node.log[:count]

    def install(self, number: int, source: int) -> None:
        """Replace the log and config of a node that is down by those of another one. It keeps its hard state."""
        disk, found = self.nodes[number].disk, self.nodes[source].disk
        disk.base, disk.entries = found.base, list(found.entries)
        disk.config, disk.commit_hint = found.config, found.commit_hint

    def fail_persist(self, number: int) -> None:
        """Fail the oldest Ready and all later ones: their entries are lost, their hard states become durable."""
        node = self.nodes[number]
        failed = list(node.pending)
        node.pending.clear()
        node.deferred.clear()
        durable = node.disk.last.index
        for ready in failed:
            if ready.hard_state is not None:
                node.disk.hard_state = ready.hard_state
            if ready.append is not None and ready.append.replace_from is not None:
                durable = min(durable, ready.append.replace_from - 1)
        node.disk.cut(durable + 1)
        del node.log[durable - node.disk.base.index :]
        self.step(number, PersistFailed(failed[0].id, durable))

    # -- network ---------------------------------------------------------------------------------

    def _send(self, node: ClusterNode, outbound: Outbound) -> None:
        if outbound.term == node.status.term:
            self._post(node.number, outbound.to, outbound.message, ())

    def _send_range(self, node: ClusterNode, wanted: Range) -> None:
        base = node.disk.base.index
        if wanted.prev.index < base:
            node.running.step([RangeCompacted(wanted.to, wanted.last, node.disk.base)])
            return
        entries = tuple(node.log[wanted.prev.index - base : wanted.last.index - base])
        current = entries and entries[-1].op_id == wanted.last and wanted.term == node.status.term
        sent = entries[: self.range_entries_max] if current else ()
        if sent:
            self._post(node.number, wanted.to, wanted.message, sent)
        if sent != entries or not sent:
            node.running.step([RangeSent(wanted.to, wanted.last, sent[-1].op_id if sent else None)])

    def _post(self, sender: int, to: NodeId, message: msgspec.Struct, entries: tuple[Entry, ...]) -> None:
        number = int(to, 16)
        if number in self.nodes and (sender, number) not in self.cut_links:
            self.network.append(InFlightMessage(sender, number, message, entries))

    def isolate(self, *numbers: int) -> None:
        """Cut every link between these nodes and the others, and lose the messages on these links."""
        others = [n for n in self.nodes if n not in numbers]
        self.cut_links |= {(a, b) for a in numbers for b in others}
        self.cut_links |= {(b, a) for a in numbers for b in others}
        self.network = deque(p for p in self.network if (p.sender, p.to) not in self.cut_links)

    def heal(self) -> None:
        """Restore every link."""
        self.cut_links.clear()

    def deliver(self, packet: InFlightMessage) -> None:
        """Deliver a message, whether or not it is still in the network."""
        if self.nodes[packet.to].core is not None:
            self.step(packet.to, Received(node_name(packet.sender), packet.message, packet.entries))

    def deliver_all(
        self, wanted: Callable[[InFlightMessage], bool] = lambda _packet: True, *, limit: int = 10_000
    ) -> int:
        """Deliver the messages in the network and those that they cause, in order; return how many were delivered.

        Args:
            wanted: deliver only messages for which it is true.
            limit: the most deliveries; more raise ``AssertionError``.
        """
        for count in range(limit):
            packet = next((p for p in self.network if wanted(p)), None)
            if packet is None:
                return count
            self.network.remove(packet)
            self.deliver(packet)
        raise AssertionError(f"messages still cause messages after {limit} deliveries")

    def drop(self, wanted: Callable[[InFlightMessage], bool] = lambda _packet: True) -> int:
        """Lose the messages in the network; return how many."""
        before = len(self.network)
        self.network = deque(p for p in self.network if not wanted(p))
        return before - len(self.network)

    # -- time ------------------------------------------------------------------------------------

    def clock_us(self, number: int) -> int:
        """Return what the clock of a node shows now. All clocks are right, unless a test changes their rates."""
        return self.now_us * (PARTS + self.drift_ppm.get(number, 0)) // PARTS

    def _true_us(self, number: int, clock_us: int) -> int:
        """Return when the clock of a node shows a time."""
        return -(-clock_us * PARTS // (PARTS + self.drift_ppm.get(number, 0)))

    def tick(self, number: int) -> None:
        """Give a node the time and no other event."""
        self.step(number)

    def advance(self, duration_us: int, *, beats: bool = True, deliver: bool = True) -> None:
        """Let time pass: heartbeats and deadlines come when they are due, messages are delivered at once.

        Args:
            beats: deliver heartbeats, five in each election timeout.
            deliver: deliver messages.
        """
        end = self.now_us + duration_us
        period = self.timeout_us // 5
        while self.now_us < end:
            self.now_us = min(end, self._next_event_us(period))
            if beats and self.now_us % period == 0:
                self._beat()
            for node in list(self.nodes.values()):
                if node.core is not None and node.number not in self.clocks_stopped:
                    deadline = node.running.next_deadline()
                    if deadline is not None and deadline <= self.clock_us(node.number):
                        self.tick(node.number)
            if deliver:
                self.deliver_all()

    def _next_event_us(self, period: int) -> int:
        due = [(self.now_us // period + 1) * period]
        for node in self.nodes.values():
            runs = node.core is not None and node.number not in self.clocks_stopped
            deadline = node.running.next_deadline() if runs else None
            if deadline is not None:
                due.append(max(self._true_us(node.number, deadline), self.now_us + 1))
        return min(due)

    def _beat(self) -> None:
        for node in self.nodes.values():
            for peer in node.beats.peers if node.core is not None else ():
                number = int(peer, 16)
                found = self.nodes.get(number)
                if (node.number, number) in self.cut_links or found is None or found.core is None:
                    continue
                term = node.beats.term
                alive = LeaderAlive(node_name(node.number), term, self.clock_us(number))
                self.step(number, alive)
                if (number, node.number) not in self.cut_links:
                    heard = PeerAlive(peer, term, self.clock_us(node.number))
                    self.step(node.number, heard)

    # -- requests --------------------------------------------------------------------------------

    def elect(self, number: int) -> None:
        """Let a node campaign until it leads. Its links must allow it to win."""
        for _ in range(20):
            self.step(number, Campaign(hinted=False))
            self.deliver_all()
            if self.nodes[number].status.role is Role.LEADER:
                return
            self.now_us += self.timeout_us
        raise AssertionError(f"node {number} does not win an election")

    def win(self, number: int) -> None:
        """Let a node campaign and win, and deliver no message after that."""
        self.now_us += self.timeout_us
        self.step(number, Campaign(hinted=False))
        while self.role(number) is not Role.LEADER:
            self.deliver(self.network.popleft())

    def win_with(self, number: int, voter: int) -> None:
        """As ``win``, by the vote of one other node, which becomes durable although that node holds."""
        self.now_us += self.timeout_us
        self.step(number, Campaign(hinted=False))
        while self.role(number) is not Role.LEADER:
            self.deliver(self.network.popleft())
            while self.nodes[voter].pending and self.role(number) is not Role.LEADER:
                self.persist(voter)

    def role(self, number: int) -> Role:
        """The role of a running node."""
        return self.nodes[number].status.role

    def leader(self) -> ClusterNode | None:
        """The running leader of the highest term, if any."""
        leading = [n for n in self.nodes.values() if n.core is not None and n.status.role is Role.LEADER]
        return max(leading, key=lambda n: n.status.term, default=None)

    def propose(self, number: int, *bodies: bytes) -> list[int]:
        """Propose writes at a node in one step; return their tokens."""
        tokens = [self._token() for _ in bodies]
        proposals = tuple(Proposal(token, EntryKind.WRITE, body) for token, body in zip(tokens, bodies, strict=True))
        self.step(number, Propose(proposals))
        return tokens

    def read(self, number: int) -> int:
        """Request a read index from a node; return the token."""
        return self.read_together(number, 1)[0]

    def read_together(self, number: int, count: int, *, by_lease: bool = True) -> list[int]:
        """Request ``count`` read indexes from a node in one step; return the tokens."""
        tokens = [self._token() for _ in range(count)]
        self._read_floors.update(dict.fromkeys(tokens, max(self.committed, default=0)))
        self.step(number, *(ReadRequest(token, by_lease) for token in tokens))
        return tokens

    def transfer(self, number: int, to: int | None) -> int:
        """Request a transfer of leadership from a node, to a voter or to any (``None``); return the token."""
        token = self._token()
        self.step(number, Transfer(token, None if to is None else node_name(to)))
        return token

    def change(self, number: int, change: MemberChange, committed_config_id: OpId | None = None) -> int:
        """Request a change of config from a node; return the token."""
        token = self._token()
        self.step(number, ChangeMembers(token, change, committed_config_id))
        return token

    def add(self, number: int, added: int, member_type: MemberType = MemberType.PRE_VOTER) -> int:
        """Request from a node that it adds another one; return the token."""
        address = f"node-{added}:1"
        return self.change(number, AddServer(node_id=node_name(added), address=address, member_type=member_type))

    def abort(self, number: int) -> int:
        """Request from a node that it aborts its change of config; return the token."""
        token = self._token()
        self.step(number, AbortChange(token))
        return token

    def _token(self) -> int:
        self.tokens += 1
        return self.tokens

    def bodies(self, number: int) -> list[bytes]:
        """Return the bodies of the writes in a node's log up to its commit index."""
        node = self.nodes[number]
        committed = node.log[: max(0, node.status.commit - node.disk.base.index)]
        return [entry.body for entry in committed if entry.kind is EntryKind.WRITE]


def _initial(kinds: Sequence[MemberType]) -> TabletConfig:
    """The config before any entry, with one member of each of these member types."""
    members = [
        Member(node_id=node_name(i), address=f"node-{i}:1", member_type=kind) for i, kind in enumerate(kinds, start=1)
    ]
    return TabletConfig(op_id=ZERO, members=tuple(members))
