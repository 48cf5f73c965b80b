"""The core of a simulated master: production's core with an observer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from stelae.protocol.master_heartbeats import Heartbeat
from stelae.server.master.core.catalog import Catalog
from stelae.server.master.core.events import Decided, EntryApplied, Event, HeartbeatReceived, ReadAsked, Refuse, Reply
from stelae.server.master.core.master_core import MasterCore


class CoreObserver(Protocol):
    """Observes the steps of a core. In each step the methods are called in this order."""

    def core_applied(self, before: Catalog, event: EntryApplied | None) -> None:
        """An entry was applied; ``None`` for all entries of the first step."""

    def core_received(self, heartbeat: Heartbeat) -> None:
        """A heartbeat was processed, or ignored as overtaken."""

    def core_decided(self, event: Decided) -> None:
        """The outcome of a batch was processed."""

    def core_stepped(self) -> None:
        """The step is over; its effects are not carried out yet."""

    def core_answered(self, question: ReadAsked, within_us: int) -> None:
        """A read was answered. The answer must have everything that was committed ``within_us`` ago.

        That is the bound of a read which was answered at once, without asking a majority. For another one it is the
        time since the question arrived."""


class ObservedCore(MasterCore):
    """A core with an observer.

    Entries that were applied while the catalog was loaded arrive in the first step. Between two of these entries the
    catalog may contain rows of a later one. No caller can see it then, so the observer gets all of them together."""

    def __init__(self, observer: CoreObserver, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._observer = observer
        self._is_first = True
        self._asked: dict[int, tuple[ReadAsked, int]] = {}

    def step(self, events: Sequence[Event]) -> None:
        """Step as the core does, and call the observer."""
        super().step(events)
        if self._is_first:
            self._is_first = False
            self._observer.core_applied(Catalog.empty(), None)
        self._observer.core_stepped()
        self._report_answers(events)

    def _report_answers(self, events: Sequence[Event]) -> None:
        """Report the reads that this step has answered, in the order of the answers."""
        now_us, arrived = self._time.now_us, {event.token: event for event in events if isinstance(event, ReadAsked)}
        self._asked |= {token: (event, now_us) for token, event in arrived.items()}
        for effect in self._effects:
            if not isinstance(effect, Reply | Refuse) or effect.token not in self._asked:
                continue
            question, asked_us = self._asked.pop(effect.token)
            at_once = effect.token in arrived
            if isinstance(effect, Reply):
                within_us = question.request.staleness_ms * 1000 if at_once else now_us - asked_us
                self._observer.core_answered(question, within_us)

    def _take(self, event: Event) -> None:
        before = self.catalog
        super()._take(event)
        match event:
            case EntryApplied() if not self._is_first:
                self._observer.core_applied(before, event)
            case HeartbeatReceived():
                self._observer.core_received(event.heartbeat)
            case Decided():
                self._observer.core_decided(event)
            case _:
                pass
