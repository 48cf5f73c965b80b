"""What an invariant of the masters is: an object that is shown what happens, and says when it must not."""

from __future__ import annotations

from typing import ClassVar

from stelae.protocol.actions import DeleteReplica, ServerAction
from stelae.protocol.master_heartbeats import Heartbeat
from stelae.protocol.master_messages import TableDescription
from stelae.server.master.core.catalog import Catalog
from stelae.server.master.core.events import ReadAsked
from stelae.sim.masters.client import Asked
from stelae.sim.masters.groups import Groups
from stelae.sim.masters.master import SimMaster
from stelae.sim.masters.tserver import SimServer
from stelae.sim.masters.world import Committed, MastersWorld


class MastersInvariant:
    """Base of all: hooks that do nothing, and ``fail``."""

    name: ClassVar[str]
    source: ClassVar[str]
    """Where the rule is from."""

    def __init__(self, world: MastersWorld, groups: Groups) -> None:
        self.world = world
        self.groups = groups

    def fail(self, detail: str) -> None:
        """Report a violation; the first one ends the run."""
        self.world.report(self.name, detail)

    def on_committed(self, before: Catalog, entry: Committed) -> None:
        """A majority holds one more entry; ``world.truth`` has it already."""

    def on_applied(self, master: SimMaster, before: Catalog) -> None:
        """A master has swapped its snapshot."""

    def on_stepped(self, master: SimMaster) -> None:
        """A master has taken an event, or the time."""

    def on_reported(self, heartbeat: Heartbeat) -> None:
        """A server sends a heartbeat."""

    def on_received(self, master: SimMaster, heartbeat: Heartbeat) -> None:
        """A master has taken a heartbeat, or has found it to be overtaken."""

    def on_answered(self, master: SimMaster, asked: ReadAsked) -> None:
        """A master has answered a question from the catalog that it has, without asking a majority."""

    def on_outcome(self, asked: Asked) -> None:
        """A client has the verdict on its change."""

    def on_description(self, description: TableDescription) -> None:
        """A client has been shown a table."""

    def on_sent(self, master: SimMaster, action: ServerAction) -> None:
        """A master sends an action."""

    def on_deleted(self, server: SimServer, action: DeleteReplica) -> None:
        """A server is about to delete a replica."""

    def at_end(self, masters: list[SimMaster], servers: list[SimServer]) -> None:
        """The run is over, healed and quiet."""
