"""A master as a pure core: events in, effects out; ``step`` is the only mutator. It decides, and never acts.

What its driver promises
    1. A step begins with ``Tick``; neither clock goes back.
    2. ``Applied`` comes for every entry of the system tablet in the order of the log, on leaders and followers alike,
       those without rows included. ``LeaderChanged`` comes whenever term or leader change, for this replica as well.
    3. ``Replicate`` is proposed only in the term that it names. The entry is one operation: ``batches.to_rows``.
       ``Decided`` follows at most once. COMMITTED: it is committed at ``op_id``. CERTAINLY_NOT: it is in no log, and
       never will be. UNKNOWN: anything else. If this master steps down meanwhile, silence will do.
    4. ``Confirm`` is a read index of the system tablet: ``Confirmed`` with ``ok`` comes only after everything that was
       acknowledged before ``Confirm`` has been ``Applied`` here.
    5. ``Send`` may be lost, repeated and overtaken. The server judges it by ``fences.judge`` under the tablet's lock.
    6. ``CompareMasters`` is answered by ``MastersCompared``, however late.
    7. ``AskPolicy`` is answered by ``Planned``, however late; there is one at a time. ``propose`` says how.
    8. While ``is_behind``, steps follow each other as fast as the loop's other work allows.
    9. ``ReadIndexTold`` repeats the time of an ``AskReadIndex``. It comes only if a majority has confirmed the leader
       after that; up to its index everything is committed that was acknowledged before. Silence will do.

What the core promises
    1. Replies to changes come after the change is committed and applied here; refusals that are not retryable, too.
    2. Nothing is planned before an entry of this leadership's term is applied (``durability.md`` rule 26).
    3. Effects stand in the order in which they are to be begun; none waits for the completion of another.
    4. No event raises. Replication that fails is an ordinary outcome (KUDU-495).
    5. A cluster that is not on record yet begins only once all of its masters name the same ones.
    6. A step looks at a bounded number of tablets, however many there are; what is left comes with the next."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import assert_never

from stelae.protocol.catalog_names import TableId, TableState, TabletState
from stelae.protocol.heartbeats import HeartbeatReply
from stelae.rows.limits import DEFAULTS, LimitSettings
from stelae.server.master.core.accepted_proposals import Refused, repair
from stelae.server.master.core.catalog import Catalog
from stelae.server.master.core.change_requests import Changing
from stelae.server.master.core.cluster_bootstrap import ClusterBootstrap
from stelae.server.master.core.events import (
    Applied,
    AskPolicy,
    CaughtUp,
    ChangeAsked,
    Confirmed,
    Decided,
    Effect,
    Event,
    HeartbeatHeard,
    LeaderChanged,
    MastersCompared,
    Planned,
    ReadAsked,
    ReadIndexTold,
    Refuse,
    Replicate,
    Reply,
    Send,
    Tick,
)
from stelae.server.master.core.freshness import Freshness
from stelae.server.master.core.housekeeping import expired_tables, new_cluster, new_servers, old_answers
from stelae.server.master.core.leadership import Leadership, MasterStatus
from stelae.server.master.core.read_requests import Reading
from stelae.server.master.core.reconcile import Plan, View, reconcile, scan, settle
from stelae.server.master.core.records import TableRecord, TabletRecord
from stelae.server.master.core.servers import Servers
from stelae.server.master.settings import MasterSettings
from stelae.spi.errors import NotLeader
from stelae.spi.ids import ClusterId, NodeId

_PLANNING_REST = 9
"""Plans that take long are made less often: so many times as long as one took pass before the next."""


class MasterCore:
    """One master.

    Args:
        node_id: of this node, as ``LeaderChanged`` names it.
        cluster_id: of this node; the first leader puts it on record.
        rng: for ids, and for the policy's seeds.
        catalog: what the system tablet held when this process started; later entries come as ``Applied``.
        now: the time of the start.
        limits: of the schemas of new and altered tables.
    """

    def __init__(
        self,
        node_id: NodeId,
        cluster_id: ClusterId,
        settings: MasterSettings,
        rng: random.Random,
        catalog: Catalog,
        now: Tick,
        limits: LimitSettings = DEFAULTS,
    ) -> None:
        self.catalog = catalog
        self.servers = Servers(settings, now.now_us)
        self.refused: list[Refused] = []  #: What the last plan of the policy may not have.
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._settings = settings
        self._rng = rng
        self._time = now
        self._term = 0
        self._leader: NodeId | None = None
        self._leadership: Leadership | None = None
        self._tokens = itertools.count(1)
        self._effects: list[Effect] = []
        self._founding = ClusterBootstrap()
        self._freshness = Freshness()
        self._reading = Reading(settings, self._freshness)
        self._changing = Changing(settings, rng, self._tokens, limits)

    # -- the four of a pure core -------------------------------------------------------------------

    def step(self, events: Sequence[Event]) -> None:
        """Take a batch of events in their order, then see what is to be done."""
        for event in events:
            self._take(event)
        leadership = self._serving
        if leadership is not None:
            self._effects += self._changing.retry(self._view(), leadership)
            self._reconcile(leadership)
        elif self._awaits_masters:
            self._effects += self._founding.ask(self._time.now_us)
        self._effects += self._freshness.ask(self._time, self._leader, leads=self._leader == self._node_id)

    def take_effects(self) -> tuple[Effect, ...]:
        """Return what has accumulated, in order."""
        taken, self._effects = tuple(self._effects), []
        return taken

    def next_deadline(self) -> int | None:
        """Return the ``now_us`` of the next step that is due without an event; ``None``: no step is.

        The driver sleeps until then. A deadline that is missing here would be noticed with the next event only."""
        if self.is_behind:
            return self._time.now_us
        dues = [] if self._leader is None else [self._freshness.due_us]
        if (leadership := self._serving) is not None:
            dues.append(leadership.scan_due_us)
            if leadership.asked is None:
                dues.append(leadership.policy_due_us)
        elif self._awaits_masters:
            dues.append(self._founding.due_us)
        return min(dues, default=None)

    @property
    def is_behind(self) -> bool:
        """Whether the last step has left something to the next one, which is due at once."""
        leadership = self._serving
        if leadership is None:
            return False
        planning = leadership.asked is None and self._time.now_us >= leadership.policy_due_us
        return leadership.is_looking or (planning and not leadership.views.is_fresh)

    def status(self) -> MasterStatus:
        """Return how this master stands."""
        leadership = self._leadership
        return MasterStatus(
            term=self._term,
            leader=self._leader,
            serving=self._serving is not None,
            operations=0 if leadership is None else len(leadership.operations),
            waiting=0 if leadership is None else len(leadership.waiting),
            strangers=0 if leadership is None else leadership.strangers,
            age_us=self._freshness.age_us(self._time),
        )

    # -- events ------------------------------------------------------------------------------------

    @property
    def _serving(self) -> Leadership | None:
        """The leadership, once an entry of its own term is applied, and all masters are known to be of one cluster."""
        return None if self._awaits_masters else self._begun

    @property
    def _awaits_masters(self) -> bool:
        return self._begun is not None and not self._founding.is_over(self.catalog)

    @property
    def _begun(self) -> Leadership | None:
        leadership = self._leadership
        return leadership if leadership is not None and self._has_begun(leadership) else None

    def _has_begun(self, leadership: Leadership) -> bool:
        return self.catalog.applied.term >= leadership.term

    def _view(self) -> View:
        now = self._time
        return View(
            catalog=self.catalog, servers=self.servers, settings=self._settings, now_us=now.now_us, wall_us=now.wall_us
        )

    def _take(self, event: Event) -> None:
        match event:
            case Tick():
                self._time = event
            case LeaderChanged():
                self._change_leader(event)
            case Applied():
                self._apply(event)
            case Decided():
                if self._leadership is not None:
                    self._effects += self._changing.decided(event, self._leadership, self.catalog.applied)
            case ChangeAsked():
                self._ask(event)
            case ReadAsked():
                self._effects += self._reading.ask(event, self._view(), self._serving, self._leader)
            case Confirmed():
                self._effects += self._reading.confirmed(event, self._view(), self._serving, self._leader)
            case CaughtUp():
                self._freshness.caught_up(event, self._time)
            case ReadIndexTold():
                self._freshness.told(event, self.catalog.applied.index)
            case HeartbeatHeard():
                self._hear(event)
            case MastersCompared():
                self._founding.compared(event)
            case Planned():
                self._take_plan(event)
            case _:
                assert_never(event)

    def _change_leader(self, event: LeaderChanged) -> None:
        if event.term < self._term:
            return
        self._term, self._leader = event.term, event.leader
        mine = event.leader == self._node_id
        if self._leadership is not None and (not mine or self._leadership.term != event.term):
            self._effects += self._changing.abandon(self._leadership, event.leader)
            self._effects += self._reading.abandon(self._leadership, event.leader)
            self._leadership = None
        if mine and self._leadership is None:
            live = itertools.chain.from_iterable(self.catalog.of_table.values())
            self._leadership = Leadership(event.term, self._settings, live)
            self.servers.begin_leadership()

    def _apply(self, event: Applied) -> None:
        """Swap the snapshot, and have looked at what the batch has touched."""
        self.catalog = self.catalog.apply(event.batch, event.op_id)
        self._freshness.applied(event.op_id.index)
        leadership = self._leadership
        if leadership is None:
            return
        self._effects += self._changing.applied(event, leadership)
        for record in event.batch.puts if event.batch is not None else ():
            if isinstance(record, TabletRecord):
                leadership.touch([record.tablet_id])
                if record.state is TabletState.PREPARING:
                    leadership.policy_due_us = 0  # Nobody waits for an interval to pass.
            elif isinstance(record, TableRecord):
                leadership.touch(self.catalog.of_table.get(record.table_id, ()))

    def _ask(self, event: ChangeAsked) -> None:
        leadership = self._serving
        if self._awaits_masters:
            self._effects.append(self._founding.refusal(event.token))
        elif leadership is None:
            error = NotLeader(self._leader)
            refuse = Refuse(token=event.token, code=error.code, detail=str(error), retryable=True, leader=self._leader)
            self._effects.append(refuse)
        else:
            self._effects += self._changing.ask(event, self._view(), leadership)

    def _hear(self, event: HeartbeatHeard) -> None:
        """A follower takes from it that the server lives; the leader takes the report besides."""
        heartbeat = event.heartbeat
        in_order = self.servers.heard(heartbeat, self._time.now_us)
        leadership = self._serving
        if leadership is None:
            reply = HeartbeatReply(term=0, leader=self._leader)
        else:
            taken = self.servers.take(heartbeat.node_id, heartbeat.report if in_order else None)
            leadership.touch(taken.changed)
            reply = HeartbeatReply(
                term=leadership.term, leader=self._node_id, wants_full=taken.wants_full, acknowledged=taken.acknowledged
            )
        self._effects.append(Reply(token=event.token, body=reply))

    # -- what follows from the state ---------------------------------------------------------------

    def _take_plan(self, event: Planned) -> None:
        """Keep what the policy wants for the end of this step; an answer to an earlier leadership means nothing."""
        leadership = self._leadership
        if leadership is None or leadership.asked is None or leadership.asked[0] != event.token:
            return
        took_us = self._time.now_us - leadership.asked[1]
        leadership.asked, leadership.proposal = None, event.proposal
        if leadership.policy_due_us:  # Unless somebody waits for the next one.
            rest_us = max(self._settings.policy_interval_ms * 1000, took_us * _PLANNING_REST)
            leadership.policy_due_us = self._time.now_us + rest_us

    def _reconcile(self, leadership: Leadership) -> None:
        view = self._view()
        plan = reconcile(view, leadership.dirty)
        touched = [self.catalog.tablets[t].table_id for t in leadership.dirty if t in self.catalog.tablets]
        leadership.dirty = {}
        for table_id in (*self._look(view, leadership, plan), *dict.fromkeys(touched)):
            settled = settle(view, self.catalog.tables[table_id])
            if settled is not None:
                plan.transitions.append(settled)
        if leadership.proposal is not None:
            proposal, leadership.proposal = leadership.proposal, None
            self.refused = repair(view, proposal, plan)
        for operation in leadership.gather(plan.transitions, self._tokens):
            self._effects.append(Replicate(operation.token, leadership.term, operation.batch))
        self._send(plan, leadership)
        self._ask_policy(view, leadership)

    def _look(self, view: View, leadership: Leadership, plan: Plan) -> list[TableId]:
        """Look at everything, in turns: what no event has brought up is found here. Returns tables that may settle."""
        if view.now_us < leadership.scan_due_us and not leadership.is_looking:
            return []
        altering: list[TableId] = []
        if not leadership.is_looking:
            leadership.scan_due_us = view.now_us + self._settings.scan_interval_ms * 1000
            leadership.begin_look(self.catalog, self.servers.held())
            plan.transitions += [*new_cluster(view, self._cluster_id), *new_servers(view)]
            for mutation in (*expired_tables(view), *old_answers(view)):
                self._effects += self._changing.begin(mutation, leadership)
            leadership.pacer.forget_old(view.now_us)
            altering = [t.table_id for t in self.catalog.tables.values() if t.state is TableState.ALTERING]
        found = scan(view, leadership.next_turn())
        plan.transitions += found.transitions
        plan.actions += found.actions
        leadership.count_strangers(len(found.strangers))
        return altering

    def _ask_policy(self, view: View, leadership: Leadership) -> None:
        """Ask the policy when it is time, once what it is shown is up to date."""
        if leadership.asked is not None or view.now_us < leadership.policy_due_us:
            return
        leadership.views.refresh(view, self._settings.scan_tablets_max)
        if leadership.views.is_fresh:
            token = next(self._tokens)
            leadership.asked = (token, view.now_us)
            leadership.policy_due_us = view.now_us + self._settings.policy_interval_ms * 1000
            self._effects.append(AskPolicy(token, leadership.views.snapshot(view), self._rng.getrandbits(64)))

    def _send(self, plan: Plan, leadership: Leadership) -> None:
        left = self._settings.actions_per_step_max
        for action in plan.actions:
            if left and leadership.pacer.is_due(action, self._time.now_us):
                server = self.servers.get(action.node_id)
                self._effects.append(Send("" if server is None else server.address, action))
                left -= 1
