"""Servers and clients follow the newest committed config of the masters that they received, and never an older one."""

from __future__ import annotations

from typing import ClassVar

from stelae.sim.masters.invariants.base import MastersInvariant
from stelae.sim.masters.master import SimMaster
from stelae.sim.masters.tserver import SimServer
from stelae.spi.members import TabletConfig

FIRST_CONFIGS = 2
"""The configs before any change: the one of the files, and the one of the first entry."""


class NewestMasters(MastersInvariant):
    """A server or client follows the newest config of the masters that it received, and that config is committed.

    At the end every server follows the newest one, if any master was ever added or removed."""

    name: ClassVar[str] = "newest_masters"
    source: ClassVar[str] = "ADR 80: the newest committed config of the system tablet is the list of masters"

    def on_told(self, name: str, told: TabletConfig, before: TabletConfig | None, after: TabletConfig) -> None:
        """Check the config that a server or a client follows from now on."""
        newest = told if before is None or told.op_id > before.op_id else before
        if before is None or after.op_id > before.op_id:
            self.world.coverage.hit(f"masters.followed_by_{'client' if name.startswith('c') else 'server'}")
        elif told.op_id < before.op_id:
            self.world.coverage.hit("masters.told_an_older_list")
        if after.op_id < newest.op_id:
            self.fail(f"{name} follows config {after.op_id} of the masters, and knows {newest.op_id}")
        elif after not in (config for _, config in self.world.configs):
            self.fail(f"{name} follows config {after.op_id} of the masters, which is not committed")

    def at_end(self, masters: list[SimMaster], servers: list[SimServer]) -> None:
        """Check that every server has learned all changes."""
        newest = self.world.masters_config
        for server in servers if len(self.world.configs) > FIRST_CONFIGS else ():
            if server.masters_view().config != newest:
                self.fail(f"{server.endpoint.name} does not follow config {newest.op_id} of the masters")
