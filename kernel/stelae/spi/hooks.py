"""Hooks: how a plugin hands its engine classes, services and commands to the kernel.

A plugin is a module (or object) with functions marked ``@hookimpl``::

    from stelae.spi.hooks import hookimpl

    @hookimpl
    def stelae_wal_engines() -> Sequence[type[WalEngine]]:
        return [MyWal]

and an entry point of group ``stelae.plugins`` named ``kind.name`` (``wal.mine``) that points at it.
The kernel imports the module only when ``node.toml`` picks that name.

Ordering and durability
    Registration hooks are called once, when the plugin is loaded, on the thread that starts the node, before any
    directory is opened. They are synchronous, take exactly the arguments given here without defaults, and must not
    touch disk, network or clock. Several plugins may implement one; order means nothing, as engines are chosen by name.
    Observer hooks are called on the event loop once the fact is durable; if one raises, it is logged, others run."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec
import pluggy

from stelae.spi.consensus import ConsensusEngine
from stelae.spi.copy import CopyTransport
from stelae.spi.ids import NodeId, TabletId
from stelae.spi.policy import MasterPolicy
from stelae.spi.store import TabletStore
from stelae.spi.wal import WalEngine

PROJECT = "stelae"  #: Name of the pluggy project; hook names begin with it.
ENTRY_POINT_GROUP = "stelae.plugins"  #: Where distributions announce plugins.
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class TabletStateChanged(msgspec.Struct, frozen=True, kw_only=True):
    """A replica on this node went from one run state or data state to another."""

    tablet_id: TabletId
    before: str
    after: str
    reason: str = ""


class LeaderChanged(msgspec.Struct, frozen=True, kw_only=True):
    """This node learned of another leader of a tablet; ``leader`` is ``None`` while unknown."""

    tablet_id: TabletId
    term: int
    leader: NodeId | None


class Service(Protocol):
    """Something that serves requests of a node while it runs. All calls are on the event loop."""

    def start(self) -> None:
        """Register handlers with the node's messenger. Called once, before the node listens."""

    def stop(self) -> None:
        """Let go of everything. Called once, in reverse order of start; must not raise."""


#: Makes one service; its argument is the node that the kernel is starting.
ServiceFactory: TypeAlias = Callable[[Any], Service]


@hookspec
def stelae_wal_engines() -> Sequence[type[WalEngine]]:  # type: ignore[empty-body]
    """Return the log engines of this plugin. Chosen per node by ``[engines] wal``."""


@hookspec
def stelae_consensus_engines() -> Sequence[type[ConsensusEngine]]:  # type: ignore[empty-body]
    """Return the consensus engines of this plugin. Chosen per table, recorded for ever."""


@hookspec
def stelae_store_engines() -> Sequence[type[TabletStore]]:  # type: ignore[empty-body]
    """Return the tablet stores of this plugin. Chosen per node for new replicas."""


@hookspec
def stelae_copy_transports() -> Sequence[type[CopyTransport]]:  # type: ignore[empty-body]
    """Return the copy transports of this plugin. Chosen per node by ``[engines] copy``."""


@hookspec
def stelae_master_policies() -> Sequence[type[MasterPolicy]]:  # type: ignore[empty-body]
    """Return the master policies of this plugin. Chosen per master by ``[engines] policy``."""


@hookspec
def stelae_services() -> Sequence[ServiceFactory]:  # type: ignore[empty-body]
    """Return factories of the services that a node offers; all of them are started."""


@hookspec
def stelae_tablet_state_changed(event: TabletStateChanged) -> None:
    """Take note that a replica changed state. An observer: it cannot object."""


@hookspec
def stelae_leader_changed(event: LeaderChanged) -> None:
    """Take note of a new leader. An observer: it cannot object."""


@hookspec
def stelae_cli(app: Any) -> None:
    """Add commands to the ``stelae`` command line. ``app`` is the root ``typer.Typer``."""
