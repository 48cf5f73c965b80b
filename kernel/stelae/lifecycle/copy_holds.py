"""Which copies to a node operators have paused, or have cancelled and keep from beginning again. Pure.

A *pause* is of one tablet or of the whole node. It ends by itself, because a source keeps the log that follows a paused
copy without a bound (``durability.md`` rule 25). A *bar* is of one tablet: its copy was cancelled, and leaders, who ask
again and again, are refused for a while. Neither is durable: after a restart of the node every copy goes on.

Times are monotonic microseconds."""

from __future__ import annotations

from collections.abc import Mapping

from stelae.spi.ids import TabletId


class CopyHolds:
    """The pauses and the bars of one node. Those that are over count no more, whether they were removed or not."""

    def __init__(self) -> None:
        self._all_until_us = 0
        self._paused: dict[TabletId, int] = {}
        self._barred: dict[TabletId, int] = {}

    def pause(self, tablet_id: TabletId | None, until_us: int, now_us: int) -> None:
        """Pause the copies of a tablet, or with ``None`` all copies to the node. It replaces an earlier pause."""
        self._forget_old(now_us)
        if tablet_id is None:
            self._all_until_us = until_us
        else:
            self._paused[tablet_id] = until_us

    def bar(self, tablet_id: TabletId, until_us: int, now_us: int) -> None:
        """Keep the copy of a tablet from beginning. A pause of it ends."""
        self._forget_old(now_us)
        self._paused.pop(tablet_id, None)
        self._barred[tablet_id] = until_us

    def resume(self, tablet_id: TabletId | None) -> None:
        """End the pause and the bar of a tablet, or with ``None`` all of them."""
        if tablet_id is None:
            self._all_until_us = 0
            self._paused.clear()
            self._barred.clear()
        else:
            self._paused.pop(tablet_id, None)
            self._barred.pop(tablet_id, None)

    def pauses_all(self, now_us: int) -> bool:
        """Return whether all copies to the node are paused."""
        return now_us < self._all_until_us

    def is_paused(self, tablet_id: TabletId, now_us: int) -> bool:
        """Return whether the copies of a tablet are paused, by its own pause or by that of the node."""
        return self.pauses_all(now_us) or now_us < self._paused.get(tablet_id, 0)

    def is_barred(self, tablet_id: TabletId, now_us: int) -> bool:
        """Return whether the copy of a tablet was cancelled and must not begin again yet."""
        return now_us < self._barred.get(tablet_id, 0)

    def barred(self, now_us: int) -> Mapping[TabletId, int]:
        """Return the tablets whose copies were cancelled, with the time until they may begin again."""
        return {tablet: until_us for tablet, until_us in self._barred.items() if now_us < until_us}

    def held(self, now_us: int) -> list[TabletId]:
        """Return the tablets that have a pause or a bar of their own."""
        self._forget_old(now_us)
        return sorted({*self._paused, *self._barred})

    def next_end_us(self, now_us: int) -> int | None:
        """Return when the next pause ends by itself, or ``None`` if nothing is paused."""
        ends = [end for end in (self._all_until_us, *self._paused.values()) if end > now_us]
        return min(ends, default=None)

    def _forget_old(self, now_us: int) -> None:
        for holds in (self._paused, self._barred):
            for tablet_id in [tablet for tablet, until_us in holds.items() if until_us <= now_us]:
                del holds[tablet_id]
