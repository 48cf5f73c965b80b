"""A master's core with a log that does what a test says, and tablet servers that are a few lines."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import pairwise
from typing import TypeVar

from stelae.partition.schema import HashLevel, KeyRange, PartitionSchema
from stelae.protocol.actions import ServerAction
from stelae.protocol.master_heartbeats import Heartbeat, HeartbeatReply, ReplicaStatus, ReportedDataState, ServerReport
from stelae.protocol.master_messages import CatalogReadRequest, Change, ChangeRequest, CreateTable, Question
from stelae.rows.limits import DEFAULTS, LimitSettings
from stelae.server.master.core.catalog import Catalog
from stelae.server.master.core.events import (
    AskPolicy,
    ChangeAsked,
    CompareMasters,
    Confirm,
    Confirmed,
    Decided,
    Effect,
    EntryApplied,
    Event,
    HeartbeatReceived,
    MasterLeaderChanged,
    MastersCompared,
    MasterTick,
    Planned,
    ReadAsked,
    Refuse,
    Replicate,
    Reply,
    Send,
)
from stelae.server.master.core.master_core import MasterCore
from stelae.server.master.core.operations import BatchOutcome
from stelae.server.master.core.proposals import propose
from stelae.server.master.settings import MasterSettings
from stelae.spi.consensus import Role
from stelae.spi.ids import ClientId, ClusterId, IncarnationId, NodeId, OpId, TabletId
from stelae.spi.members import MemberType, TabletConfig
from stelae.spi.policy import Action as Proposed
from stelae.spi.policy import ActionKind, NodeHealth, PolicySnapshot
from stelae.spi.schema import Column, Schema

ME = NodeId("a" * 32)
OTHER = NodeId("b" * 32)
SERVERS = tuple(NodeId(f"{n:032x}") for n in range(1, 6))
SCHEMA = Schema(1, (Column(id=1, name="k", type="string"), Column(id=2, name="v", type="int64", nullable=True)), (1,))
SETTINGS = MasterSettings()
WALL_US = 1_700_000_000_000_000

E = TypeVar("E", bound=Effect)


def place_on_the_least_loaded(snapshot: PolicySnapshot, rng: random.Random) -> tuple[Proposed, ...]:
    """Place new tablets on the live nodes in order of their ids; propose nothing else."""
    live = [n for n, node in sorted(snapshot.nodes.items()) if node.health is NodeHealth.LIVE]
    return tuple(
        Proposed(kind=ActionKind.PLACE, tablet_id=t.tablet_id, node_id=n, cas=t.config_op_id, reason="room")
        for t in snapshot.tablets.values()
        if not t.replicas
        for n in live[: t.replication_factor]
    )


def create(name: str = "readings", buckets: int = 2, replication_factor: int = 3, ranges: int = 1) -> CreateTable:
    """A request for a table of this many tablets: buckets in each range."""
    levels = (HashLevel((1,), buckets),) if buckets > 1 else ()
    edges = [b"", *(b"%05d" % n for n in range(1, ranges)), None]
    cut = [KeyRange(lower or b"", upper) for lower, upper in pairwise(edges)]
    scheme = PartitionSchema(levels, (1,), tuple(cut)) if ranges > 1 else PartitionSchema(levels)
    return CreateTable(
        name=name, schema=SCHEMA.to_bytes(), partition_schema=scheme.to_bytes(), replication_factor=replication_factor
    )


class MasterWithServers:
    """One core; what it replicates is committed when the test says so."""

    def __init__(
        self,
        settings: MasterSettings = SETTINGS,
        planner: object = place_on_the_least_loaded,
        limits: LimitSettings = DEFAULTS,
    ) -> None:
        self.limits = limits
        self.now_us = 1_000_000
        self.settings = settings
        self.planner = planner
        self.policy_answers = True  #: At once; else the test says ``plan``.
        self.masters_object: str | None = ""  #: What comparing their lists finds; ``None``: no answer.
        self.log: list[EntryApplied] = []
        self.core = self._new(Catalog.empty())
        self.proposed: list[Replicate] = []
        self.effects: list[Effect] = []
        self._token = 100
        self._sequences: dict[NodeId, int] = {}
        self.term = 0

    def _new(self, catalog: Catalog) -> MasterCore:
        rng = random.Random(1)
        return MasterCore(ME, ClusterId("one"), self.settings, rng, catalog, self._tick(), self.limits)

    def _tick(self) -> MasterTick:
        return MasterTick(self.now_us, WALL_US + self.now_us)

    # -- the core's driver -------------------------------------------------------------------------

    def step(self, *events: Event) -> list[Effect]:
        """Step and return the effects; batches are kept to be decided."""
        self.core.step([self._tick(), *events])
        effects = list(self.core.take_effects())
        self.proposed += [e for e in effects if isinstance(e, Replicate)]
        self.effects += effects
        if only(effects, CompareMasters) and self.masters_object is not None:
            effects += self.step(MastersCompared(self.masters_object))
        for asked in only(effects, AskPolicy) if self.policy_answers else ():
            effects += self.step(self.plan(asked))
        return effects

    def plan(self, asked: AskPolicy) -> Planned:
        """What the policy answers."""
        assert callable(self.planner)
        return Planned(asked.token, propose(asked.snapshot, self.planner, random.Random(asked.seed)))

    def pass_ms(self, ms: int) -> list[Effect]:
        """Let time pass."""
        self.now_us += ms * 1000
        return self.step()

    def lead(self, term: int) -> list[Effect]:
        """Become leader, with an entry of the term applied."""
        self.term = term
        self.step(MasterLeaderChanged(term, ME))
        return self.step(self._entry(None))

    def follow(self, term: int) -> list[Effect]:
        """Somebody else leads."""
        self.term = term
        return self.step(MasterLeaderChanged(term, OTHER))

    def commit(self) -> list[Effect]:
        """Commit and apply everything that was proposed, and what follows from it."""
        effects: list[Effect] = []
        while self.proposed:
            one = self.proposed.pop(0)
            entry = self._entry(one.batch)
            effects += self.step(entry, Decided(one.token, BatchOutcome.COMMITTED, entry.op_id))
        return effects

    def decide(self, outcome: BatchOutcome) -> list[Effect]:
        """Tell the outcome of all that was proposed, none of which is applied."""
        taken, self.proposed = self.proposed, []
        return [effect for one in taken for effect in self.step(Decided(one.token, outcome))]

    def _entry(self, batch: object) -> EntryApplied:
        op_id = OpId(max(1, self.term), len(self.log) + 1)
        entry = EntryApplied(op_id, batch)  # type: ignore[arg-type]
        self.log.append(entry)
        return entry

    # -- people and servers ------------------------------------------------------------------------

    def ask(self, change: Change, sequence: int = 1, client: str = "ann") -> list[Effect]:
        """A client asks for a change."""
        self._token += 1
        request = ChangeRequest(client_id=ClientId(client), sequence=sequence, first_incomplete=1, change=change)
        return self.step(ChangeAsked(self._token, request))

    def read(self, question: Question, staleness_ms: int = 0) -> list[Effect]:
        """A client asks a question; a confirmation that it needs is given."""
        self._token += 1
        effects = self.step(ReadAsked(self._token, CatalogReadRequest(question=question, staleness_ms=staleness_ms)))
        for confirm in only(effects, Confirm):
            effects += self.step(Confirmed(confirm.token, True))
        return effects

    def heartbeat(self, server: NodeId, report: ServerReport | None = None, run: int = 1) -> HeartbeatReply:
        """A server's heartbeat; returns the answer to it."""
        self._token += 1
        self._sequences[server] = self._sequences.get(server, 0) + 1
        heartbeat = Heartbeat(
            node_id=server,
            incarnation=IncarnationId(f"{run:016x}"),
            sequence=self._sequences[server],
            address=f"host-{int(server, 16)}:7051",
            free_bytes=1 << 40,
            report=report,
        )
        effects = self.step(HeartbeatReceived(self._token, heartbeat))
        (reply,) = [e for e in only(effects, Reply) if e.token == self._token]
        assert isinstance(reply.body, HeartbeatReply)
        return reply.body

    def hear(self, servers: Iterable[NodeId] = SERVERS[:3]) -> None:
        """Full reports of servers that hold nothing, and their records."""
        for server in servers:
            self.heartbeat(server, full())
        self.pass_ms(self.settings.scan_interval_ms)
        self.commit()

    def create_running(
        self, change: CreateTable | None = None, reporting: Iterable[NodeId] = SERVERS
    ) -> list[TabletId]:
        """Create a table and bring its tablets up to RUNNING, by reports of some servers; returns their ids."""
        self.ask(change or create())
        self.commit()
        self.pass_ms(self.settings.policy_interval_ms)
        self.commit()
        tablets = [t for t in self.core.catalog.tablets.values() if not t.terminal]
        for server in reporting:
            mine = [t for t in tablets if t.config is not None and t.config.member(server) is not None]
            if mine:
                self.heartbeat(
                    server, full(*(status(t.tablet_id, t.config, leads=_first(t.config) == server) for t in mine))
                )
        self.commit()
        return [t.tablet_id for t in tablets]


