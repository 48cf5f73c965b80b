"""One master of the world: the real core, and a driver that carries out its effects over network and log."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import assert_never

from stelae.protocol.actions import ServerAction
from stelae.protocol.master_heartbeats import Heartbeat, HeartbeatReply
from stelae.server.master.core.batches import CatalogBatch
from stelae.server.master.core.catalog import Catalog
from stelae.server.master.core.events import (
    AskPolicy,
    AskReadIndex,
    CompareMasters,
    Confirm,
    Effect,
    EntryApplied,
    Event,
    HeartbeatHeard,
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
from stelae.server.master.core.proposals import Planner, propose
from stelae.server.master.core.reconcile import ClusterView
from stelae.sim.draw import stream
from stelae.sim.masters.log import SystemLog
from stelae.sim.masters.network import SimAddress
from stelae.sim.masters.steps import ChangeStep, Strike
from stelae.sim.masters.world import CLUSTER, SETTINGS, MastersWorld, master_node
from stelae.sim.scheduler import ScheduledEvent

COMPARE_US = 30_000
"""How long it takes to ask the other masters whom they take for masters."""

PLAN_US = 20_000
"""How long the policy thinks: long enough for the world to move on meanwhile."""

Answered = Callable[[Reply | Refuse], None]
SendAction = Callable[["SimMaster", ServerAction], None]


class SimMaster:
    """A master, through all of its runs.

    Attributes:
        core: of the run under way, or of the last one.
        epoch: rises with each start.
    """

    def __init__(self, world: MastersWorld, log: SystemLog, position: int, seed: int, planner: Planner) -> None:
        self.place = SimAddress(f"m{position}")
        self.position = position
        self.epoch = 0
        self.strike = Strike()
        self.send_action: SendAction = lambda master, action: None
        self.hears_all: Callable[[SimMaster], bool] = lambda master: True
        self.on_applied: Callable[[SimMaster, Catalog, CatalogBatch | None], None] = lambda master, before, batch: None
        self.on_stepped: Callable[[SimMaster], None] = lambda master: None
        self.on_heard: Callable[[SimMaster, Heartbeat], None] = lambda master, heartbeat: None
        self.on_answered: Callable[[SimMaster, ReadAsked], None] = lambda master, asked: None
        self._world = world
        self._log = log
        self._seed = seed
        self._planner = planner
        self._waiting: dict[int, Answered] = {}
        self._next_token = 0
        self._timer: ScheduledEvent | None = None
        self.core = self._new_core(Catalog.empty())

    def start(self) -> None:
        """Begin the first run."""
        self._step()

    def crash(self) -> None:
        """The process ends; what it had applied is on its disk."""
        self.place.stop()
        self._log.crashed(self.position)

    def restart(self) -> None:
        """Start again from the system tablet: cores keep nothing else."""
        if self.place.up:
            return
        self.epoch += 1
        self._waiting = {}
        catalog = self.core.catalog
        self.core = self._new_core(Catalog.load(catalog.records.values(), catalog.applied))
        self.place.up = True
        self._log.restarted(self.position, catalog.applied)
        self._step()

    def hear(self, event: Event) -> None:
        """Take an event of the log."""
        self._step(event)

    def asked(self, make: Callable[[int], Event], answered: Answered) -> None:
        """Take a client's request; ``make`` is given the token of it."""
        token = self._token(answered)
        self._step(make(token))

    def heartbeat(self, heartbeat: Heartbeat, answered: Callable[[HeartbeatReply], None]) -> None:
        """Take a heartbeat."""

        def reply(effect: Reply | Refuse) -> None:
            assert isinstance(effect, Reply) and isinstance(effect.body, HeartbeatReply)
            answered(effect.body)

        self._step(HeartbeatHeard(self._token(reply), heartbeat))

    def view(self) -> ClusterView:
        """What the core plans by now, whether it leads or not."""
        return self.core._view()

    def _new_core(self, catalog: Catalog) -> MasterCore:
        rng = stream(self._seed, f"core/{self.position}/{self.epoch}")
        node = master_node(self.position)
        return MasterCore(node, CLUSTER, SETTINGS, rng, catalog, self._now())

    def _now(self) -> MasterTick:
        return MasterTick(self._world.scheduler.now_us, self._world.wall_us)

    def _token(self, answered: Answered) -> int:
        self._next_token += 1
        self._waiting[self._next_token] = answered
        return self._next_token

    def _sleep(self) -> None:
        """Step again at the core's deadline, if no event comes before."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self.core.next_deadline()
        if deadline is not None and self.place.up:
            delay_us = max(1, deadline - self._world.scheduler.now_us)
            epoch = self.epoch
            self._timer = self._world.scheduler.after(delay_us, f"{self.place.name} deadline", lambda: self._due(epoch))

    def _due(self, epoch: int) -> None:
        if epoch == self.epoch and self.place.up:
            self.place.receive(self._step)

    def _step(self, *events: Event) -> None:
        """Step the core, then carry out what it says, unless this master is struck on the way."""
        if not self.place.up:
            return
        before = self.core.catalog
        self.core.step([self._now(), *events])
        for event in events:
            if isinstance(event, EntryApplied):
                self.on_applied(self, before, event.batch)
                if event.batch is not None and self.core.status().serving:
                    self.strike.passes(ChangeStep.APPLIED)
            elif isinstance(event, HeartbeatHeard):
                self.on_heard(self, event.heartbeat)
        self.on_stepped(self)
        effects = self.core.take_effects()
        answered = {effect.token for effect in effects if isinstance(effect, Reply)}
        for event in events:
            if isinstance(event, ReadAsked) and event.token in answered:
                self.on_answered(self, event)
        self._sleep()
        self._carry_out(effects, self.epoch)

    def _carry_out(self, effects: Sequence[Effect], epoch: int) -> None:
        """Carry out effects in order; who stands still goes on with the rest later, and who crashed never does."""
        for place, effect in enumerate(effects):
            if isinstance(effect, Replicate):
                self.strike.passes(ChangeStep.PLANNED)
            if epoch != self.epoch or not self.place.up:
                return
            if self.place.paused:
                self.place.receive(partial(self._carry_out, effects[place:], epoch))
                return
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Replicate():
                self._log.propose(self.position, effect.token, effect.term, effect.batch)
                self.strike.passes(ChangeStep.REPLICATED)
            case Reply() | Refuse():
                self._waiting.pop(effect.token)(effect)
                if not (isinstance(effect, Reply) and isinstance(effect.body, HeartbeatReply)):
                    self.strike.passes(ChangeStep.ANSWERED)
            case Confirm():
                self._log.confirm(self.position, effect.token, self.core.status().term)
            case AskReadIndex():
                self._log.read_index(self.position, effect.asked, effect.leader)
            case Send():
                self.send_action(self, effect.action)
                self.strike.passes(ChangeStep.ACTED)
            case CompareMasters():
                self._compare(self.epoch)
            case AskPolicy():
                self._ask_policy(effect, self.epoch)
            case _:
                assert_never(effect)

    def _compare(self, epoch: int) -> None:
        def compared() -> None:
            if epoch == self.epoch and self.place.up:
                objection = "" if self.hears_all(self) else "a master does not answer"
                self.place.receive(lambda: self._step(MastersCompared(objection)))

        self._world.scheduler.after(COMPARE_US, f"{self.place.name} compare", compared)

    def _ask_policy(self, effect: AskPolicy, epoch: int) -> None:
        def planned() -> None:
            if epoch == self.epoch and self.place.up:
                proposal = propose(effect.snapshot, self._planner, random.Random(effect.seed))
                self.place.receive(lambda: self._step(Planned(effect.token, proposal)))

        self._world.scheduler.after(PLAN_US, f"{self.place.name} plan", planned)
