"""One core alone: its state is written down, its peers are played by the test."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import groupby

import msgspec

from stelae.spi.consensus import HardState, LogView, Outbound, Range, Ready, Role
from stelae.spi.consensus_events import Campaign, Event, Persisted, Received
from stelae.spi.ids import ZERO, NodeId, OpId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.members import Member, MemberType, TabletConfig
from stelae_consensus_raft import RaftEngine
from stelae_consensus_raft.config import RaftConfig
from stelae_consensus_raft.core import RaftCore
from stelae_consensus_raft.messages import AppendEntries, AppendReply, VoteReply, VoteRequest

T_US = 1_000_000
ME, A, B, C, D = (NodeId(f"{number:032x}") for number in range(1, 6))


def members(*voters: NodeId, op_id: OpId = ZERO, learners: Sequence[NodeId] = ()) -> TabletConfig:
    """A config of these members."""
    kinds = [(v, MemberType.VOTER) for v in voters]
    kinds += [(n, MemberType.NON_VOTER) for n in learners]
    listed = [Member(node_id=n, address="node:1", member_type=kind) for n, kind in sorted(kinds)]
    return TabletConfig(op_id=op_id, members=tuple(listed))


THREE = members(ME, A, B, op_id=OpId(1, 1))


def entry(term: int, index: int, body: bytes = b"x", kind: EntryKind = EntryKind.WRITE) -> Entry:
    """A stamped entry."""
    return Entry(OpId(term, index), kind, index, body)


def entries(first: int, *terms: int) -> tuple[Entry, ...]:
    """Entries of these terms from index ``first`` on."""
    return tuple(entry(term, first + i) for i, term in enumerate(terms))


def log_of(*terms: int, base: OpId = ZERO, configs: Sequence[TabletConfig] = ()) -> LogView:
    """A log with an entry of each of these terms above ``base``."""
    runs, at = [], base.index + 1
    for term, run in groupby(terms):
        runs.append((at, term))
        at += len(list(run))
    last = OpId(terms[-1], base.index + len(terms)) if terms else base
    return LogView(base=base, last=last, term_runs=tuple(runs), configs=tuple(configs))


class Solo:
    """A core whose Readies are durable as soon as they are taken, unless ``holds``."""

    def __init__(
        self,
        *,
        log: LogView | None = None,
        term: int | None = None,
        voted_for: NodeId | None = None,
        commit: int = 0,
        config: TabletConfig = THREE,
        settings: RaftConfig | None = None,
        promised_us: int = 0,
        now_us: int = 0,
    ) -> None:
        view = log if log is not None else log_of(1)
        core = RaftEngine.restore(
            node_id=ME,
            hard_state=HardState(view.last.term if term is None else term, voted_for, promised_us),
            log=view,
            commit=commit,
            applied=min(commit, view.base.index),
            committed_config=config,
            config=settings or RaftConfig(),
            rng=random.Random(7),
            now_us=now_us,
        )
        assert isinstance(core, RaftCore)
        self.core = core
        self.holds = False
        self.readies: list[Ready] = []
        self.fresh: list[Ready] = []

    def step(self, *events: Event) -> list[Ready]:
        """Step, and return the Readies that came of it."""
        self.fresh = []
        self.core.step(events)
        self._take()
        return self.fresh

    def _take(self) -> None:
        while (ready := self.core.take_ready()) is not None:
            self.readies.append(ready)
            self.fresh.append(ready)
            if ready.fatal is None:
                self.core.validate_state()
                if not self.holds:
                    self.core.step([Persisted(ready.id)])

    def hear(self, sender: NodeId, message: msgspec.Struct, carried: Sequence[Entry] = ()) -> list[msgspec.Struct]:
        """Receive a message and return the messages that answer its sender."""
        self.step(Received(sender, message, tuple(carried)))
        return self.to(sender)

    def outbound(self) -> list[Outbound | Range]:
        """What the last step sent, in the order of the Readies."""
        return [o for r in self.fresh for o in (*r.at_once, *r.ranges, *r.after_persist)]

    def to(self, peer: NodeId) -> list[msgspec.Struct]:
        """Messages of the last step to a peer."""
        return [o.message for o in self.outbound() if o.to == peer]

    def ranges(self, peer: NodeId) -> list[tuple[OpId, OpId]]:
        """Ends of the ranges of the last step to a peer."""
        return [(r.prev, r.last) for ready in self.fresh for r in ready.ranges if r.to == peer]

    def append(self, term: int, prev: OpId, *carried: Entry, commit: int = 0, sender: NodeId = A) -> AppendReply | None:
        """Receive an append and return the answer."""
        message = AppendEntries(term=term, prev=prev, commit=commit)
        answers = self.hear(sender, message, carried)
        replies = [answer for answer in answers if isinstance(answer, AppendReply)]
        return replies[-1] if replies else None

    def vote(self, candidate: NodeId, term: int, last: OpId, *, pre: bool = False, transfer: bool = False) -> VoteReply:
        """Receive a vote request and return the answer."""
        request = VoteRequest(term=term, last=last, pre=pre, transfer=transfer)
        (answer,) = self.hear(candidate, request)
        assert isinstance(answer, VoteReply)
        return answer

    def lead(self) -> Solo:
        """Win an election with the vote of A; its first entry is not committed yet."""
        self.step(Campaign(hinted=False))
        self.grant(A)
        self.grant(A)
        assert self.core.status().role is Role.LEADER
        return self

    def lead_alone(self) -> Solo:
        """Win an election as the only voter."""
        self.step(Campaign(hinted=False))
        assert self.core.status().serving
        return self

    def grant(self, voter: NodeId) -> None:
        """A voter says yes to the campaign under way."""
        request = next(
            o.message
            for ready in reversed(self.readies)
            for o in (*ready.after_persist, *ready.at_once)
            if isinstance(o.message, VoteRequest)
        )
        assert isinstance(request, VoteRequest)
        reply = VoteReply(
            term=request.term - request.pre, campaign_term=request.term, attempt=request.attempt, pre=request.pre
        )
        self.step(Received(voter, reply))

    def serve(self) -> Solo:
        """Lead, with the first entry of the term on A and therefore committed."""
        self.lead()
        self.ack(A)
        assert self.core.status().serving
        return self

    def ack(self, peer: NodeId, match: int | None = None, round_number: int = 0) -> list[Ready]:
        """A peer acknowledges up to ``match``, or everything."""
        status = self.core.status()
        reply = AppendReply(
            term=status.term,
            match=status.last.index if match is None else match,
            commit=status.commit,
            round=round_number,
        )
        return self.step(Received(peer, reply))
