"""The tap on a consensus engine: forwards every call to the engine and reports its effects to the fact feed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from stelae.sim.fact_feed import FactFeed
from stelae.sim.stale_probe import StaleProbe
from stelae.sim.world import Needs, ObservedNode
from stelae.spi.consensus import ConsensusCore, ConsensusEngine, HardState, LogView, Ready, Status
from stelae.spi.consensus_events import AbortChange, ChangeMembers, Event, PersistFailed, ReadRequest
from stelae.spi.members import TabletConfig

MESSAGES_REMEMBERED_MAX = 4_096
"""Number of messages whose needs are kept: more than can wait for a disk at any time."""

VALIDATE_EVERY = 16
"""Turns between two validations of the core's state. A check in every turn would double the time of a run."""


class _MessageNeeds:
    """What must be durable before the messages of one core are sent."""

    def __init__(self, node: ObservedNode, facts: FactFeed) -> None:
        self._node = node
        self._facts = facts
        self._known: OrderedDict[int, tuple[msgspec.Struct, Needs]] = OrderedDict()

    def note(self, message: msgspec.Struct, needs: Needs) -> None:
        """Record what a message depends on that the core has returned."""
        self._known[id(message)] = (message, needs)
        if len(self._known) > MESSAGES_REMEMBERED_MAX:
            self._known.popitem(last=False)

    def of(self, message: msgspec.Struct) -> Needs:
        """Return what ``message`` depends on. A message that the core has not returned could depend on anything."""
        known = self._known.get(id(message))
        if known is None:
            what = f"node {self._node.position} sends {type(message).__name__}"
            self._facts.report("persist_before_send", f"{what}, which its core has not returned")
        return Needs(HardState()) if known is None else known[1]


class CoreTap(ConsensusCore):
    """One core with a tap. Behaves exactly like ``inner``."""

    def __init__(self, inner: ConsensusCore, node: ObservedNode, facts: FactFeed) -> None:
        self._inner = inner
        self._node = node
        self._facts = facts
        self._turns = 0
        self._stale = StaleProbe()
        self._changes: set[int] = set()
        self._needs = _MessageNeeds(node, facts)

    def needs_of(self, message: msgspec.Struct) -> Needs:
        """Return what must be durable before ``message``, a message of this core, may be sent."""
        return self._needs.of(message)

    def step(self, events: Sequence[Event]) -> None:
        """Forward events. A failed append truncates the view of the log at once."""
        for event in events:
            self._facts.coverage.hit(f"event.{type(event).__name__}")
            if isinstance(event, PersistFailed):
                self._node.truncate_log(event.durable_index + 1)
            elif isinstance(event, ReadRequest):
                self._facts.read(self._node, event.token)
            elif isinstance(event, ChangeMembers | AbortChange):
                self._changes.add(event.token)
        self._stale.remember(events)
        self._facts.stepped(self._node, events)
        self._inner.step(events)

    @property
    def refused(self) -> Mapping[str, int]:
        """As ``inner``."""
        return self._inner.refused

    def can_wait(self, event: Event) -> bool:
        """As ``inner``."""
        waits = self._inner.can_wait(event)
        if waits:
            self._facts.coverage.hit(f"held.{type(event).__name__}")
        return waits

    def take_ready(self) -> Ready | None:
        """Report effects, then return them."""
        ready = self._inner.take_ready()
        if ready is not None:
            self._remember(ready)
            self._count_refusals(ready)
            self._facts.ready(self._node, ready)
        status = self._inner.status()
        self._facts.status(self._node, status)
        if ready is None:
            for delivery in self._stale.deliver_to_copy(self._inner, status):
                self._facts.stale(self._node, delivery)
        self._turns += 1
        if self._turns % VALIDATE_EVERY == 0:
            self._inner.validate_state()
        return ready

    def next_deadline(self) -> int | None:
        """As ``inner``."""
        return self._inner.next_deadline()

    def status(self) -> Status:
        """As ``inner``."""
        return self._inner.status()

    def validate_state(self) -> None:
        """As ``inner``."""
        self._inner.validate_state()

    def _remember(self, ready: Ready) -> None:
        """Record what the messages of a Ready depend on. The view must not have applied the Ready yet."""
        free = Needs(self._node.hard_state)
        for outbound in ready.at_once:
            self._needs.note(outbound.message, free)
        for wanted in ready.ranges:
            self._needs.note(wanted.message, free)
        if ready.after_persist:
            hard_state = ready.hard_state or self._node.hard_state
            bound = Needs(hard_state, self._node.last_after(ready))
            for outbound in ready.after_persist:
                self._needs.note(outbound.message, bound)

    def _count_refusals(self, ready: Ready) -> None:
        """Count why changes of config, and aborts of them, were rejected."""
        for rejection in ready.rejections:
            if rejection.token in self._changes:
                self._facts.coverage.hit(f"change.{rejection.reason}")


class VoterTap(ConsensusCore):
    """The core of a replica without a log, with a tap. It records what its messages depend on."""

    def __init__(self, inner: ConsensusCore, node: ObservedNode, facts: FactFeed, hard_state: HardState) -> None:
        self._inner = inner
        self._node = node
        self._facts = facts
        self._hard_state = hard_state
        self._needs = _MessageNeeds(node, facts)

    def needs_of(self, message: msgspec.Struct) -> Needs:
        """Return what must be durable before ``message``, a message of this core, may be sent."""
        return self._needs.of(message)

    def step(self, events: Sequence[Event]) -> None:
        """Report events, then forward them."""
        self._facts.stepped(self._node, events)
        self._inner.step(events)

    def take_ready(self) -> Ready | None:
        """As ``inner``."""
        ready = self._inner.take_ready()
        if ready is not None:
            self._hard_state = ready.hard_state or self._hard_state
            for outbound in (*ready.at_once, *ready.after_persist):
                self._needs.note(outbound.message, Needs(self._hard_state))
        return ready

    def next_deadline(self) -> int | None:
        """As ``inner``."""
        return self._inner.next_deadline()

    def status(self) -> Status:
        """As ``inner``."""
        return self._inner.status()

    def validate_state(self) -> None:
        """As ``inner``."""
        self._inner.validate_state()


def tapped_engine(
    engine: type[ConsensusEngine], node: ObservedNode, facts: FactFeed
) -> tuple[type[ConsensusEngine], list[CoreTap | VoterTap]]:
    """Return an engine that makes tapped cores, and the list that will hold them."""
    cores: list[CoreTap | VoterTap] = []

    class TappedEngine(engine):  # type: ignore[misc, valid-type]
        """The engine under test. Only ``restore`` differs."""

        name: ClassVar[str] = engine.name

        @classmethod
        def restore(cls, *, log: LogView, commit: int, **restored: Any) -> ConsensusCore:
            """Restore a core as the engine does, and put a tap on it."""
            config: TabletConfig = restored["committed_config"]
            facts.restarted(node, restored["hard_state"], log, commit, config)
            core = super().restore(log=log, commit=commit, **restored)
            tap = CoreTap(core, node, facts)
            cores.append(tap)
            return tap

        @classmethod
        def restore_voter(cls, *, hard_state: HardState, **restored: Any) -> ConsensusCore:
            """Restore the core of a tombstone as the engine does, and put a tap on it."""
            facts.voter_restored(node, hard_state)
            voter = super().restore_voter(hard_state=hard_state, **restored)
            tap = VoterTap(voter, node, facts, hard_state)
            cores.append(tap)
            return tap

    return TappedEngine, cores
