"""Drives a master's core on a node: the system tablet under it, clients and tablet servers around it.

The system tablet is a replica like any other. What it applies reaches the core entry by entry, on leaders and
followers alike; what the core replicates is a write of one operation. The core promises and demands what stands in
``stelae.server.master.core.master_core``; this is the other side of it.

Events are collected during a turn of the loop and stepped once at its end. A batch is proposed in a turn of its own, so
that it has an entry of its own; whether it was committed is read off the log, as it is applied: nothing else is sure
of it."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, assert_never

import msgspec

from stelae.host.hybrid_clock import physical_us
from stelae.host.node import Node
from stelae.host.ports import Timer
from stelae.host.replica import Replica
from stelae.protocol.actions import ACTION, ChangeConfig, ServerAction, encode_action
from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.protocol.codec import decode, encode
from stelae.protocol.master_heartbeats import HEARTBEAT, Heartbeat
from stelae.protocol.master_messages import CHANGE, READ, CatalogReadRequest, ChangeRequest
from stelae.protocol.read_index_messages import READ_INDEX, ReadIndexAnswer, ReadIndexRequest
from stelae.rows.operations import operation, sequence_ranges_of
from stelae.server.frames import only_frame
from stelae.server.limits import limits_of
from stelae.server.master.core.batches import SYSTEM_SCHEMA, CatalogBatch, from_rows, records_of, to_rows
from stelae.server.master.core.catalog import Catalog
from stelae.server.master.core.events import (
    AskPolicy,
    AskReadIndex,
    CaughtUp,
    ChangeAsked,
    CompareMasters,
    Confirm,
    Confirmed,
    Decided,
    Effect,
    EntryApplied,
    Event,
    HeartbeatHeard,
    MasterLeaderChanged,
    MastersCompared,
    MasterTick,
    Planned,
    ReadAsked,
    ReadIndexTold,
    Refuse,
    Replicate,
    Reply,
    Send,
)
from stelae.server.master.core.master_core import MasterCore
from stelae.server.master.core.operations import Outcome
from stelae.server.master.core.proposals import Planner, PolicyProposal, propose
from stelae.server.master.driver.first_start import FirstStart
from stelae.server.master.settings import MasterSettings
from stelae.spi.consensus import Role
from stelae.spi.errors import ClockError, ConfigError, PeerError, StelaeError, Unavailable
from stelae.spi.ids import ClientId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.payload import decode_payload
from stelae.spi.rows import RowBatch
from stelae.spi.scan import Order, ScanSpec
from stelae.spi.services import Metrics
from stelae.spi.write import WriteReply, WriteRequest
from stelae.wire.call_retries import Response
from stelae.wire.refusals import error_of
from stelae.wire.requests import Request

log = logging.getLogger(__name__)

START_RETRY_US = 50_000
"""How often a master looks for its system tablet while it starts. After the start it steps on events and deadlines."""

READ_INDEX_MS = 1_000
"""Deadline of a question to the leading master; another one goes out before it."""

ACTION_MS = 30_000
"""Deadline of an action; the core asks again long before if no report shows its effect."""

HELD_BACK = (ChangeConfig,)
"""Actions that are planned, and not sent: tablet servers of this release refuse every one of them (`UNSUPPORTED`).

