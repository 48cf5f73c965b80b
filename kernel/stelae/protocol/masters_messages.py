"""The messages about the masters themselves: which they are, and changes of them.

The committed config of the system tablet is the list of masters (ADR 80). The constants are message kinds."""

from __future__ import annotations

import msgspec

from stelae.spi.ids import NodeId, OpId
from stelae.spi.members import MemberChange, TabletConfig

MASTERS = "masters.list"
CHANGE_MASTERS = "masters.change"


class MastersRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask a master or a tablet server which masters there are."""


class MastersView(msgspec.Struct, frozen=True, kw_only=True):
    """The masters as one node knows them: the answer to a ``MastersRequest``. The view with the newest config wins."""

    node_id: NodeId  #: The node that answers.
    #: The newest committed config of the system tablet that it knows; ``None`` if it has never known one.
    config: TabletConfig | None
    leader: NodeId | None  #: The leading master, as far as it knows.
    removed: bool = False  #: The node is a master that was removed: the config does not list it.

    @property
    def members(self) -> tuple[tuple[NodeId, str], ...]:
        """The masters with their addresses; empty if the node knows none."""
        return () if self.config is None else tuple((m.node_id, m.address) for m in self.config.members)


class ChangeMastersRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask the leading master to add or remove a master. The answer is a ``ChangeMembersReply``.

    It is repeated safely: a change that is made already is ``NO_CHANGE``."""

    change: MemberChange
    #: The op id of the committed config that the change is meant for. ``None``: any.
    committed_config_id: OpId | None = None
