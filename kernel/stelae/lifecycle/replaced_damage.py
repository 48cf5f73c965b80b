"""When damaged replicas of this node were replaced by copies: one that is damaged again soon is not. Pure.

The reason is then most likely the disk, or the memory, and each copy costs its source. A restart forgets it."""

from __future__ import annotations

from stelae.spi.ids import TabletId

AGAIN_US = 600_000_000
"""How long after a replacement another one is refused, in microseconds."""


class ReplacedDamage:
    """The replacements of one node."""

    def __init__(self) -> None:
        self._replaced_us: dict[TabletId, int] = {}

    def note(self, tablet_id: TabletId, now_us: int) -> None:
        """Note that a damaged replica was set aside. Those of long ago are forgotten."""
        self._replaced_us = {one: at_us for one, at_us in self._replaced_us.items() if now_us - at_us < AGAIN_US}
        self._replaced_us[tablet_id] = now_us

    def lately(self, tablet_id: TabletId, now_us: int) -> bool:
        """Return whether a damaged replica of the tablet was set aside less than ``AGAIN_US`` ago."""
        at_us = self._replaced_us.get(tablet_id)
        return at_us is not None and now_us - at_us < AGAIN_US