Held back here, at the edge: the core plans them as ever, and ``stelae policy explain`` shows them."""

_Message = TypeVar("_Message", bound=msgspec.Struct)


class Master:
    """One master. A ``Service`` (``stelae.spi.hooks``) of a node whose configured tablet is the system tablet."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._settings: MasterSettings = node.config.extra.get("master") or MasterSettings()
        self.core: MasterCore | None = None
        self._replica: Replica | None = None
        self._entries: deque[Entry] = deque()  #: Applied before there is a core.
        self._events: list[Event] = []
        self._step_due = False
        self._timer: Timer | None = None
        self._led: tuple[int, str | None] = (0, None)
        self._requests: dict[int, Request] = {}
        self._tokens = 0
        self._client = ClientId(f"master-{random.SystemRandom().getrandbits(64):016x}")
        self._sequence = 0
        self._proposed: dict[int, int] = {}  #: Token of each batch that is not decided, by its sequence.
        self._queue: deque[Replicate] = deque()
        tablet = node.config.tablet
        assert tablet is not None, "a master is configured with its system tablet"
        self._members = tablet.members
        self._first_start = FirstStart(node, tablet, lambda: None if self.core is None else self.core.catalog)

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Register the handlers; the core begins as soon as the system tablet is up.

        ``ConfigError``: this node is none of the masters that it names; it could neither lead nor vote."""
        self._check_listed()
        serve = self._node.messenger.serve
        serve(CHANGE, self._ask_change)
        serve(READ, self._ask_read)
        serve(HEARTBEAT, self._ask_heartbeat)
        serve(READ_INDEX, self._ask_read_index)
        self._first_start.serve()
        self._find_replica()

    def _check_listed(self) -> None:
        node, listed = self._node, {member.node_id: member.address for member in self._members}
        if node.node_id not in listed:
            uuid = next((uuid for uuid, address in listed.items() if address == node.address), "UUID")
            hint = f"Correct the list, or format a new directory with: stelae fs format --config FILE --uuid {uuid}"
            raise ConfigError(f"this node is {node.node_id}, which [masters] does not list", hint=hint)

    def stop(self) -> None:
        """Decide nothing more."""
        self._first_start.stop()
        if self._timer is not None:
            self._timer.cancel()
        if self._replica is not None:
            self._replica.applier.on_group = None
            self._replica.on_status = None
        self.core = None

    def _find_replica(self) -> None:
        """Load the catalog as soon as the system tablet is up; create the tablet at the first start."""
        if (replica := self._node.replicas.get(SYSTEM_TABLET)) is not None:
            self._load(replica)
            return
        self._first_start.make()
        turns = self._node.turns
        self._timer = turns.call_at(turns.now_us() + START_RETRY_US, self._find_replica)

    def _sleep(self, core: MasterCore) -> None:
        """Step again at the core's deadline, if no event comes before."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = core.next_deadline()
        if deadline is not None:
            self._timer = self._node.turns.call_at(deadline, self._schedule)

    def _set_gauges(self, core: MasterCore, now: MasterTick) -> None:
        """Publish the state of this master."""
        metrics, status, catalog = self._node.metrics, core.status(), core.catalog
        metrics.gauge("master_leads", float(status.serving))
        metrics.gauge("master_operations", status.operations)
        metrics.gauge("master_tables", len(catalog.tables))
        metrics.gauge("master_tablets", len(catalog.tablets))
        if status.age_us is not None:
            # A time, not an age: the age grows between two steps too.
            metrics.gauge("master_catalog_current_at_us", now.now_us - status.age_us)

    def _load(self, replica: Replica) -> None:
        """Read the catalog as the store has it; entries applied meanwhile are kept, and applied on top of it.

        An entry that the scan has seen and that is applied again changes nothing in the end: batches put whole records,
        and the last one of each is the newest."""
        self._replica = replica
        replica.applier.on_group = self._applied
        replica.on_status = self._follow_leader
        applied, store = replica.applier.applied, replica.applier.store
        if replica.applier.timestamp:
            self._hear(CaughtUp(physical_us(replica.applier.timestamp)))

        def read() -> list[RowBatch]:
            with store.scan(ScanSpec(order=Order.KEY)) as cursor:
                return list(cursor)

        def loaded(pages: list[RowBatch] | Exception) -> None:
            try:
                if isinstance(pages, Exception):
                    raise pages
                self._begin(Catalog.load(records_of(pages), applied))
            except (StelaeError, OSError) as error:
                replica.fail(f"the catalog cannot be read: {error}")

        self._node.scans.run("master/load", read, loaded)

    def _begin(self, catalog: Catalog) -> None:
        node = self._node
        rng = random.Random(random.SystemRandom().getrandbits(64))
        cluster_id = node.config.cluster_id
        self.core = MasterCore(
            node.node_id, cluster_id, self._settings, rng, catalog, self._now(), limits_of(node.config)
        )
        log.info("master begins tables=%d applied=%s", len(catalog.tables), catalog.applied)
        early, self._entries = self._entries, deque()
        self._take(list(early))
        self._schedule()

    def _planner(self) -> Planner:
        policy = self._node.config.policy
        assert policy is not None, "a master is configured with a policy"
        return lambda snapshot, rng: policy.engine.plan(snapshot, policy.config, rng)

    # -- what comes in ---------------------------------------------------------------------------

    def _ask_change(self, request: Request) -> None:
        self._node.metrics.count("master_changes_asked")
        self._ask(request, ChangeRequest, lambda token, asked: ChangeAsked(token, asked))

    def _ask_read(self, request: Request) -> None:
        self._ask(request, CatalogReadRequest, lambda token, asked: ReadAsked(token, asked))

    def _ask_heartbeat(self, request: Request) -> None:
        def heard(token: int, heartbeat: Heartbeat) -> Event:
            if heartbeat.node_id != request.sender:
                raise PeerError(f"node {request.sender} reports in the name of {heartbeat.node_id}")
            metrics = self._node.metrics
            metrics.count("master_heartbeats_received")
            if heartbeat.report is not None:
                metrics.count("master_reports_full" if heartbeat.report.full else "master_reports_incremental")
            # Every master keeps a link to every server: one that has just come to lead acts at once.
            self._node.messenger.add_peer(heartbeat.node_id, heartbeat.address)
            return HeartbeatHeard(token, heartbeat)

        self._ask(request, Heartbeat, heard)

    def _ask(self, request: Request, kind: type[_Message], event: Callable[[int, Any], Event]) -> None:
        asked = decode(only_frame(request), kind)
        if self.core is None:
            raise Unavailable("this master is starting")
        made = event(self._tokens + 1, asked)
        self._tokens += 1
        self._requests[self._tokens] = request
        self._hear(made)

    def _ask_read_index(self, request: Request) -> None:
        """Tell another master how far the catalog has come, once a majority has confirmed this one."""
        decode(only_frame(request), ReadIndexRequest)
        replica = self._replica
        if replica is None:
            raise Unavailable("this master is starting")
        if replica.status.config.member(request.sender) is None:
            raise PeerError(f"node {request.sender} is none of the masters of this cluster")

        def confirmed(result: int | StelaeError) -> None:
            if isinstance(result, StelaeError):
                request.refuse(result)
            else:
                request.reply([encode(ReadIndexAnswer(replica.applier.applied.index))])

        replica.read_index(confirmed)

    def _hear(self, event: Event) -> None:
        self._events.append(event)
        self._schedule()

    def _applied(self, entries: Sequence[Entry]) -> None:
        if self.core is None:
            self._entries.extend(entries)
        else:
            self._take(entries)

    def _take(self, entries: Sequence[Entry]) -> None:
        """Tell the core of entries, and of what they decide."""
        for entry in entries:
            batch, mine = self._read(entry)
            self._hear(EntryApplied(entry.op_id, batch))
            for sequence in mine:
                token = self._proposed.pop(sequence, None)
                if token is not None:
                    self._hear(Decided(token, Outcome.COMMITTED, entry.op_id))

    def _read(self, entry: Entry) -> tuple[CatalogBatch | None, list[int]]:
        """The batch of an entry, if it has rows, and which sequences of ours it carries."""
        if entry.kind is not EntryKind.WRITE:
            return None, []
        payload = decode_payload(entry.body)
        mine = [
            run.first_sequence for run in payload.sequences if payload.clients[run.client].client_id == self._client
        ]
        batches = []
        for group in payload.groups:
            layout = SYSTEM_SCHEMA.project(group.columns)
            batches.append(from_rows(group.kind, RowBatch.from_ipc(layout, group.body)))
        assert len(batches) <= 1, f"entry {entry.op_id} of the system tablet has {len(batches)} operations"
        return (batches[0] if batches else None), mine

    # -- the step --------------------------------------------------------------------------------

    def _schedule(self) -> None:
        if not self._step_due and self.core is not None:
            self._step_due = True
            self._node.turns.defer(self._step)

    def _follow_leader(self) -> None:
        """Step if the term or the leader of the system tablet has changed."""
        if self._replica is not None and (self._replica.status.term, self._replica.status.leader) != self._led:
            self._schedule()

    def _step(self) -> None:
        self._step_due = False
        core, replica = self.core, self._replica
        if core is None or replica is None:
            return
        status = replica.status
        led = (status.term, status.leader)
        changed = [MasterLeaderChanged(*led)] if led != self._led else []
        self._led = led
        taken, self._events = self._events, []
        now = self._now()
        try:
            core.step([now, *changed, *taken])
            for effect in core.take_effects():
                self._carry_out(effect, replica)
        except Exception as error:
            # Half a step leaves a catalog that nothing may be concluded from. Another master has a whole one.
            log.exception("the step of a master raised")
            self.core = None
            replica.fail(f"the master's step raised {type(error).__name__}: {error}; restart this master")
            return
        self._set_gauges(core, now)
        self._sleep(core)  # A core that is behind has a deadline that has passed: the loop's other work comes first.

    def _now(self) -> MasterTick:
        time = self._node.time
        try:
            stamp = time.now()
        except ClockError:
            stamp = time.last
        return MasterTick(self._node.turns.now_us(), physical_us(stamp))

    # -- effects ---------------------------------------------------------------------------------

    def _carry_out(self, effect: Effect, replica: Replica) -> None:
        match effect:
            case Replicate():
                self._queue.append(effect)
                if len(self._queue) == 1:
                    self._node.turns.defer(self._propose)
            case Reply():
                self._requests.pop(effect.token).reply([encode(effect.body)])
            case Refuse():
                fields = {"code": effect.code, "text": effect.detail, "leader": effect.leader}
                self._requests.pop(effect.token).refuse(error_of(fields))
            case Confirm():
                replica.read_index(
                    lambda result: self._hear(Confirmed(effect.token, not isinstance(result, StelaeError)))
                )
            case AskReadIndex():
                self._ask_leader(effect, replica)
            case CompareMasters():
                self._first_start.compare(lambda objection: self._hear(MastersCompared(objection)))
            case Send():
                self._send(effect)
            case AskPolicy():
                self._ask_policy(effect)
            case _:
                assert_never(effect)

    def _ask_leader(self, effect: AskReadIndex, replica: Replica) -> None:
        """Ask for a read index: of this replica if it leads, else of the master that does. Who fails is asked again."""
        node = self._node

        def confirmed(result: int | StelaeError) -> None:
            if not isinstance(result, StelaeError):
                self._hear(ReadIndexTold(effect.asked, replica.applier.applied.index))

        def answered(call: asyncio.Future[Response]) -> None:
            if call.cancelled() or call.exception() is not None:
                return
            try:
                index = decode(b"".join(call.result().body), ReadIndexAnswer).index
            except StelaeError as error:
                log.warning("master %s gave no read index: %s", effect.leader, error)
            else:
                self._hear(ReadIndexTold(effect.asked, index))

        if effect.leader == node.node_id:
            replica.read_index(confirmed)
        else:
            frames = [encode(ReadIndexRequest())]
            call = node.messenger.call(effect.leader, READ_INDEX, frames, deadline_ms=READ_INDEX_MS)
            call.add_done_callback(answered)

    def _propose(self) -> None:
        """Propose the next batch; the one behind it waits for the next turn, and so has an entry of its own."""
        effect = self._queue.popleft()
        if self._queue:
            turns = self._node.turns
            turns.call_at(turns.now_us(), self._propose)
        replica = self._replica
        if replica is None or self.core is None:
            return
        if replica.status.role is not Role.LEADER or replica.status.term != effect.term:
            self._hear(Decided(effect.token, Outcome.CERTAINLY_NOT))
            return
        self._sequence += 1
        sequence = self._sequence
        self._proposed[sequence] = effect.token
        kind, rows = to_rows(effect.batch)
        refused_at_once = True

        def done(result: WriteReply | StelaeError) -> None:
            # What was committed has been decided by its entry. An error afterwards leaves it open; a refusal does not.
            refused = isinstance(result, WriteReply) and any(answer.result.refusal for answer in result.answers)
            if refused or isinstance(result, StelaeError):
                token = self._proposed.pop(sequence, None)
                if token is not None:
                    outcome = Outcome.CERTAINLY_NOT if refused or refused_at_once else Outcome.UNKNOWN
                    self._hear(Decided(token, outcome))

        request = WriteRequest(
            SYSTEM_TABLET,
            self._client,
            min(self._proposed),
            SYSTEM_SCHEMA.version,
            sequence_ranges_of([(sequence, operation(kind, rows.to_ipc()))]),
        )
        replica.write(request, done)
        refused_at_once = False

    def _ask_policy(self, effect: AskPolicy) -> None:
        """Have the policy plan on a thread: of a large cluster it takes seconds, and heartbeats go on meanwhile."""
        planner = self._planner()

        def plan() -> PolicyProposal:
            return propose(effect.snapshot, planner, random.Random(effect.seed))

        def planned(found: PolicyProposal | Exception) -> None:
            if isinstance(found, Exception):
                log.error("the policy failed: %s", found)
                found = PolicyProposal()
            self._hear(Planned(effect.token, found))

        self._node.scans.run("master/policy", plan, planned)

    def _send(self, effect: Send) -> None:
        """Ask a tablet server to act. Whether it did is seen in its reports."""
        action, node = effect.action, self._node
        if isinstance(action, HELD_BACK):
            return
        if effect.address and action.node_id != node.node_id:
            node.messenger.add_peer(action.node_id, effect.address)
        call = node.messenger.call(action.node_id, ACTION, [encode_action(action)], deadline_ms=ACTION_MS)
        node.metrics.count("master_actions_sent")
        call.add_done_callback(lambda answer: _note(action, answer, node.metrics))


def _note(action: ServerAction, answer: asyncio.Future[Any], metrics: Metrics) -> None:
    if not answer.cancelled() and (error := answer.exception()) is not None:
        metrics.count("master_actions_refused")
        what = (type(action).__name__, action.tablet_id, action.node_id)
        log.info("action not taken action=%s tablet=%s server=%s: %s", *what, error)