def bring_along(cluster: MasterWithServers, version: int, reports: int = 1) -> None:
    """Have the leaders of all tablets report a schema, in their report of that number, so that alterations end."""
    tablets = [t for t in cluster.core.catalog.tablets.values() if t.config is not None and not t.terminal]
    for server in SERVERS:
        led = [t for t in tablets if _first(t.config) == server]
        if led:
            known = (status(t.tablet_id, t.config, leads=True, version=version) for t in led)
            cluster.heartbeat(server, changes(*known, since=reports, upto=reports + 1))
    cluster.commit()


def _first(config: TabletConfig | None) -> NodeId:
    assert config is not None
    return config.members[0].node_id


def only(effects: Iterable[Effect], kind: type[E]) -> list[E]:
    """The effects of one kind."""
    return [effect for effect in effects if isinstance(effect, kind)]


def sent(effects: Iterable[Effect], kind: type[ServerAction] | None = None) -> list[ServerAction]:
    """The actions among effects."""
    return [e.action for e in only(effects, Send) if kind is None or isinstance(e.action, kind)]


def refusals(effects: Iterable[Effect]) -> list[str]:
    """The codes of errors among effects."""
    return [e.code for e in only(effects, Refuse)]


def committed(config: TabletConfig | None, op_id: OpId = OpId(1, 1)) -> TabletConfig:
    """A config as it is once a leader has committed it."""
    assert config is not None
    return TabletConfig(op_id=op_id, members=config.members)


def status(
    tablet: TabletId,
    config: TabletConfig | None,
    *,
    leads: bool = False,
    version: int = 1,
    op_id: OpId | None = None,
    **more: object,
) -> ReplicaStatus:
    """A replica that is READY, and knows a config as committed at ``op_id``."""
    known = committed(config, op_id or OpId(1, 1))
    role = Role.LEADER if leads else Role.FOLLOWER
    fields = {
        "data_state": ReportedDataState.READY,
        "role": role,
        "term": 1,
        "config": known,
        "schema_version": version,
        **more,
    }
    return ReplicaStatus(tablet_id=tablet, **fields)  # type: ignore[arg-type]


def full(*replicas: ReplicaStatus, upto: int = 1) -> ServerReport:
    """A full report."""
    return ServerReport(full=True, since=0, upto=upto, replicas=replicas)


def changes(*replicas: ReplicaStatus, since: int = 1, upto: int = 2) -> ServerReport:
    """An incremental report."""
    return ServerReport(full=False, since=since, upto=upto, replicas=replicas)


VOTER = MemberType.VOTER


def leading() -> MasterWithServers:
    """Return a leader that hears three servers."""
    cluster = MasterWithServers()
    cluster.lead(1)
    cluster.hear()
    return cluster
