"""A cluster of consensus cores on a virtual network, disk and clock, for the conformance suite.

It drives cores through the contract alone and keeps the driver's side of it: Readies become durable
in order, replies wait for durability, and a crash loses what is not durable. Nothing happens by
itself: a test steps, persists, delivers, drops and advances time. After each step the core's own
invariants are checked, and what the cluster saw is checked against Raft's safety properties."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from stelae.spi.consensus import (
    Applied,
    Beats,
    Campaign,
    ConsensusCore,
    ConsensusEngine,
    Event,
    Fatal,
    LeaderAlive,
    Member,
    MemberType,
    Outbound,
    PeerAlive,
    Persisted,
    PersistFailed,
    Proposal,
    Propose,
    Range,
    RangeCompacted,
    RangeSent,
    ReadRequest,
    Ready,
    Received,
    Role,
    Status,
    TabletConfig,
    Tick,
    Transfer,
)
from stelae.spi.ids import ZERO, NodeId, OpId
from stelae.spi.log import Entry, EntryKind
from stelae.testing.conformance.consensus_disk import ConsensusDisk, effects_of

NO_BEATS = Beats(0, ())


def node_name(number: int) -> NodeId:
    """Node id of the cluster's node ``number``."""
    return NodeId(f"{number:032x}")


@dataclass(frozen=True, slots=True)
class Packet:
    """A message on its way."""

    sender: int
    to: int
    message: msgspec.Struct
    entries: tuple[Entry, ...] = ()


@dataclass(slots=True)
class ClusterNode:
    """One replica: its disk, its core while it runs, and the Readies that are not durable yet."""

    number: int
    disk: ConsensusDisk
    core: ConsensusCore | None = None
    log: list[Entry] = field(default_factory=list)
    pending: deque[Ready] = field(default_factory=deque)
    deferred: list[tuple[int, Outbound]] = field(default_factory=list)
    beats: Beats = NO_BEATS
    holds: bool = False
    """True while Readies are kept from becoming durable until ``persist``."""
    readies: list[Ready] = field(default_factory=list)
    fatal: Fatal | None = None
    restarts: int = 0

    @property
    def running(self) -> ConsensusCore:
        """The core of a node that runs."""
        assert self.core is not None, f"node {self.number} is down"
        return self.core

    @property
    def status(self) -> Status:
        """The core's status."""
        return self.running.status()


