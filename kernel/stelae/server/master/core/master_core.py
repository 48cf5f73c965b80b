"""A master as a pure core: events in, effects out. Only ``step`` changes its state. It decides and never acts.

The driver promises:
    1. Each step begins with ``MasterTick``. Neither of its clocks goes back.
    2. ``EntryApplied`` arrives for every entry of the system tablet in log order, on leaders and followers, also for
       entries without rows. ``MasterLeaderChanged`` arrives whenever the term or the leader changes, and
       ``MastersChanged`` whenever the committed config of the system tablet does.
    3. ``Replicate`` is proposed only in the term that it names. The entry has one operation (``batches.to_rows``).
       ``Decided`` follows at most once. COMMITTED: the batch is committed at ``op_id``. CERTAINLY_NOT: the batch is in
       no log and never will be. UNKNOWN: any other outcome. After this master has stepped down, no answer is needed.
    4. ``Confirm`` asks for a read index of the system tablet. ``Confirmed`` with ``ok`` arrives only after everything
       that was acknowledged before ``Confirm`` has arrived as ``EntryApplied``.
    5. ``Send`` may be lost, repeated or delivered out of order. The server checks it with ``fences.judge`` under the
       tablet's lock.
    6. ``MastersCompared`` answers ``CompareMasters``, with any delay.
    7. ``Planned`` answers ``AskPolicy``, with any delay. At most one is outstanding. See ``propose``.
    8. The driver steps the core at ``next_deadline`` if no event arrives before.
    9. ``ReadIndexAnswered`` repeats the time of an ``AskReadIndex``. It arrives only if a majority has confirmed the
       leader after that time. Every entry that was acknowledged before that time is at or below its index. An answer
       may be missing.

The core promises:
    1. A reply to a change, or a refusal that is not retryable, follows after the change is committed and applied here.
       The exceptions are refusals of the request's identity, and ``INTERNAL``, which are not put on record.
    2. Nothing is planned before an entry of this leadership's term is applied (``durability.md`` rule 26).
    3. Effects are in the order in which they must begin. No effect waits for another one to complete.
    4. No event raises an exception. Failed replication is an ordinary outcome (KUDU-495).
    5. A new cluster goes on record only after all of its masters have named the same masters.
    6. A step looks at a bounded number of tablets, however many exist. The next step continues."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import assert_never

from stelae.protocol.catalog_names import TableId, TableState, TabletState
from stelae.protocol.master_heartbeats import Heartbeat, HeartbeatReply
from stelae.protocol.masters_messages import creation_text
from stelae.rows.limits import DEFAULTS, LimitSettings
from stelae.server.master.core.accepted_proposals import RefusedProposal, repair
from stelae.server.master.core.catalog import Catalog
from stelae.server.master.core.change_requests import ChangeRequests
from stelae.server.master.core.cluster_bootstrap import ClusterBootstrap
from stelae.server.master.core.events import (
    AskPolicy,
    CaughtUp,
    ChangeAsked,
    Confirmed,
    Decided,
    Effect,
    EntryApplied,
    Event,
    HeartbeatReceived,
    MasterLeaderChanged,
    MastersChanged,
    MastersCompared,
    MasterTick,
    Planned,
    ReadAsked,
    ReadIndexAnswered,
    Refuse,
    Replicate,
    Reply,
    Send,
)
from stelae.server.master.core.freshness import Freshness
from stelae.server.master.core.housekeeping import expired_tables, new_cluster, new_servers, old_answers
from stelae.server.master.core.leadership import MasterLeadership, MasterStatus
from stelae.server.master.core.read_requests import ReadRequests
from stelae.server.master.core.reconcile import ClusterView, ReconcilePlan, reconcile, scan, settle
from stelae.server.master.core.records import TableRecord, TabletRecord
from stelae.server.master.core.servers import Liveness, Servers
from stelae.server.master.settings import MasterSettings
from stelae.spi.errors import NotLeader, Unavailable
from stelae.spi.ids import ClusterId, NodeId
from stelae.spi.members import TabletConfig

_PLANNING_REST = 9
"""The pause after a plan, as a multiple of the time that the plan took."""

LAGS = (
    "this master leads, and its log lacks config {} of the masters, which the server knows: another master leads the "
    "cluster by now; see the masters with: stelae master list"
)
"""Why a leader refuses the heartbeat of a server. So it places nothing there, and the server reports nothing to it."""

OTHER_CLUSTER = (
    "two clusters have one [cluster] id: that of this master {}, and that of the server was created at {}. If the "
    "server is there by mistake, correct [masters] in its node.toml. If this master was formatted anew, stop it. If "
    "all other masters are lost for good, see: stelae recover catalog --help"
)
"""Why a master refuses the heartbeat of a server that belongs to another creation. It has the same effect."""


class MasterCore:
    """A master.

    Args:
        node_id: of this node, as ``MasterLeaderChanged`` names it.
        cluster_id: of this node; the first leader puts it on record.
        rng: draws ids, and the seeds of the policy.
        catalog: the contents of the system tablet when this process started. Later entries come as ``EntryApplied``.
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
        now: MasterTick,
        limits: LimitSettings = DEFAULTS,
    ) -> None:
        self.catalog = catalog
        self.servers = Servers(settings, now.now_us)
        self.refused: list[RefusedProposal] = []  #: The refused actions of the last plan of the policy.
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._settings = settings
        self._rng = rng
        self._time = now
        self._term = 0
        self._leader: NodeId | None = None
        self._masters: MastersChanged | None = None
        self._leadership: MasterLeadership | None = None
        self._tokens = itertools.count(1)
        self._effects: list[Effect] = []
        self._bootstrap = ClusterBootstrap()
        self._freshness = Freshness()
        self._reading = ReadRequests(settings, self._freshness)
        self._changing = ChangeRequests(settings, rng, self._tokens, limits)

    # -- the four of a pure core -------------------------------------------------------------------

    def step(self, events: Sequence[Event]) -> None:
        """Process events in their order, and then decide what follows from the state."""
        for event in events:
            self._take(event)
        leadership = self._serving
        if leadership is not None:
            self._effects += self._changing.retry(self._view(), leadership)
            self._reconcile(leadership)
        elif self._awaits_masters:
            self._effects += self._bootstrap.ask(self._time.now_us)
        self._effects += self._freshness.ask(self._time, self._leader, leads=self._leader == self._node_id)

    def take_effects(self) -> tuple[Effect, ...]:
        """Return the effects since the last call, in order."""
        taken, self._effects = tuple(self._effects), []
        return taken

    def next_deadline(self) -> int | None:
        """Return the ``now_us`` at which the next step is due without an event, or ``None``.

        The driver sleeps until then. Work whose deadline is missing here would wait for the next event."""
        if self.is_behind:
            return self._time.now_us
        dues = [] if self._leader is None else [self._freshness.due_us]
        if (leadership := self._serving) is not None:
            dues.append(leadership.scan_due_us)
            if leadership.asked is None:
                dues.append(leadership.policy_due_us)
        elif self._awaits_masters:
            dues.append(self._bootstrap.due_us)
        return min(dues, default=None)

    @property
    def is_behind(self) -> bool:
        """Whether the last step has left work to the next one, which is due at once."""
        leadership = self._serving
        if leadership is None:
            return False
        planning = leadership.asked is None and self._time.now_us >= leadership.policy_due_us
        return leadership.is_looking or (planning and not leadership.views.is_fresh)

    def status(self) -> MasterStatus:
        """Return the status of this master."""
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

    def obstacle_to_removal(self, now_us: int) -> str:
        """Return why no master may be removed yet; empty if one may.

        A tablet server that knows only masters which are removed, and then stopped, never finds the others. So every
        live server must know the committed config of the masters first."""
        masters = self._masters
        if masters is None or not self.servers.is_warm(now_us):
            return "this master has just started, and has perhaps not heard every live tablet server yet"
        behind = self.servers.with_older_masters(masters.config.op_id, now_us)
        if not behind:
            return ""
        fact = f"{len(behind)} of the live tablet servers do not know config {masters.config.op_id} of the masters yet"
        return f"{fact}, as {behind[0].address}"

    # -- events ------------------------------------------------------------------------------------

    @property
    def _serving(self) -> MasterLeadership | None:
        """The leadership, once an entry of its term is applied and all masters are known to name the same masters."""
        return None if self._awaits_masters else self._begun

    @property
    def _awaits_masters(self) -> bool:
        return self._begun is not None and not self._bootstrap.is_over(self.catalog)

    @property
    def _begun(self) -> MasterLeadership | None:
        leadership = self._leadership
        return leadership if leadership is not None and self._has_begun(leadership) else None

    def _has_begun(self, leadership: MasterLeadership) -> bool:
        return self.catalog.applied.term >= leadership.term

    def _view(self) -> ClusterView:
        now = self._time
        return ClusterView(
            catalog=self.catalog, servers=self.servers, settings=self._settings, now_us=now.now_us, wall_us=now.wall_us
        )

    def _take(self, event: Event) -> None:
        match event:
            case MasterTick():
                self._time = event
            case MasterLeaderChanged():
                self._change_leader(event)
            case MastersChanged():
                self._masters = event
            case EntryApplied():
                self._apply(event)
            case Decided():
                if self._leadership is not None:
                    self._effects += self._changing.decided(event, self._leadership, self.catalog.applied)
            case ChangeAsked():
                self._ask(event)
            case ReadAsked():
                self._ask_question(event)
            case Confirmed():
                self._effects += self._reading.confirmed(event, self._view(), self._serving, self._leader)
            case CaughtUp():
                self._freshness.caught_up(event, self._time)
            case ReadIndexAnswered():
                self._freshness.take_answer(event, self.catalog.applied.index)
            case HeartbeatReceived():
                self._take_heartbeat(event)
            case MastersCompared():
                self._bootstrap.compared(event)
            case Planned():
                self._take_plan(event)
            case _:
                assert_never(event)

    def _change_leader(self, event: MasterLeaderChanged) -> None:
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
            self._leadership = MasterLeadership(event.term, self._settings, live)
            self.servers.begin_leadership(self._time.now_us)

    def _apply(self, event: EntryApplied) -> None:
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
                    leadership.policy_due_us = 0  # Do not wait for the interval.
            elif isinstance(record, TableRecord):
                leadership.touch(self.catalog.of_table.get(record.table_id, ()))

    def _ask(self, event: ChangeAsked) -> None:
        leadership = self._serving
        if self._awaits_masters:
            self._effects.append(self._bootstrap.refusal(event.token))
        elif leadership is None:
            error = NotLeader(self._leader)
            refuse = Refuse(token=event.token, code=error.code, detail=str(error), retryable=True, leader=self._leader)
            self._effects.append(refuse)
        else:
            self._effects += self._changing.ask(event, self._view(), leadership)

    def _ask_question(self, event: ReadAsked) -> None:
        if self._awaits_masters:
            self._effects.append(self._bootstrap.refusal(event.token))
        else:
            self._effects += self._reading.ask(event, self._view(), self._serving, self._leader)

    def _take_heartbeat(self, event: HeartbeatReceived) -> None:
        """Note that the server lives. The leader also takes the report."""
        heartbeat = event.heartbeat
        if self._is_of_another_cluster(heartbeat) or self._lacks_config_of(heartbeat):
            self._answer_stranger(event)
            return
        in_order = self.servers.heard(heartbeat, self._time.now_us)
        leadership, newer = self._serving, self._newer_masters(heartbeat)
        if leadership is None:
            reply = HeartbeatReply(
                term=0, leader=self._leader, masters=newer, cluster_created_us=self.catalog.cluster_created_us
            )
        else:
            taken = self.servers.take(heartbeat.node_id, heartbeat.report if in_order else None)
            leadership.touch(taken.changed)
            reply = HeartbeatReply(
                term=leadership.term,
                leader=self._node_id,
                wants_full=taken.wants_full,
                acknowledged=taken.acknowledged,
                masters=newer,
                cluster_created_us=self.catalog.cluster_created_us,
            )
        self._effects.append(Reply(token=event.token, body=reply))

    def _answer_stranger(self, event: HeartbeatReceived) -> None:
        """Answer a server of another cluster, or one that knows a newer config of the masters, and do not count it.

        Otherwise a new catalog that is only about to lead would place replicas on the servers of a lost one. A master
        that does not lead perhaps lags: it refuses only what the cluster on record in its own log excludes."""
        heartbeat, mine = event.heartbeat, self.catalog.cluster_created_us
        is_other = self._is_of_another_cluster(heartbeat)
        if self._begun is None and not (is_other and mine):
            self._effects.append(Reply(token=event.token, body=HeartbeatReply(term=0, leader=self._leader)))
            return
        here = f"was created at {creation_text(mine)}" if mine else "is about to be created"
        theirs = creation_text(heartbeat.cluster_created_us)
        text = OTHER_CLUSTER.format(here, theirs) if is_other else LAGS.format(heartbeat.masters)
        error = Unavailable(text)
        self._effects.append(Refuse(token=event.token, code=error.code, detail=str(error), retryable=True))

    def _newer_masters(self, heartbeat: Heartbeat) -> TabletConfig | None:
        """Return the masters if a server knows an older config of them. Before a cluster is on record, lists count."""
        masters, known = self._masters, heartbeat.masters
        if masters is None or self.catalog.cluster is None or (known is not None and known >= masters.config.op_id):
            return None
        return masters.config

    def _is_of_another_cluster(self, heartbeat: Heartbeat) -> bool:
        """Whether a server belongs to a cluster that is not the one on record here."""
        return heartbeat.cluster_created_us not in (0, self.catalog.cluster_created_us)

    def _lacks_config_of(self, heartbeat: Heartbeat) -> bool:
        """Whether a server knows a committed config of the masters that is newer than all in this log."""
        masters, known = self._masters, heartbeat.masters
        return masters is not None and known is not None and known > masters.newest

    # -- what follows from the state ---------------------------------------------------------------

    def _take_plan(self, event: Planned) -> None:
        """Keep the policy's proposal until the end of this step. An answer to an earlier leadership has no effect."""
        leadership = self._leadership
        if leadership is None or leadership.asked is None or leadership.asked[0] != event.token:
            return
        took_us = self._time.now_us - leadership.asked[1]
        leadership.asked, leadership.proposal = None, event.proposal
        if leadership.policy_due_us:  # Unless somebody waits for the next one.
            rest_us = max(self._settings.policy_interval_ms * 1000, took_us * _PLANNING_REST)
            leadership.policy_due_us = self._time.now_us + rest_us

    def _reconcile(self, leadership: MasterLeadership) -> None:
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

    def _look(self, view: ClusterView, leadership: MasterLeadership, plan: ReconcilePlan) -> list[TableId]:
        """Scan all tablets, in parts, for work that no event has shown.

        Returns tables whose alteration may be complete."""
        if view.now_us < leadership.scan_due_us and not leadership.is_looking:
            return []
        altering: list[TableId] = []
        if not leadership.is_looking:
            leadership.scan_due_us = view.now_us + self._settings.scan_interval_ms * 1000
            leadership.begin_look(self.catalog, self.servers.held())
            plan.transitions += [*new_cluster(view, self._cluster_id), *new_servers(view)]
            plan.transitions += [*expired_tables(view), *old_answers(view)]
            leadership.pacer.forget_old(view.now_us)
            altering = [t.table_id for t in self.catalog.tables.values() if t.state is TableState.ALTERING]
        found = scan(view, leadership.next_turn())
        plan.transitions += found.transitions
        plan.actions += found.actions
        leadership.count_strangers(len(found.strangers))
        return altering

    def _ask_policy(self, view: ClusterView, leadership: MasterLeadership) -> None:
        """Ask the policy when it is time, once what it is shown is up to date."""
        if leadership.asked is not None or view.now_us < leadership.policy_due_us:
            return
        leadership.views.refresh(view, self._settings.scan_tablets_max)
        if leadership.views.is_fresh:
            token = next(self._tokens)
            leadership.asked = (token, view.now_us)
            leadership.policy_due_us = view.now_us + self._settings.policy_interval_ms * 1000
            self._effects.append(AskPolicy(token, leadership.views.snapshot(view), self._rng.getrandbits(64)))

    def _send(self, plan: ReconcilePlan, leadership: MasterLeadership) -> None:
        """Send the actions that are due. A dead server gets none: once it is heard again, a scan finds them."""
        now_us, servers = self._time.now_us, self.servers
        wanted = [action for action in plan.actions if servers.liveness(action.node_id, now_us) is not Liveness.DEAD]
        for action in leadership.pacer.take(wanted, now_us, self._settings.actions_per_step_max):
            server = servers.get(action.node_id)
            self._effects.append(Send("" if server is None else server.address, action))
