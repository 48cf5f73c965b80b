"""The times at which damaged replicas of this node were replaced by copies. Pure.

A replica that is damaged again soon after its copy is not replaced: the reason is then most likely the disk or the
memory, and each copy costs its source. A restart of the node forgets the times."""

from __future__ import annotations

from stelae.spi.ids import TabletId

AGAIN_US = 600_000_000
"""How long after a copy another one is refused, in microseconds."""

KEPT_US = 86_400_000_000
"""How long a time is kept, in microseconds: longer than a copy takes."""


class ReplacedDamage:
    """The replacements of one node."""

    def __init__(self) -> None:
        self._replaced_us: dict[TabletId, int] = {}

    def note(self, tablet_id: TabletId, now_us: int) -> None:
        """Note that a damaged replica was set aside. Those of long ago are forgotten."""
        self._replaced_us = {one: at_us for one, at_us in self._replaced_us.items() if now_us - at_us < KEPT_US}
        self._replaced_us[tablet_id] = now_us

    def renew(self, tablet_id: TabletId, now_us: int) -> None:
        """Note that a copy is complete. The time counts from here if the copy has replaced a damaged replica."""
        if tablet_id in self._replaced_us:
            self._replaced_us[tablet_id] = now_us

    def lately(self, tablet_id: TabletId, now_us: int) -> bool:
        """Return whether the replica is a copy that has replaced a damaged one less than ``AGAIN_US`` ago."""
        at_us = self._replaced_us.get(tablet_id)
        return at_us is not None and now_us - at_us < AGAIN_US
