"""The core of a simulated master: production's core with an observer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from stelae.protocol.master_heartbeats import Heartbeat
from stelae.server.master.core.catalog import Catalog
from stelae.server.master.core.events import Decided, EntryApplied, Event, HeartbeatReceived, ReadAsked, Reply
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

    def core_answered(self, question: ReadAsked) -> None:
        """A read was answered at once, without asking a majority."""


class ObservedCore(MasterCore):
    """A core with an observer.

    Entries that were applied while the catalog was loaded arrive in the first step. Between two of these entries the
    catalog may contain rows of a later one. No caller can see it then, so the observer gets all of them together."""

    def __init__(self, observer: CoreObserver, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._observer = observer
        self._is_first = True

    def step(self, events: Sequence[Event]) -> None:
        """Step as the core does, and call the observer."""
        super().step(events)
        if self._is_first:
            self._is_first = False
            self._observer.core_applied(Catalog.empty(), None)
        self._observer.core_stepped()
        answered = {effect.token for effect in self._effects if isinstance(effect, Reply)}
        for event in events:
            if isinstance(event, ReadAsked) and event.token in answered:
                self._observer.core_answered(event)

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