class ConsensusCluster:
    """``size`` voters of one tablet, numbered from 1; nothing runs until told to.

    Args:
        engine: the engine under test.
        config: its ``Config``; ``election_timeout_us`` must be its election timeout.
        member_types: kinds of further members, numbered after the voters.
    """

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
        self.network: deque[Packet] = deque()
        self.cut_links: set[tuple[int, int]] = set()
        self.clocks_stopped: set[int] = set()
        self.accepted: dict[int, OpId] = {}
        self.rejected: dict[int, str] = {}
        self.reads: dict[int, int] = {}
        self.handed_over: set[int] = set()
        self._read_floors: dict[int, int] = {}
        self.tokens = 0
        self.committed: dict[int, Entry] = {}
        self.leaders: dict[int, int] = {}
        self.terms: dict[int, int] = {}
        self.votes: dict[tuple[int, int], NodeId] = {}
        self.initial = _initial([MemberType.VOTER] * size + list(member_types))
        self.nodes = {i: ClusterNode(i, ConsensusDisk(self.initial)) for i in range(1, len(self.initial.members) + 1)}
        for number in self.nodes:
            self.start(number)

    # -- life and death --------------------------------------------------------------------------

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
            rng=random.Random(f"{self.seed}/{number}/{node.restarts}"),
            now_us=self.now_us,
        )
        node.core.validate_state()
        self._drain(node)

    def crash(self, number: int) -> None:
        """Stop a node; what is not durable is lost. Messages already sent still travel."""
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
        """Give events to a core and carry out what comes of it.

        Like the driver, it delivers heartbeats first, then the time, then everything else; and before all of these
        what the core says can wait, which then must have no effect alone."""
        node = self.nodes[number]
        heard = [e for e in events if isinstance(e, (LeaderAlive, PeerAlive))]
        others = [e for e in events if not isinstance(e, (LeaderAlive, PeerAlive))]
        time = [] if number in self.clocks_stopped else [Tick(self.now_us)]
        if len(others) == 1 and node.running.can_wait(others[0]):
            node.running.step(others)
            assert node.running.take_ready() is None, f"somebody waits for {others[0]}"
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
        self._observe(node)

    def _take(self, node: ClusterNode, ready: Ready) -> None:
        previous = node.readies[-2].id if len(node.readies) > 1 and ready.id > 1 else 0
        assert ready.id == previous + 1, "Ready ids ascend without gaps"
        if ready.append is not None:
            self._append(node, ready)
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
        self.handed_over.update(ready.handed_over)
        for read in ready.reads_ready:
            self.reads[read.token] = read.index
            floor = self._read_floors[read.token]
            assert read.index >= floor, f"read at {read.index} misses what {floor} acknowledged"
        if ready.beats is not None:
            node.beats = ready.beats
        if ready.commit is not None:
            self._committed(node, ready.commit)

    def _append(self, node: ClusterNode, ready: Ready) -> None:
        assert ready.append is not None
        base = node.disk.base.index
        if ready.append.replace_from is not None:
            assert base < ready.append.replace_from <= base + len(node.log), "replaces nothing"
            del node.log[ready.append.replace_from - base - 1 :]
        for entry in ready.append.entries:
            assert entry.op_id.index == base + len(node.log) + 1, "entries are contiguous"
            assert not node.log or entry.op_id.term >= node.log[-1].op_id.term
            stamp = entry.timestamp or entry.op_id.index
            node.log.append(Entry(entry.op_id, entry.kind, stamp, entry.body))

    def persist(self, number: int, *, partly: int | None = None) -> None:
        """Make the oldest Ready durable and send what waited for it.

        Args:
            partly: make only so many of its effects durable (hard state first, then each entry),
                and tell nobody: to be followed by ``crash``.
        """
        node = self.nodes[number]
        ready = node.pending[0]
        for effect in effects_of(ready, node.log, node.disk.base)[:partly]:
            effect(node.disk)
        if partly is not None:
            return
        node.pending.popleft()
        # The hint of a Ready is written with it, never sooner: its commit index may mean entries
        # that a Ready between it and the disk has yet to put in place of others.
        hint = min(ready.commit or 0, node.disk.last.index)
        node.disk.commit_hint = max(node.disk.commit_hint, hint)
        for outbound in ready.after_persist:
            self._send(node, outbound)
        for waits_for, outbound in list(node.deferred):
            if waits_for <= ready.id:
                node.deferred.remove((waits_for, outbound))
                self._send(node, outbound)
        if ready.committed_config is not None:
            node.disk.config = ready.committed_config
        self.step(number, Persisted(ready.id))

    def collect(self, number: int, upto: int | None = None) -> None:
        """Collect a node's log up to an index, or as far as its core allows. The core hears of it later, if at all."""
        node, disk = self.nodes[number], self.nodes[number].disk
        index = node.status.all_replicated_index if upto is None else upto
        assert index <= min(node.status.commit, disk.last.index), "collects what is not committed and durable"
        if (count := index - disk.base.index) > 0:
            disk.base = disk.entries[count - 1].op_id
            del disk.entries[:count], node.log[:count]

    def install(self, number: int, source: int) -> None:
        """Give a node that is down the log of another one; its votes stay its own."""
        disk, found = self.nodes[number].disk, self.nodes[source].disk
        disk.base, disk.entries = found.base, list(found.entries)
        disk.config, disk.commit_hint = found.config, found.commit_hint

    def fail_persist(self, number: int) -> None:
        """The oldest Ready and all behind it fail: their entries are lost, their votes are not."""
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
        stands = entries and entries[-1].op_id == wanted.last and wanted.term == node.status.term
        if stands:
            self._post(node.number, wanted.to, wanted.message, entries)
        else:
            node.running.step([RangeSent(wanted.to, wanted.last, None)])

    def _post(self, sender: int, to: NodeId, message: msgspec.Struct, entries: tuple[Entry, ...]) -> None:
        number = int(to, 16)
        if number in self.nodes and (sender, number) not in self.cut_links:
            self.network.append(Packet(sender, number, message, entries))

    def isolate(self, *numbers: int) -> None:
        """Cut every link between these nodes and the others; what is on its way is lost."""
        others = [n for n in self.nodes if n not in numbers]
        self.cut_links |= {(a, b) for a in numbers for b in others}
        self.cut_links |= {(b, a) for a in numbers for b in others}
        self.network = deque(p for p in self.network if (p.sender, p.to) not in self.cut_links)

    def heal(self) -> None:
        """Mend every link."""
        self.cut_links.clear()

    def deliver(self, packet: Packet) -> None:
        """Deliver a message, whether or not it is still in the network."""
        if self.nodes[packet.to].core is not None:
            self.step(packet.to, Received(node_name(packet.sender), packet.message, packet.entries))

    def deliver_all(self, wanted: Callable[[Packet], bool] = lambda _packet: True, *, limit: int = 10_000) -> int:
        """Deliver what is on its way, and what that causes, in order; return how many."""
        for count in range(limit):
            packet = next((p for p in self.network if wanted(p)), None)
            if packet is None:
                return count
            self.network.remove(packet)
            self.deliver(packet)
        raise AssertionError(f"messages do not come to rest within {limit} deliveries")

    def drop(self, wanted: Callable[[Packet], bool] = lambda _packet: True) -> int:
        """Lose what is on its way; return how many."""
        before = len(self.network)
        self.network = deque(p for p in self.network if not wanted(p))
        return before - len(self.network)

    # -- time ------------------------------------------------------------------------------------

    def tick(self, number: int) -> None:
        """Tell a node the time."""
        self.step(number)

    def advance(self, duration_us: int, *, beats: bool = True, deliver: bool = True) -> None:
        """Let time pass: heartbeats and deadlines where they fall, and messages at once."""
        end = self.now_us + duration_us
        period = self.timeout_us // 5
        while self.now_us < end:
            self.now_us = min(end, self._next_event_us(period))
            if beats and self.now_us % period == 0:
                self._beat()
            for node in list(self.nodes.values()):
                if node.core is not None and node.number not in self.clocks_stopped:
                    deadline = node.running.next_deadline()
                    if deadline is not None and deadline <= self.now_us:
                        self.tick(node.number)
            if deliver:
                self.deliver_all()

    def _next_event_us(self, period: int) -> int:
        due = [(self.now_us // period + 1) * period]
        for node in self.nodes.values():
            runs = node.core is not None and node.number not in self.clocks_stopped
            deadline = node.running.next_deadline() if runs else None
            if deadline is not None:
                due.append(max(deadline, self.now_us + 1))
        return min(due)

    def _beat(self) -> None:
        for node in self.nodes.values():
            for peer in node.beats.peers if node.core is not None else ():
                number = int(peer, 16)
                if (node.number, number) in self.cut_links or self.nodes[number].core is None:
                    continue
                term = node.beats.term
                alive = LeaderAlive(node_name(node.number), term, self.now_us)
                self.step(number, alive)
                if (number, node.number) not in self.cut_links:
                    heard = PeerAlive(peer, term, self.now_us)
                    self.step(node.number, heard)

    # -- what tests ask for ----------------------------------------------------------------------

    def elect(self, number: int) -> None:
        """Make a node campaign until it leads; the links must allow it."""
        for _ in range(20):
            self.step(number, Campaign(hinted=False))
            self.deliver_all()
            if self.nodes[number].status.role is Role.LEADER:
                return
            self.now_us += self.timeout_us
        raise AssertionError(f"node {number} does not win an election")

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
        """Ask a node for a read index; return the token."""
        token = self._token()
        self._read_floors[token] = max(self.committed, default=0)
        self.step(number, ReadRequest(token))
        return token

    def transfer(self, number: int, to: int | None) -> int:
        """Ask a node to hand leadership over; return the token."""
        token = self._token()
        self.step(number, Transfer(token, None if to is None else node_name(to)))
        return token

    def _token(self) -> int:
        self.tokens += 1
        return self.tokens

    def bodies(self, number: int) -> list[bytes]:
        """Bodies of the writes in a node's log up to its commit index."""
        node = self.nodes[number]
        committed = node.log[: max(0, node.status.commit - node.disk.base.index)]
        return [entry.body for entry in committed if entry.kind is EntryKind.WRITE]

    # -- safety ----------------------------------------------------------------------------------

    def _committed(self, node: ClusterNode, commit: int) -> None:
        """State-machine safety: no two nodes ever apply different entries at one index."""
        base = node.disk.base.index
        for entry in node.log[: commit - base]:
            known = self.committed.setdefault(entry.op_id.index, entry)
            assert known == entry, f"two entries committed at {entry.op_id.index}"
        node.running.step([Applied(commit)])

    def _observe(self, node: ClusterNode) -> None:
        """Election safety, and terms and votes that never go back."""
        if node.core is None or node.fatal is not None:
            return
        status = node.status
        if status.role is Role.LEADER:
            if status.term not in self.leaders:
                self._check_leader_completeness(node)
            other = self.leaders.setdefault(status.term, node.number)
            assert other == node.number, f"two leaders in term {status.term}"
        durable = node.disk.hard_state
        assert durable.term >= self.terms.get(node.number, 0), "the durable term went back"
        self.terms[node.number] = durable.term
        if durable.voted_for is not None:
            key = (node.number, durable.term)
            vote = self.votes.setdefault(key, durable.voted_for)
            assert vote == durable.voted_for, f"two votes in term {durable.term}"

    def _check_leader_completeness(self, node: ClusterNode) -> None:
        """A new leader has every entry that was committed before."""
        held = {entry.op_id.index: entry for entry in node.log}
        for index, entry in self.committed.items():
            if index > node.disk.base.index:
                assert held.get(index) == entry, f"the leader lacks committed entry {index}"


def _initial(kinds: Sequence[MemberType]) -> TabletConfig:
    """The config before any entry, of members of these kinds."""
    members = [
        Member(node_id=node_name(i), address=f"node-{i}:1", member_type=kind) for i, kind in enumerate(kinds, start=1)
    ]
    return TabletConfig(op_id=ZERO, members=tuple(members))
