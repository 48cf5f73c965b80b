"""Drives a master's core on a node: connects it to the system tablet, to clients and to tablet servers.

The system tablet is a replica like any other. What it applies reaches the core entry by entry, on leaders and
followers alike; what the core replicates is a write of one operation. The docstring of
``stelae.server.master.core.master_core`` lists what the core promises, and what this driver promises to it.

Events are collected during a turn of the loop, and the core is stepped once at its end with all of them. Without an
event the core is stepped at its own deadline, and never else."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from functools import partial
from typing import Protocol, assert_never

from stelae.host.hybrid_clock import physical_us
from stelae.host.ports import Timer
from stelae.lifecycle.tablet_loader import TabletLoader
from stelae.protocol.actions import ACTION, ChangeConfig, ServerAction, encode_action
from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.rows.limits import LimitSettings
from stelae.server.limits import limits_of
from stelae.server.master.core.catalog import Catalog
from stelae.server.master.core.events import (
    AskPolicy,
    AskReadIndex,
    CaughtUp,
    CompareMasters,
    Confirm,
    Confirmed,
    Effect,
    EntryApplied,
    Event,
    MasterLeaderChanged,
    MastersChanged,
    MastersCompared,
    MasterTick,
    Planned,
    Refuse,
    Replicate,
    Reply,
    Send,
)
from stelae.server.master.core.master_core import MasterCore
from stelae.server.master.core.proposals import Planner, PolicyProposal, propose
from stelae.server.master.driver.batch_proposals import BatchProposals
from stelae.server.master.driver.catalog_loading import CatalogLoad
from stelae.server.master.driver.change_masters import MasterChanges
from stelae.server.master.driver.first_start import FirstStart
from stelae.server.master.driver.leader_read_index import LeaderReadIndex, confirm_leadership
from stelae.server.master.driver.masters_watch import MastersWatch
from stelae.server.master.driver.ports import CreateTablet, MasterNode, PendingCall, SystemReplica, leader_known_to
from stelae.server.master.driver.requests import OpenRequests
from stelae.server.master.driver.server_links import ServerLinks
from stelae.server.master.settings import MasterSettings
from stelae.spi.errors import ClockError, ConfigError, StelaeError
from stelae.spi.ids import ClientId, ClusterId, NodeId
from stelae.spi.log import Entry
from stelae.spi.services import Metrics

log = logging.getLogger(__name__)

START_RETRY_US = 50_000
"""How often a master looks for its system tablet while it starts. After the start it steps on events and deadlines."""

ACTION_MS = 30_000
"""Deadline of an action; the core asks again long before if no report shows its effect."""


class CoreFactory(Protocol):
    """Makes a core, as ``MasterCore`` does."""

    def __call__(
        self,
        node_id: NodeId,
        cluster_id: ClusterId,
        settings: MasterSettings,
        rng: random.Random,
        catalog: Catalog,
        now: MasterTick,
        limits: LimitSettings,
    ) -> MasterCore: ...


class Master:
    """One master. A ``Service`` (``stelae.spi.hooks``) of a node whose configured tablet is the system tablet.

    Args:
        loader, create_tablet: bring up and create the system tablet.
        rng: for ids and seeds; its draws cannot be foreseen in production.
        make_core: makes the core once the catalog is loaded.
    """

    def __init__(
        self,
        node: MasterNode,
        *,
        loader: TabletLoader,
        create_tablet: CreateTablet,
        rng: random.Random,
        make_core: CoreFactory = MasterCore,
    ) -> None:
        tablet = node.config.tablet
        assert tablet is not None, "a master is configured with its system tablet"
        self._node = node
        self._settings: MasterSettings = node.config.extra.get("master") or MasterSettings()
        self._listed = tablet.members
        self._loader = loader
        self._rng = rng
        self._make_core = make_core
        self.core: MasterCore | None = None
        self._replica: SystemReplica | None = None
        self._load: CatalogLoad | None = None
        self._events: list[Event] = []
        self._step_due = False
        self._timer: Timer | None = None
        self._leadership: tuple[int, NodeId | None] = (0, None)  #: Term and leader that the core knows.
        self._links = ServerLinks(node)
        self._watch = MastersWatch(node, tablet.members, self._catalog, self._look)
        is_ready, check_present = (lambda: self.core is not None), self._watch.check_present
        self._requests = OpenRequests(node, is_ready, check_present, self._take, self._links)
        self._read_index = LeaderReadIndex(node, lambda: self._replica, self._take)
        self._proposals = self._new_proposals()
        self._first_start = FirstStart(node, tablet, loader, create_tablet, self._catalog)
        self._changes = MasterChanges(node, lambda: self._replica, lambda: self.core, check_present)
        self._masters: MastersChanged | None = None  #: The configs that the core knows.

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Register the handlers; the core begins as soon as the system tablet is up.

        ``ConfigError``: the directory is new, and the list has another uuid at this node's address."""
        self._check_uuid()
        self._requests.serve()
        self._read_index.serve()
        self._first_start.serve()
        self._changes.serve()
        self._watch.start()
        self._find_replica()

    def _check_uuid(self) -> None:
        """Refuse a new directory whose uuid differs from the uuid listed for its address."""
        node, listed = self._node, {member.node_id: member.address for member in self._listed}
        own = {node.config.node.listen, node.config.node.advertise}
        uuid = next((uuid for uuid, address in listed.items() if address in own), None)
        if SYSTEM_TABLET in self._loader.delayed and uuid is not None and node.node_id not in listed:
            raise ConfigError(
                f"this node is {node.node_id}, and [masters] lists {uuid} at its address",
                hint="Of a new cluster: correct the list, or format a new directory with: "
                f"stelae fs format --config FILE --uuid {uuid}. In place of a lost master: run stelae master copy, or "
                "take its entry out of [masters]; then start this node, and run: stelae master replace",
            )

    @property
    def knows_removal(self) -> bool:
        """Whether it knows a config of the masters that does not list it."""
        return self._watch.removed

    def stop(self) -> None:
        """Decide nothing more."""
        self._first_start.stop()
        self._watch.stop()
        self._end()

    def _end(self) -> None:
        """Detach from the replica, so that another replica can be attached."""
        if self._timer is not None:
            self._timer.cancel()
        if self._replica is not None:
            self._replica.applier.on_group = None
            self._replica.on_status = None
        if self._load is not None:
            self._load.stop()
        self.core = self._replica = self._load = self._masters = None
        self._leadership = (0, None)
        self._events = []
        self._proposals.stop()

    def _new_proposals(self) -> BatchProposals:
        client_id = ClientId(f"master-{self._rng.getrandbits(64):016x}")
        return BatchProposals(self._node.turns, client_id, self._take)

    def _catalog(self) -> Catalog | None:
        return None if self.core is None else self.core.catalog

    def _look(self) -> None:
        """Run the periodic checks."""
        self._links.close_silent()
        self._look_at_replica()

    def _look_at_replica(self) -> None:
        """Begin anew if a copy has taken the place of the replica: its catalog is another one.

        Otherwise notice if the replica has failed, which changes no status."""
        if self._replica is not None and self._node.replicas.get(SYSTEM_TABLET) is not self._replica:
            log.info("the replica of the system tablet was replaced, the catalog is loaded anew")
            self._end()
            self._proposals = self._new_proposals()
            self._find_replica()
        else:
            self._status_changed()

    def _find_replica(self) -> None:
        """Load the catalog as soon as the system tablet is up; create the tablet at the first start."""
        if (replica := self._node.replicas.get(SYSTEM_TABLET)) is not None:
            self._begin_load(replica)
            return
        self._first_start.create_when_agreed()
        turns = self._node.turns
        self._timer = turns.call_at(turns.now_us() + START_RETRY_US, self._find_replica)

    def _begin_load(self, replica: SystemReplica) -> None:
        self._replica = replica
        self._loader.delayed.pop(SYSTEM_TABLET, None)
        self._load = CatalogLoad(replica, self._node.scans, self._node.turns, partial(self._loaded, replica))
        replica.applier.on_group = self._applied
        replica.on_status = self._status_changed
        if replica.applier.timestamp:
            self._note_time(replica.applier.timestamp)
        self._load.start()

    def _loaded(self, replica: SystemReplica, catalog: Catalog, applied_meanwhile: Sequence[Entry]) -> None:
        if self._replica is not replica:
            return  # A copy has replaced it meanwhile, or this master has stopped.
        node = self._node
        rng = random.Random(self._rng.getrandbits(64))
        limits = limits_of(node.config)
        now = self._now()
        self.core = self._make_core(node.node_id, node.config.cluster_id, self._settings, rng, catalog, now, limits)
        log.info("master begins tables=%d applied=%s", len(catalog.tables), catalog.applied)
        self._take_entries(applied_meanwhile)
        self._schedule_step()

    # -- events ----------------------------------------------------------------------------------

    def _take(self, event: Event) -> None:
        self._events.append(event)
        self._schedule_step()

    def _applied(self, entries: Sequence[Entry]) -> None:
        if self.core is not None:
            self._take_entries(entries)
        elif self._load is not None:
            self._load.applied(entries)

    def _take_entries(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            batch, decided = self._proposals.applied(entry)
            self._take(EntryApplied(entry.op_id, batch))
            for event in decided:
                self._take(event)
        if entries and self.core is not None and self.core.status().age_us is None:
            self._note_time(entries[-1].timestamp)

    def _note_time(self, timestamp: int) -> None:
        """Note that the catalog has everything that was acknowledged before its last entry was stamped.

        The leader's hybrid clock may have been ahead of its wall clock then. In that case, later entries have the same
        physical time, and may be missing here."""
        self._take(CaughtUp(physical_us(timestamp) - self._node.config.clock.ahead_us_max))

    def _status_changed(self) -> None:
        """Step if the term, the leader or the committed config of the system tablet has changed."""
        if self._replica is None:
            return
        if _masters_of(self._replica) != self._masters or _leadership_of(self._replica) != self._leadership:
            self._schedule_step()

    # -- the step --------------------------------------------------------------------------------

    def _schedule_step(self) -> None:
        if not self._step_due and self.core is not None:
            self._step_due = True
            self._node.turns.defer(self._step)

    def _step(self) -> None:
        self._step_due = False
        core, replica = self.core, self._replica
        if core is None or replica is None:
            return
        leadership = _leadership_of(replica)
        changed: list[Event] = [MasterLeaderChanged(*leadership)] if leadership != self._leadership else []
        self._leadership = leadership
        if (masters := _masters_of(replica)) != self._masters:
            self._masters = masters
            changed.append(masters)
        events, self._events = self._events, []
        now = self._now()
        try:
            core.step([now, *changed, *events])
            for effect in core.take_effects():
                self._carry_out(effect, replica)
        except Exception as error:
            # Half a step leaves a catalog that nothing may be concluded from. Another master has a whole one.
            log.exception("the step of a master raised")
            self._end()
            replica.fail(f"the master's step raised {type(error).__name__}: {error}; restart this master")
            return
        self._set_gauges(core, now)
        self._sleep(core)  # A core that is behind has a deadline that has passed: the loop's other work comes first.

    def _sleep(self, core: MasterCore) -> None:
        """Set the timer for the core's next deadline. An event before it steps the core earlier."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = core.next_deadline()
        if deadline is not None:
            self._timer = self._node.turns.call_at(deadline, self._schedule_step)

    def _now(self) -> MasterTick:
        time = self._node.time
        try:
            stamp = time.now()
        except ClockError:
            stamp = time.last
        return MasterTick(self._node.turns.now_us(), physical_us(stamp))

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

    # -- effects ---------------------------------------------------------------------------------

    def _carry_out(self, effect: Effect, replica: SystemReplica) -> None:
        match effect:
            case Replicate():
                self._proposals.add(effect, replica)
            case Reply() | Refuse():
                self._requests.answer(effect)
            case Confirm():
                confirm_leadership(
                    replica, lambda result: self._take(Confirmed(effect.token, not isinstance(result, StelaeError)))
                )
            case AskReadIndex():
                self._read_index.ask(effect, replica)
            case CompareMasters():
                self._first_start.compare(lambda obstacle: self._take(MastersCompared(obstacle)))
            case Send():
                self._send(effect)
            case AskPolicy():
                self._ask_policy(effect)
            case _:
                assert_never(effect)

    def _planner(self) -> Planner:
        policy = self._node.config.policy
        assert policy is not None, "a master is configured with a policy"
        return lambda snapshot, rng: policy.engine.plan(snapshot, policy.config, rng)

    def _ask_policy(self, effect: AskPolicy) -> None:
        """Have the policy plan on a thread: of a large cluster it takes seconds, and heartbeats go on meanwhile."""
        planner = self._planner()

        def plan() -> PolicyProposal:
            return propose(effect.snapshot, planner, random.Random(effect.seed))

        def planned(result: PolicyProposal | Exception) -> None:
            if isinstance(result, Exception):
                log.error("the policy failed: %r; nothing is planned", result, exc_info=result)
                result = PolicyProposal()
            self._take(Planned(effect.token, result))

        self._node.scans.run("master/policy", plan, planned)

    def _send(self, effect: Send) -> None:
        """Ask a tablet server to act. Its reports show whether it did."""
        action, node = effect.action, self._node
        try:
            if effect.address and action.node_id != node.node_id:
                self._links.use(action.node_id, effect.address)
            call = node.messenger.call(action.node_id, ACTION, [encode_action(action)], deadline_ms=ACTION_MS)
        except StelaeError as error:  # Nothing was sent, so it is as if the server had refused.
            _count_refusal(action, error, node.metrics)
            return
        node.metrics.count("master_actions_sent")
        if isinstance(action, ChangeConfig):
            what = (action.tablet_id, action.change, action.member, action.member_type, action.cas)
            log.info("change of members asked for tablet=%s change=%s member=%s type=%s config=%s", *what)
        call.add_done_callback(lambda answer: _note_refusal(action, answer, node.metrics))


def _leadership_of(replica: SystemReplica) -> tuple[int, NodeId | None]:
    """The term of the system tablet, and its leader as far as this replica knows."""
    return replica.status.term, leader_known_to(replica)


def _masters_of(replica: SystemReplica) -> MastersChanged:
    """The masters as this replica knows them."""
    return MastersChanged(replica.status.committed_config, replica.status.config.op_id)


def _note_refusal(action: ServerAction, answer: PendingCall, metrics: Metrics) -> None:
    if not answer.cancelled() and (error := answer.exception()) is not None:
        _count_refusal(action, error, metrics)


def _count_refusal(action: ServerAction, error: BaseException, metrics: Metrics) -> None:
    metrics.count("master_actions_refused")
    what = (type(action).__name__, action.tablet_id, action.node_id)
    log.info("action not taken action=%s tablet=%s server=%s: %s", *what, error)
