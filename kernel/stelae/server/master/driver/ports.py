"""What a master's driver needs of its node.

In production that is ``stelae.host.node.Node``, in the simulator a node on a virtual disk, clock and network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from stelae.host.apply import Applier
from stelae.host.ports import BlockingPool, Turns
from stelae.host.read_faults import ReadFaults
from stelae.host.settings import NodeConfig, TabletSettings
from stelae.spi.consensus import Status
from stelae.spi.errors import StelaeError
from stelae.spi.ids import NodeId, OpId, TabletId
from stelae.spi.members import MemberChange, TabletConfig
from stelae.spi.services import Buffer, Metrics
from stelae.spi.write import WriteReply, WriteRequest
from stelae.wire.call_retries import Response
from stelae.wire.context import TimeSource


class IncomingRequest(Protocol):
    """A request that is to be answered once (``stelae.wire.requests.Request``)."""

    sender: NodeId
    kind: str
    body: Sequence[Buffer]

    def reply(self, frames: Sequence[Buffer] = ()) -> bool:
        """Answer. Return false if the request is no longer open."""

    def refuse(self, error: StelaeError) -> bool:
        """Answer with an error; as ``reply``."""


class PendingCall(Protocol):
    """The answer to a call, once it is there: what the driver uses of an ``asyncio.Future``."""

    def add_done_callback(self, call: Callable[[Any], object], /) -> object:
        """Run ``call`` with this object once the call has ended, on the loop."""

    def cancelled(self) -> bool:
        """Whether the call was given up."""

    def exception(self) -> BaseException | None:
        """The error with which the call has ended, if it has."""

    def result(self) -> Response:
        """The answer of a call that has ended well."""


class MasterMessenger(Protocol):
    """What the driver uses of the messenger."""

    def serve(self, kind: str, handler: Callable[[IncomingRequest], None]) -> None:
        """Answer requests of a kind; a ``StelaeError`` that ``handler`` raises is its answer."""

    def add_peer(self, node_id: NodeId, address: str) -> None:
        """Keep links to a node, or move them to a new address."""

    def remove_peer(self, node_id: NodeId) -> None:
        """Close the links to a node."""

    def call(self, to: NodeId, kind: str, frames: Sequence[Buffer], *, deadline_ms: int) -> PendingCall:
        """Send a request at the end of this turn."""


class SystemReplica(Protocol):
    """What the driver uses of the replica of the system tablet (``stelae.host.replica.Replica``)."""

    on_status: Callable[[], None] | None

    @property
    def failure(self) -> str:
        """Why it has failed; empty if it has not."""
        ...

    @property
    def applier(self) -> Applier: ...
    @property
    def read_faults(self) -> ReadFaults:
        """Decides when failed reads of its rows fail it."""
        ...

    @property
    def status(self) -> Status: ...

    def write(self, request: WriteRequest, done: Callable[[WriteReply | StelaeError], None]) -> None:
        """Replicate operations; ``done`` once, with a reply or an error."""

    def read_index(self, done: Callable[[int | StelaeError], None]) -> None:
        """Confirm leadership, and wait until all that was committed before the call is applied."""

    def change_members(
        self,
        change: MemberChange,
        done: Callable[[TabletConfig | StelaeError], None],
        *,
        committed_config_id: OpId | None = None,
    ) -> None:
        """Change one member; ``done`` once, with the committed config or an error."""

    def fail(self, reason: str) -> None:
        """Stop the replica for good."""


def leader_known_to(replica: SystemReplica) -> NodeId | None:
    """Return the leader of the system tablet as far as a replica knows.

    One that has failed knows none: its status stays as it was, and if it led, another master leads by now."""
    return None if replica.failure else replica.status.leader


class MasterNode(Protocol):
    """What the driver uses of its node."""

    @property
    def node_id(self) -> NodeId: ...
    @property
    def address(self) -> str: ...
    @property
    def config(self) -> NodeConfig: ...
    @property
    def messenger(self) -> MasterMessenger: ...
    @property
    def metrics(self) -> Metrics: ...
    @property
    def turns(self) -> Turns: ...
    @property
    def time(self) -> TimeSource: ...
    @property
    def scans(self) -> BlockingPool:
        """Threads for work that reads much or computes long."""

    @property
    def replicas(self) -> Mapping[TabletId, SystemReplica]:
        """The replicas of this node, by tablet."""

    @property
    def failed_tablets(self) -> Mapping[TabletId, str]:
        """Tablets that did not come up, and why."""


CreateTablet: TypeAlias = Callable[[TabletSettings, Callable[[StelaeError | None], None]], None]
"""Creates a tablet and starts its replica, as ``stelae.lifecycle.tablet_manager.TabletManager.create`` does."""
