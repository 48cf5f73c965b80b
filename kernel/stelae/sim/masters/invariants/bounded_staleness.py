"""A read with bounded staleness shows everything that was acknowledged up to its bound."""

from __future__ import annotations

from bisect import bisect_left
from typing import ClassVar

from stelae.server.master.core.catalog import Catalog
from stelae.server.master.core.events import ReadAsked
from stelae.sim.masters.invariants.base import MastersInvariant
from stelae.sim.masters.master import SimMaster
from stelae.sim.masters.tablet_groups import TabletGroups
from stelae.sim.masters.world import Committed, MastersWorld
from stelae.spi.ids import OpId


class BoundedStaleness(MastersInvariant):
    """A master has applied every entry that was committed before the time that it reports for its catalog.

    Likewise it has applied every entry that was committed before the bound of each read that it answers at once, and
    before the arrival of each read for which it has asked a majority. This is stricter than the promise, because a
    change is committed before it is acknowledged."""

    name: ClassVar[str] = "bounded_staleness"
    source: ClassVar[str] = "issue: follower masters answer reads within a stated staleness"

    def __init__(self, world: MastersWorld, groups: TabletGroups) -> None:
        super().__init__(world, groups)
        self._times_us: list[int] = []
        self._entries: list[OpId] = []

    def on_committed(self, before: Catalog, entry: Committed) -> None:
        """Record when the entry was committed."""
        self._times_us.append(self.world.scheduler.now_us)
        self._entries.append(entry.op_id)

    def on_stepped(self, master: SimMaster) -> None:
        """Check the age that the master reports for its catalog."""
        age_us = master.core.status().age_us
        if age_us is not None:
            self._judge(master, age_us, "reports that its catalog is")

    def on_answered(self, master: SimMaster, asked: ReadAsked, within_us: int) -> None:
        """Check that the answer is as fresh as requested."""
        if not asked.request.staleness_ms:
            self.world.coverage.hit("read.confirmed")
        else:
            self.world.coverage.hit("read.by_leader" if master.core.status().serving else "read.by_follower")
        self._judge(master, within_us, "answers from a catalog that may be")

    def _judge(self, master: SimMaster, age_us: int, does: str) -> None:
        now_us, applied = self.world.scheduler.now_us, master.core.catalog.applied
        settled = bisect_left(self._times_us, now_us - age_us)
        if settled and applied < self._entries[settled - 1]:
            entry, since_us = self._entries[settled - 1], now_us - self._times_us[settled - 1]
            self.fail(
                f"{master.endpoint.name} {does} {age_us} us old, with {applied} applied: "
                f"{entry} was committed {since_us} us ago"
            )
