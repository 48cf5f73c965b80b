"""The copies that leaders have asked for and that wait: for a slot, or for the end of a pause. Pure.

A leader repeats its request, so a copy waits as long as requests for it come. Masters are told, so that they expect the
replica and replace no member that only waits for its turn. Only members without a vote are noted: a voter without a
replica may have lost it, and is not to be waited for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stelae.host.start_copy import StartCopy
from stelae.spi.ids import TabletId
from stelae.spi.members import VOTING

SILENT_US_MAX = 60_000_000
"""How long a copy waits without another request for it, in microseconds. Leaders ask at growing intervals, and for an
empty replica in turn: with the default settings every four seconds."""

WAITING_MAX = 16_384
"""The most copies that are noted. Those beyond are refused like all others, and masters do not see that they wait."""


@dataclass(frozen=True, slots=True)
class WaitingCopy:
    """One copy that waits."""

    asked: StartCopy  #: The last request.
    paused: bool  #: It waits for the end of a pause; otherwise for a slot.
    asked_us: int  #: Monotonic time of the last request.


class WaitingCopies:
    """The copies to one node that wait."""

    def __init__(self) -> None:
        self._waiting: dict[TabletId, WaitingCopy] = {}

    def note(self, asked: StartCopy, now_us: int, *, paused: bool) -> None:
        """Note that the copy for which a leader asks has to wait."""
        if asked.hosted or asked.member_type in VOTING:
            return
        if asked.tablet_id in self._waiting or len(self._waiting) < WAITING_MAX:
            self._waiting[asked.tablet_id] = WaitingCopy(asked, paused, now_us)

    def forget(self, tablet_id: TabletId) -> None:
        """Note that the copy of a tablet does not wait any more."""
        self._waiting.pop(tablet_id, None)

    def now(self, now_us: int) -> Mapping[TabletId, WaitingCopy]:
        """Return the copies that wait. Those that were not asked for again are forgotten."""
        for tablet_id in [t for t, one in self._waiting.items() if now_us - one.asked_us > SILENT_US_MAX]:
            del self._waiting[tablet_id]
        return self._waiting
