"""The messages about the masters themselves: which they are, and changes of them.

The committed config of the system tablet is the list of masters (ADR 80). The constants are message kinds."""

from __future__ import annotations

from datetime import UTC, datetime

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
    #: When the cluster of ``config`` was put on record. 0: it was not yet, or the node cannot say. Op ids of two
    #: clusters do not compare, also if both have one id.
    cluster_created_us: int = 0
    #: The node is a master that waits to join: no catalog of its own says of which cluster it is, and the masters that
    #: its file lists may be those of another one.
    hearsay: bool = False

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


def creation_text(cluster_created_us: int) -> str:
    """Return in words when a cluster was put on record."""
    try:
        return f"{datetime.fromtimestamp(cluster_created_us / 1_000_000, UTC):%Y-%m-%d %H:%M:%S.%f} UTC"
    except (ValueError, OverflowError, OSError):  # No clock says so, and a request may.
        return f"{cluster_created_us} us"
