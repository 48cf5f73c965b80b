"""A master that was removed leads nothing, and answers no question for longer than the question allows."""

from __future__ import annotations

from typing import ClassVar

from stelae.server.master.core.events import ReadAsked
from stelae.sim.masters.invariants.base import MastersInvariant
from stelae.sim.masters.master import SimMaster


class RemovedMasters(MastersInvariant):
    """No master serves as leader by a config that does not list it.

    A read with a bound is answered at once only by a master that was one at some time within the bound. A removed one
    may not know of its removal, but no leader has told it since how far the log goes. A read for which a majority was
    asked is answered only by a master that was one when the question arrived. One that knows of its removal answers no
    read at once."""

    name: ClassVar[str] = "removed_masters"
    source: ClassVar[str] = "issue: a master back from the dead after its removal is refused or harmless; ADR 80"

    def on_stepped(self, master: SimMaster) -> None:
        """Check that a master which serves is one by the config that it knows."""
        config = master.config
        if not master.core.status().serving or config is None or not config.members:
            return
        if config.member(master.node_id) is None:
            self.fail(f"{master.endpoint.name} serves, and its config {config.op_id} does not list it")

    def on_answered(self, master: SimMaster, asked: ReadAsked, within_us: int) -> None:
        """Check that the master was one within the bound of the question, and does not know that it is none."""
        if asked.request.staleness_ms and master.knows_removal:
            self.fail(f"{master.endpoint.name} answers a read that may be {within_us} us old, and knows of its removal")
        configs, now_us = self.world.configs, self.world.scheduler.now_us
        until_us = 0
        for number in reversed(range(len(configs))):
            if configs[number][1].member(master.node_id) is not None:
                until_us = configs[number + 1][0] if number + 1 < len(configs) else now_us
                break
        if until_us < now_us:
            self.world.coverage.hit("read.by_removed_master")
        if now_us - until_us > within_us:
            self.fail(
                f"{master.endpoint.name} answers a read that may be {within_us} us old, and it is no master since "
                f"{now_us - until_us} us"
            )
