"""Tests what a core does with messages of older terms, on a copy of the core.

Few such messages arrive in a run, and rarely at a state at which they could do harm. So the probe keeps the last
messages of each kind. Whenever role, term or leader of a replica has changed, it delivers them once more, one by one,
to a copy of the core. The core itself is not affected, and neither is the run."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence

import msgspec

from stelae.spi.consensus import ConsensusCore, Ready, Status
from stelae.spi.consensus_events import Event, LeaderAlive, PeerAlive, Received, Tick
from stelae.spi.ids import NodeId

Remembered = tuple[Event, Event | None]
"""The newest event of a kind, and the newest event of that kind from an earlier term."""


class StaleDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """The delivery of one message of an older term to a copy of a core.

    Attributes:
        what: kind of the message.
        term: term of the message.
        before, after: status of the copy before and after the delivery.
        deadline_before, deadline_after: time of the next tick that the copy requested.
        effects: effects in the copy's Ready except an answer to the sender; empty if there are none.
    """

    what: str
    term: int
    before: Status
    after: Status
    deadline_before: int | None
    deadline_after: int | None
    effects: str


class StaleProbe:
    """Keeps old messages of one replica, and delivers them to copies of its core."""

    def __init__(self) -> None:
        self._remembered: dict[str, Remembered] = {}
        self._now_us = 0
        self._last_state: tuple[object, ...] = ()

    def remember(self, events: Sequence[Event]) -> None:
        """Keep the events that carry a term."""
        for event in events:
            if isinstance(event, Tick):
                self._now_us = event.now_us
            elif (term := _term_of(event)) is not None:
                self._keep(event, term)

    def _keep(self, event: Event, term: int) -> None:
        kind = _kind_of(event)
        newest, older = self._remembered.get(kind, (event, None))
        known = _term_of(newest) or 0
        if term > known:
            self._remembered[kind] = (event, newest)
        elif term == known:
            self._remembered[kind] = (event, older)
        else:
            self._remembered[kind] = (newest, event)

    def deliver_to_copy(self, core: ConsensusCore, status: Status) -> Iterator[StaleDelivery]:
        """Deliver the kept events of older terms to a copy of ``core``.

        Does nothing if term, role, leader and serving state are those of the last call."""
        state = (status.term, status.role, status.leader, status.serving)
        if state == self._last_state:
            return
        self._last_state = state
        old = [event for pair in self._remembered.values() for event in pair if event is not None]
        old = [event for event in old if _is_stale(event, status.term)]
        if not old:
            return
        core_copy = copy.deepcopy(core)
        core_copy.step([])
        _drain(core_copy)
        for event in old:
            yield self._deliver(core_copy, event)

    def _deliver(self, core_copy: ConsensusCore, event: Event) -> StaleDelivery:
        before, deadline_before = core_copy.status(), core_copy.next_deadline()
        if isinstance(event, LeaderAlive | PeerAlive):
            event = msgspec.structs.replace(event, heard_at_us=self._now_us)
        core_copy.step([event])
        sender = event.sender if isinstance(event, Received) else None
        effects = [text for ready in _drain(core_copy) if (text := _effects(ready, sender, before.term))]
        return StaleDelivery(
            what=_kind_of(event),
            term=_term_of(event) or 0,
            before=before,
            after=core_copy.status(),
            deadline_before=deadline_before,
            deadline_after=core_copy.next_deadline(),
            effects=", ".join(effects),
        )


def _kind_of(event: Event) -> str:
    return type(event.message if isinstance(event, Received) else event).__name__


def _term_of(event: Event) -> int | None:
    """Return the term of an event, or ``None``. The term of an answer to a campaign is that of the campaign."""
    if isinstance(event, LeaderAlive | PeerAlive):
        return event.term
    if not isinstance(event, Received):
        return None
    term: int | None = getattr(event.message, "campaign_term", getattr(event.message, "term", None))
    return term


def _is_stale(event: Event, term: int) -> bool:
    """Return true if an event belongs to a term before ``term`` and names no later term."""
    named_term = getattr(event.message, "term", 0) if isinstance(event, Received) else 0
    return (_term_of(event) or 0) < term and named_term <= term


def _drain(core: ConsensusCore) -> list[Ready]:
    readies = []
    while (ready := core.take_ready()) is not None:
        readies.append(ready)
    return readies


def _effects(ready: Ready, sender: NodeId | None, term: int) -> str:
    """Name the effects of a Ready, except answers to the sender that carry the current term."""
    effects = []
    for name in ready.__struct_fields__:
        value = getattr(ready, name)
        if name == "id" or value is None or value == ():
            continue
        answers = name in ("at_once", "after_persist")
        if not (answers and all(one.to == sender and one.term == term for one in value)):
            effects.append(f"{name} {value}")
    return ", ".join(effects)
