"""The base class of the masters' invariants."""

from __future__ import annotations

from typing import ClassVar

from stelae.protocol.actions import DeleteReplica, ServerAction
from stelae.protocol.master_heartbeats import Heartbeat
from stelae.protocol.master_messages import TableDescription
from stelae.server.master.core.catalog import Catalog
from stelae.server.master.core.events import ReadAsked
from stelae.sim.masters.client import ClientChange
from stelae.sim.masters.master import SimMaster
from stelae.sim.masters.tablet_groups import TabletGroups
from stelae.sim.masters.tserver import SimServer
from stelae.sim.masters.world import Committed, MastersWorld
from stelae.spi.members import TabletConfig


class MastersInvariant:
    """Base class of all invariants of the masters: hooks that do nothing, and ``fail``."""

    name: ClassVar[str]
    source: ClassVar[str]
    """Source of the rule: a section of a paper, or a rule of the design."""

    def __init__(self, world: MastersWorld, groups: TabletGroups) -> None:
        self.world = world
        self.groups = groups

    def fail(self, detail: str) -> None:
        """Report a violation. The first one ends the run."""
        self.world.report(self.name, detail)

    def on_committed(self, before: Catalog, entry: Committed) -> None:
        """One more entry is committed. ``world.committed_catalog`` contains it already."""

    def on_applied(self, master: SimMaster, before: Catalog) -> None:
        """A master has applied an entry and replaced its catalog."""

    def on_stepped(self, master: SimMaster) -> None:
        """A master has processed an event or a tick."""

    def on_reported(self, heartbeat: Heartbeat) -> None:
        """A server sends a heartbeat."""

    def on_received(self, master: SimMaster, heartbeat: Heartbeat) -> None:
        """A master has processed a heartbeat, or has ignored it as overtaken."""

    def on_answered(self, master: SimMaster, asked: ReadAsked, within_us: int) -> None:
        """A master has answered a read. The answer must have everything that was committed ``within_us`` ago."""

    def on_outcome(self, asked: ClientChange) -> None:
        """A client has received the outcome of its change."""

    def on_description(self, description: TableDescription) -> None:
        """A client has received the description of a table."""

    def on_told(self, name: str, told: TabletConfig, before: TabletConfig | None, after: TabletConfig) -> None:
        """A server or a client, given by name, received a config of the masters.

        ``before`` is the config that it followed until then, and ``after`` the one that it follows from now on."""

    def on_sent(self, master: SimMaster, action: ServerAction) -> None:
        """A master sends an action."""

    def on_deleted(self, server: SimServer, action: DeleteReplica) -> None:
        """A server is about to delete a replica."""

    def at_end(self, masters: list[SimMaster], servers: list[SimServer]) -> None:
        """The run is over: all faults are healed and every change has its outcome."""
