"""A replica whose disk is full, with the real consensus core: the time that the core gets never goes back."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import count
from typing import Any
from unittest.mock import MagicMock

import pytest

from stelae.host.entry_cache import EntryCache
from stelae.host.executor import ExecutorPorts, ReadyExecutor
from stelae.host.heartbeats import HeartbeatService
from stelae.host.leadership_transfers import PendingTransfers
from stelae.host.log_retention import LogRetentionLimit
from stelae.host.log_writer import CommitGroup, Completion, LogWriter
from stelae.host.peer_codec import PeerMessage, PeerMessageHeader
from stelae.host.read_index_waits import ReadIndexWaits
from stelae.host.replica import Replica
from stelae.spi.consensus import HardState, LogView, Outbound, Role
from stelae.spi.consensus_events import Campaign, Event, PeerUnreachable, Proposal, Propose
from stelae.spi.errors import Full, StelaeError
from stelae.spi.ids import ZERO, LogId, NodeId, OpId, TabletId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.members import Member
from stelae.spi.members import TabletConfig as Config
from stelae.spi.wal import Durable, Failed
from stelae_consensus_raft import RaftEngine
from stelae_consensus_raft.config import RaftConfig
from stelae_consensus_raft.messages import AppendReply, VoteReply, VoteRequest

TABLET = TabletId("t")
LOG = LogId(TABLET, 1)
ME, ALIVE, DEAD = (NodeId(letter * 32) for letter in "abc")
MEMBERS = tuple(Member(node_id=node, address="node:1") for node in (ME, ALIVE, DEAD))
CONFIG = Config(op_id=OpId(1, 1), members=MEMBERS)
LAST = OpId(1, 5)


class World:
    """One of three replicas: its core is the real one, and the test decides what its log and its peers answer."""

    def __init__(self) -> None:
        self.now_us = 0
        self.deferred: list[Callable[[], None]] = []
        self.sent: list[Outbound] = []
        self.tokens = count(1)
        self.writer = LogWriter(
            lock=nullcontext(), wake=lambda: None, post=_post, queue_bytes_max=1 << 20, group_bytes_max=1 << 20
        )
        self.writer.open_log(LOG, LAST)
        core = RaftEngine.restore(
            node_id=ME,
            hard_state=HardState(1),
            log=LogView(base=ZERO, last=LAST, term_runs=((1, 1),), configs=(CONFIG,)),
            commit=5,
            applied=5,
            committed_config=CONFIG,
            config=RaftConfig(),
            rng=random.Random(7),
            now_us=0,
        )
        turns = MagicMock()
        turns.now_us.side_effect = lambda: self.now_us
        turns.defer.side_effect = self.deferred.append
        self.heartbeats = HeartbeatService(MagicMock(), lambda _tablet, _event: None)
        ports = MagicMock(turns=turns, writer=self.writer, heartbeats=self.heartbeats)
        self.replica = Replica(log=LOG, core=core, vote_kinds=frozenset(), ports=ports)
        writes = MagicMock()
        writes.take_proposals.return_value = None
        applier, flusher = MagicMock(applied=LAST), MagicMock(retention=LogRetentionLimit(0, 0, 0), full=False)
        reads, transfers = ReadIndexWaits(self.tokens, lambda: 1), PendingTransfers(self.tokens)
        self.replica.connect(self._executor(), applier, writes, reads, transfers, MagicMock(), flusher)
        self.replica.start()
        self.run()

    def _executor(self) -> ReadyExecutor:
        time = MagicMock()
        time.now.return_value = 9
        return ReadyExecutor(
            log=LOG,
            ports=ExecutorPorts(writer=self.writer, reader=MagicMock(), hard_states=self, network=self, time=time),
            sink=self.replica,
            cache=EntryCache(LAST, 1 << 20),
            hard_state=HardState(1),
            committed_config=CONFIG,
            range_bytes_max=1 << 20,
        )

    def save(self, tablet: TabletId, state: HardState, config: Config, done: Callable[[Any], None]) -> None:
        self.deferred.append(lambda: done(None))

    def send(self, tablet: TabletId, outbound: Outbound, entries: Sequence[Entry]) -> None:
        self.sent.append(outbound)

    def run(self, *events: Event) -> None:
        """Take these events, and every turn that follows."""
        for event in events:
            self.replica.deliver(event)
        while self.deferred:
            self.deferred.pop(0)()

    def hear(self, sender: NodeId, message: Any) -> None:
        self.replica.receive(sender, PeerMessage(PeerMessageHeader(TABLET, 1, ZERO, ZERO), "raft", message, ()))
        self.run()

    def disk(self, failure: StelaeError | None = None) -> None:
        """Let the log writer do what is queued."""
        while isinstance(group := self.writer.take_work(), CommitGroup):
            durable = self.writer.durable(LOG)
            end = group.appends[LOG].entries[-1].op_id
            outcome = Durable(end) if failure is None else Failed(failure, durable)
            _post(self.writer.complete(group, {LOG: outcome}))
        self.run()

    def repair(self) -> None:
        """Give the disk space again: the repair that is due succeeds."""
        for call in self.replica._ports.turns.call_at.call_args_list:
            if call.args[1].__name__ == "run":
                call.args[1]()
        engine = MagicMock(repair=lambda _log: self.writer.durable(LOG))
        while (job := self.writer.take_work()) is not None:
            _post(self.writer.perform(job, engine))
        self.run()

    def lead(self) -> None:
        """Win an election with the vote of ALIVE; DEAD has every entry, and dies."""
        self.run(Campaign(hinted=False))
        for _ in ("pre-vote", "vote"):
            asked = next(o.message for o in reversed(self.sent) if isinstance(o.message, VoteRequest))
            term = asked.term - asked.pre
            self.hear(ALIVE, VoteReply(term=term, campaign_term=asked.term, attempt=asked.attempt, pre=asked.pre))
        self.disk()
        self.ack()
        self.ack(DEAD)
        self.run(PeerUnreachable(DEAD))
        assert self.replica.status.role is Role.LEADER and self.replica.status.serving

    def ack(self, peer: NodeId = ALIVE) -> None:
        status = self.replica.status
        self.hear(peer, AppendReply(term=status.term, match=status.last.index, commit=status.commit))

    def read(self) -> None:
        self.replica.read_index(lambda _result: None)
        self.run()

    def propose(self) -> None:
        self.run(Propose((Proposal(next(self.tokens), EntryKind.WRITE, b"x"),)))


def _post(completions: list[Completion]) -> None:
    for callback, argument in completions:
        callback(argument)


def test_a_leader_with_a_dead_follower_survives_a_full_disk() -> None:
    """What the dead follower is owed was due before the core's last tick: time went back, and the core gave up."""
    world = World()
    world.lead()
    world.now_us += 1_100_000
    world.propose()
    world.disk(Full("no space"))
    assert world.replica.suspended and not world.replica.failure
    assert world.replica.status.role is Role.FOLLOWER
    world.repair()
    assert not world.replica.suspended and not world.replica.failure


@pytest.mark.parametrize("seed", range(20))
def test_time_never_goes_back_for_the_core_whatever_it_waits_for_when_the_disk_fills(seed: int) -> None:
    draw, world = random.Random(seed), World()
    suspended = 0
    for _ in range(20):
        world.lead()
        for _ in range(draw.randrange(6)):
            world.now_us += draw.choice((0, 1, 1_000, 60_000, 400_000))
            draw.choice((world.propose, world.disk, world.ack, world.read))()
        world.now_us += draw.choice((0, 1, 1_000, 60_000, 1_100_000))
        world.propose()
        world.disk(Full("no space"))
        for _ in range(draw.randrange(4)):
            world.now_us += draw.choice((0, 1, 1_000, 900_000, 3_000_000))
            world.run(PeerUnreachable(DEAD))
        suspended += world.replica.suspended
        assert not world.replica.failure
        if world.replica.suspended:
            assert world.replica.status.role is Role.FOLLOWER
            world.repair()
    assert suspended
