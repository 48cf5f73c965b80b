"""Virtual time: one queue of events, which run in order of time.

Events of the same time run in the order in which they were scheduled, never by identity or hash, so
a run is a function of its seed. Every event that runs is hashed into ``digest``, and so is every
``note``. Two runs that differ have different digests."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable
from typing import TypeAlias

_Action: TypeAlias = Callable[[], None]


class ScheduledEvent:
    """One scheduled event. ``cancel`` prevents it from running."""

    __slots__ = ("action", "at_us", "label")

    def __init__(self, at_us: int, label: str, action: _Action) -> None:
        self.at_us = at_us
        self.label = label
        self.action: _Action | None = action

    def cancel(self) -> None:
        """Cancel the event. Cancelling it twice, or after it ran, is harmless."""
        self.action = None


class Scheduler:
    """The only clock and the only queue of a simulation.

    Attributes:
        now_us: virtual microseconds since the start of the run.
        events: number of events that have run.
    """

    __slots__ = ("_digest", "_queue", "_sequence", "events", "now_us")

    def __init__(self) -> None:
        self.now_us = 0
        self.events = 0
        self._queue: list[tuple[int, int, ScheduledEvent]] = []
        self._sequence = 0
        self._digest = hashlib.blake2b(digest_size=16)

    def at(self, at_us: int, label: str, action: _Action) -> ScheduledEvent:
        """Run ``action`` at ``at_us``. If that is past, run it after the events that are already due."""
        timer = ScheduledEvent(max(at_us, self.now_us), label, action)
        heapq.heappush(self._queue, (timer.at_us, self._sequence, timer))
        self._sequence += 1
        return timer

    def after(self, delay_us: int, label: str, action: _Action) -> ScheduledEvent:
        """Run ``action`` ``delay_us`` from now; see :meth:`at`."""
        return self.at(self.now_us + delay_us, label, action)

    def note(self, text: str) -> None:
        """Hash a fact from inside an event into the digest."""
        self._digest.update(text.encode())

    def digest(self) -> str:
        """Return the hex digest of all events and notes so far."""
        return self._digest.hexdigest()

    def run_one(self) -> bool:
        """Run the next event; return false when there is none."""
        while self._queue:
            at_us, _, timer = heapq.heappop(self._queue)
            action = timer.action
            if action is None:
                continue
            timer.action = None
            self.now_us = at_us
            self.events += 1
            self._digest.update(f"{at_us} {timer.label}\n".encode())
            action()
            return True
        return False
