"""The hooks through which a plugin registers its engine classes, services and commands.

A plugin is a module (or object) with functions marked ``@hookimpl``::

    from stelae.spi.hooks import hookimpl

    @hookimpl
    def stelae_wal_engines() -> Sequence[type[WalEngine]]:
        return [MyWal]

and an entry point of the group ``stelae.plugins``, named ``kind.name`` (for example ``wal.mine``), that refers to it.
The kernel imports the module only if ``node.toml`` chooses that name: an engine in ``[engines]``, a service in
``[plugins] services``.

A plugin ``service.NAME`` has services, observer hooks, or both. A class ``Config`` in it, a frozen dataclass as engines
have it, describes the section ``[service.NAME]``. Its service finds the settings under that name in
``node.config.extra``.

Ordering and durability
    1. Registration hooks are called once, when the plugin is loaded, on the thread that starts the node, before any
       directory is opened. They are synchronous, take exactly the arguments given here, without defaults, and must not
       use disk, network or clock. Several plugins may implement one hook. Their order has no meaning, because engines
       are chosen by name.
    2. Observer hooks are called on the event loop once the change that they report is durable. If one raises an
       exception, it is logged and the others are called."""

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

PROJECT = "stelae"  #: The name of the pluggy project. Hook names begin with it.
ENTRY_POINT_GROUP = "stelae.plugins"  #: The entry point group of plugins.
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class TabletStateChanged(msgspec.Struct, frozen=True, kw_only=True):
    """The run state or the data state of a replica on this node changed."""

    tablet_id: TabletId
    before: str
    after: str
    reason: str = ""


class LeaderChanged(msgspec.Struct, frozen=True, kw_only=True):
    """The leader of a tablet, as this node knows it, changed."""

    tablet_id: TabletId
    term: int
    leader: NodeId | None  #: ``None`` while no leader is known.


class Service(Protocol):
    """Something that serves requests of a node while it runs. All calls are on the event loop."""

    def start(self) -> None:
        """Register handlers with the node's messenger. Called once, before the node listens."""

    def stop(self) -> None:
        """Release everything. Called once, in reverse order of start. Must not raise."""


#: Makes one service. Its argument is the node that is starting.
ServiceFactory: TypeAlias = Callable[[Any], Service]


@hookspec
def stelae_wal_engines() -> Sequence[type[WalEngine]]:  # type: ignore[empty-body]
    """Return the log engines of this plugin. A node chooses one with ``[engines] wal``."""


@hookspec
def stelae_consensus_engines() -> Sequence[type[ConsensusEngine]]:  # type: ignore[empty-body]
    """Return the consensus engines of this plugin. A node chooses one with ``[engines] consensus``.

    A tablet keeps the engine with which it was created, until an operator changes it."""


@hookspec
def stelae_store_engines() -> Sequence[type[TabletStore]]:  # type: ignore[empty-body]
    """Return the tablet stores of this plugin. A node chooses one for its new replicas."""


@hookspec
def stelae_copy_transports() -> Sequence[type[CopyTransport]]:  # type: ignore[empty-body]
    """Return the copy transports of this plugin. A node chooses one with ``[engines] copy``."""


@hookspec
def stelae_master_policies() -> Sequence[type[MasterPolicy]]:  # type: ignore[empty-body]
    """Return the master policies of this plugin. A master chooses one with ``[engines] policy``."""


@hookspec
def stelae_services() -> Sequence[ServiceFactory]:  # type: ignore[empty-body]
    """Return factories of services. A node starts all of them, after its own, and before it listens.

    The node does not start if one raises. Requests of a service are served by ``node.messenger``."""


@hookspec
def stelae_tablet_state_changed(event: TabletStateChanged) -> None:
    """Called after the state of a replica has changed. An observer hook."""


@hookspec
def stelae_leader_changed(event: LeaderChanged) -> None:
    """Called after this node has learned of a new leader. An observer hook."""


@hookspec
def stelae_cli(app: Any) -> None:
    """Add commands to the ``stelae`` command line. ``app`` is the root ``typer.Typer``.

    The entry point is named ``cli.COMMAND``, so that the command imports this plugin and no other one."""
