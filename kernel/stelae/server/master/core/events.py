"""Events and effects of a master's core. ``master_core`` lists what the driver must promise."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from stelae.protocol.actions import ServerAction
from stelae.protocol.master_heartbeats import Heartbeat, HeartbeatReply
from stelae.protocol.master_messages import CatalogAnswer, CatalogReadRequest, ChangeReply, ChangeRequest
from stelae.server.master.core.batches import CatalogBatch
from stelae.server.master.core.operations import BatchOutcome
from stelae.server.master.core.proposals import PolicyProposal
from stelae.spi.ids import NodeId, OpId
from stelae.spi.members import TabletConfig
from stelae.spi.policy import PolicySnapshot

# -- events --------------------------------------------------------------------------------------


class MasterTick(msgspec.Struct, frozen=True, gc=False):
    """The time. ``now_us`` is monotonic within this process, ``wall_us`` is that of the hybrid clock."""

    now_us: int
    wall_us: int


class MasterLeaderChanged(msgspec.Struct, frozen=True, gc=False):
    """The system tablet is in ``term``. ``leader`` is the leader that this replica knows, which may be itself."""

    term: int
    leader: NodeId | None


class MastersChanged(msgspec.Struct, frozen=True):
    """The newest committed config of the system tablet that this replica knows: the masters.

    ``newest`` is the op id of the newest config in its log, which may not be committed. Every leader has each committed
    config in its log."""

    config: TabletConfig
    newest: OpId


class EntryApplied(msgspec.Struct, frozen=True):
    """The next entry of the system tablet has been applied here; ``batch`` is ``None`` if it has no rows."""

    op_id: OpId
    batch: CatalogBatch | None


class Decided(msgspec.Struct, frozen=True):
    """The outcome of a ``Replicate``. ``op_id`` is given with COMMITTED."""

    token: int
    outcome: BatchOutcome
    op_id: OpId | None = None
    reason: str = ""  #: Of another outcome than COMMITTED: why, for people.


class ChangeAsked(msgspec.Struct, frozen=True):
    """A client asks for a change. The answer has the ``token``, which the driver chose."""

    token: int
    request: ChangeRequest


class ReadAsked(msgspec.Struct, frozen=True):
    """A client asks a question."""

    token: int
    request: CatalogReadRequest


class Confirmed(msgspec.Struct, frozen=True, gc=False):
    """Answer to ``Confirm``.

    ``ok``: a majority has confirmed this leader, and everything acknowledged before is applied here."""

    token: int
    ok: bool


class CaughtUp(msgspec.Struct, frozen=True, gc=False):
    """Everything acknowledged up to ``wall_us`` is applied here, as far as the masters' wall clocks are right.

    For a master that has begun and hears no leader yet. The time is the timestamp of an applied entry, less what the
    hybrid clock of its leader may have been ahead of the wall clock."""

    wall_us: int


class ReadIndexAnswered(msgspec.Struct, frozen=True):
    """Answer to ``AskReadIndex``: what was acknowledged before ``asked`` is committed at ``index`` or below."""

    asked: MasterTick
    index: int


class HeartbeatReceived(msgspec.Struct, frozen=True):
    """A tablet server's heartbeat."""

    token: int
    heartbeat: Heartbeat


class MastersCompared(msgspec.Struct, frozen=True):
    """Answer to ``CompareMasters``.

    ``obstacle`` says why the lists of the masters may differ; it is empty if they are equal."""

    obstacle: str


class Planned(msgspec.Struct, frozen=True):
    """Answer to ``AskPolicy``: the proposal of the policy, which is empty if the policy failed."""

    token: int
    proposal: PolicyProposal


Event: TypeAlias = (
    MasterTick
    | MasterLeaderChanged
    | MastersChanged
    | EntryApplied
    | Decided
    | ChangeAsked
    | ReadAsked
    | Confirmed
    | CaughtUp
    | ReadIndexAnswered
    | HeartbeatReceived
    | MastersCompared
    | Planned
)

# -- effects -------------------------------------------------------------------------------------


class Replicate(msgspec.Struct, frozen=True):
    """Propose a batch in ``term`` only, because it was planned on the entries that this leadership has applied."""

    token: int
    term: int
    batch: CatalogBatch


class Reply(msgspec.Struct, frozen=True):
    """Answer a client or a server."""

    token: int
    body: ChangeReply | CatalogAnswer | HeartbeatReply


class Refuse(msgspec.Struct, frozen=True, kw_only=True):
    """Answer a client with an error; ``code`` is that of its class. It may ask again after a retryable one."""

    token: int
    code: str
    detail: str
    retryable: bool
    leader: NodeId | None = None  #: The leader to ask, for ``NOT_LEADER``.


class Confirm(msgspec.Struct, frozen=True, gc=False):
    """Ask a majority whether this master still leads (a read index). ``Confirmed`` is the answer."""

    token: int


class AskReadIndex(msgspec.Struct, frozen=True):
    """Ask the leader, perhaps this master, for a read index, then say ``ReadIndexAnswered`` with the same ``asked``."""

    asked: MasterTick
    leader: NodeId


class CompareMasters(msgspec.Struct, frozen=True):
    """Ask every other master for its list of masters. ``MastersCompared`` is the answer."""


class Send(msgspec.Struct, frozen=True):
    """Send an action to a tablet server. ``address`` is its last known address, or empty."""

    address: str
    action: ServerAction


class AskPolicy(msgspec.Struct, frozen=True):
    """Ask the policy about a snapshot (``proposals.propose``), off the event loop. ``Planned`` is the answer.

    For a large cluster, this takes seconds. The proposal is checked against the state at the time of the answer."""

    token: int
    snapshot: PolicySnapshot
    seed: int


Effect: TypeAlias = Replicate | Reply | Refuse | Confirm | AskReadIndex | CompareMasters | Send | AskPolicy
