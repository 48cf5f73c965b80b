"""The copies that leaders have asked for and that wait: for a slot of this node or of a source, or for the end of a
pause. Pure.

The node begins them itself, the longest waiting first, as soon as they can begin: leaders repeat their requests at
intervals of seconds, in which the slots would be idle. A copy waits as long as requests for it come.

Heartbeats report new replicas that wait, so that the masters expect them, and replace no member that only waits for its
turn. They report members without a vote only: a voter without a replica may have lost it, and is not to be waited
for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from stelae.host.start_copy import StartCopy
from stelae.spi.ids import TabletId
from stelae.spi.members import VOTING

SILENT_US_MAX = 60_000_000
"""How long a copy waits without another request for it, in microseconds. Leaders ask at growing intervals, and for an
empty replica in turn: with the default settings every four seconds."""

WAITING_MAX = 16_384
"""The most copies that are noted. Those beyond are refused like all others, and begin when their leaders ask again."""


@dataclass(frozen=True, slots=True)
class WaitingCopy:
    """One copy that waits."""

    asked: StartCopy  #: The last request.
    asked_us: int  #: Monotonic time of the last request.
    paused: bool = False  #: It waits for the end of a pause; otherwise for a slot.
    due_us: int = 0  #: Monotonic time before which it does not begin: its sources had no slot.

    @property
    def is_new_replica(self) -> bool:
        """Whether heartbeats report it: a replica that does not exist yet, of a member without a vote."""
        return not self.asked.hosted and self.asked.member_type not in VOTING


class WaitingCopies:
    """The copies to one node that wait, the longest waiting first."""

    def __init__(self) -> None:
        self._waiting: dict[TabletId, WaitingCopy] = {}

    def note(self, waiting: WaitingCopy) -> None:
        """Note that a copy has to wait. It keeps its place if it waits already."""
        tablet_id = waiting.asked.tablet_id
        if tablet_id in self._waiting or len(self._waiting) < WAITING_MAX:
            self._waiting[tablet_id] = waiting

    def forget(self, tablet_id: TabletId) -> None:
        """Note that the copy of a tablet does not wait any more."""
        self._waiting.pop(tablet_id, None)

    def get(self, tablet_id: TabletId) -> WaitingCopy | None:
        """Return the copy of a tablet, if it waits."""
        return self._waiting.get(tablet_id)

    def clear(self) -> None:
        """Forget all copies."""
        self._waiting.clear()

    def new_replicas(self, now_us: int) -> Mapping[TabletId, WaitingCopy]:
        """Return the copies of new replicas that wait. Those that were not asked for again are forgotten."""
        self._forget_silent(now_us)
        return {tablet_id: one for tablet_id, one in self._waiting.items() if one.is_new_replica}

    def due(self, now_us: int) -> Iterator[WaitingCopy]:
        """Yield the copies that may begin now if there is a slot. What waits may change meanwhile."""
        self._forget_silent(now_us)
        for one in list(self._waiting.values()):
            if one.due_us <= now_us:
                yield one

    def next_due_us(self, now_us: int) -> int | None:
        """Return when the next of those copies is due that are not due yet; ``None`` if all are."""
        return min((one.due_us for one in self._waiting.values() if one.due_us > now_us), default=None)

    def _forget_silent(self, now_us: int) -> None:
        for tablet_id in [t for t, one in self._waiting.items() if now_us - one.asked_us > SILENT_US_MAX]:
            del self._waiting[tablet_id]
