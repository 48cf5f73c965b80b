"""The events of a consensus core: the input of ``ConsensusCore.step`` (contract: ``stelae.spi.consensus``)."""

from typing import TypeAlias

import msgspec

from stelae.spi.ids import NodeId, OpId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.members import MemberChange


class Tick(msgspec.Struct, frozen=True, gc=False):
    """The time is now ``now_us``: monotonic microseconds, which never decrease, and go on while the machine is
    suspended."""

    now_us: int
    #: The driver holds the time back, because the replica can append nothing and must not campaign. It is later than
    #: ``now_us`` says. So no lease of this core answers a read before the next ``Tick``, and it promises no lease.
    held_back: bool = False


class Received(msgspec.Struct, frozen=True):
    """A message of this engine arrived from a peer, with its entries."""

    sender: NodeId
    message: msgspec.Struct
    entries: tuple[Entry, ...] = ()


class Proposal(msgspec.Struct, frozen=True, gc=False):
    """One entry to replicate."""

    #: Chosen by the driver, unique per core. ``Accepted`` and ``Rejection`` repeat it.
    token: int
    kind: EntryKind
    body: bytes


class Propose(msgspec.Struct, frozen=True):
    """Entries to replicate, in this order. Those behind one that is rejected as ``OVERLOADED`` are rejected, too."""

    proposals: tuple[Proposal, ...]


class ReadRequest(msgspec.Struct, frozen=True, gc=False):
    """Ask for a read index. The answer is in ``Ready.reads_ready``, or is a rejection of the token."""

    token: int
    #: Whether a lease of the leader may answer. Otherwise a majority gets messages first, which carry this node's
    #: clock: a later leader then stamps its entries above it (``durability.md`` rule 14).
    by_lease: bool = True


class Persisted(msgspec.Struct, frozen=True, gc=False):
    """Every Ready up to ``ready_id`` is durable."""

    ready_id: int


class PersistFailed(msgspec.Struct, frozen=True):
    """The log changes of Ready ``ready_id`` and of all later Readies are not durable and never will be.

    Their hard states are saved all the same, but none of their ``after_persist`` messages is ever sent.
    The core gives up leadership, sends nothing that depends on them, and cuts its view of the log to end at
    ``durable_index``. That index may be below the commit index: entries that a majority committed stay committed, and a
    leader sends them again. The driver delivers this event before any later ``Persisted``."""

    ready_id: int
    durable_index: int


class Applied(msgspec.Struct, frozen=True, gc=False):
    """The store has applied every entry up to ``index``."""

    index: int


class RangeSent(msgspec.Struct, frozen=True, gc=False):
    """A range was not sent as asked. It ended at ``through``; ``None`` means that nothing was sent."""

    peer: NodeId
    asked: OpId
    through: OpId | None


class RangeCompacted(msgspec.Struct, frozen=True, gc=False):
    """The log of this replica was collected up to ``base``, so the range that ends at ``asked`` was not sent.

    This is the only event that says up to where a log is collected. A core needs to know it only when a peer lacks an
    entry that is gone: the peer needs a copy then."""

    peer: NodeId
    asked: OpId
    base: OpId


class LeaderAlive(msgspec.Struct, frozen=True, gc=False):
    """The leader's node named this tablet and term in a heartbeat that arrived at ``heard_at_us``."""

    leader: NodeId
    term: int
    heard_at_us: int


class PeerAlive(msgspec.Struct, frozen=True, gc=False):
    """A peer acknowledged a heartbeat that named this tablet in ``term``. The answer arrived at ``heard_at_us``."""

    peer: NodeId
    term: int
    heard_at_us: int


class BeatException(msgspec.Struct, frozen=True, gc=False):
    """A peer answered a heartbeat with an exception.

    A higher term ends the leadership. A peer that does not host the tablet needs a copy. Otherwise the leader sends the
    peer a real append."""

    peer: NodeId
    term: int  #: The peer's term; 0 if it has none.
    #: ``"term"``; ``UNKNOWN`` if the peer does not host the tablet; ``DAMAGED`` if its replica has failed, and a copy
    #: can replace it; or ``FAILED``.
    reason: str


UNKNOWN = "unknown"
DAMAGED = "damaged"
FAILED = "failed"


class PeerUnreachable(msgspec.Struct, frozen=True, gc=False):
    """The link to a peer is down. Messages in flight to it may be lost."""

    peer: NodeId


class MergeMetadata(msgspec.Struct, frozen=True, gc=False):
    """A copy brings the consensus metadata of its source to a replica without a log.

    The core (``ConsensusEngine.restore_voter``) merges ``term`` into its hard state as of this moment
    (``core_restore.merged``). If its hard state changes, the next ``Ready`` has it. The config is not the core's: the
    driver saves it together with the hard state."""

    term: int  #: The source's term. Its vote is not part of the event, because it is never adopted.


class Campaign(msgspec.Struct, frozen=True, gc=False):
    """Campaign at once. A hinted campaign has an effect only if no config was ever committed."""

    hinted: bool = True


class Transfer(msgspec.Struct, frozen=True, gc=False):
    """Hand over leadership to a voter.

    Proposals are rejected meanwhile, for at most an election timeout. The answer is in ``Ready.handed_over``, or is a
    rejection of the token; after a rejection this replica is still leader."""

    token: int
    #: The new leader. With ``None`` the core chooses the voter whose log is most up to date.
    to: NodeId | None


class StepDown(msgspec.Struct, frozen=True, gc=False):
    """Give up leadership, because the replica stops or fails. Ignored by a replica that is not leader."""


class ChangeMembers(msgspec.Struct, frozen=True, gc=False):
    """Change the config.

    A config takes effect when the leader appends its entry. The answer is in ``Ready.config_changes`` once the entry is
    committed, or is a rejection of the token. After ``LEADERSHIP_LOST`` the outcome is unknown. Every other rejection
    means that nothing was appended."""

    token: int
    change: MemberChange
    #: Compare-and-set: the op id of the committed config that the change is meant for. ``None``: any.
    committed_config_id: OpId | None = None


class AbortChange(msgspec.Struct, frozen=True, gc=False):
    """Cancel the change of config that is in progress, if its entry is not appended yet.

    The answer is in ``Ready.aborted``, or is a rejection of the token. No leader truncates its own log, so a change
    that is appended cannot be cancelled: it is committed, or a later leader replaces it."""

    token: int


class RecoverAlone(msgspec.Struct, frozen=True, gc=False):
    """Become the only voter of a tablet that has lost its majority: unsafe recovery, an act of an operator.

    Source: "Raft config change", *Restoring availability after catastrophic data loss*; ``durability.md`` rule 29.
    The core enters ``term`` and appends a config entry in it whose only member is this replica. Then it campaigns.
    What the lost members alone had is lost; what this replica has is committed, acknowledged or not. The answer is in
    ``Ready.config_changes`` once the entry is committed, or is a rejection of the token. After ``LEADERSHIP_LOST`` the
    outcome is unknown: repeat the event. Every other rejection means that nothing was done. A repeated event continues
    where a crash interrupted it."""

    token: int
    term: int  #: The first term of a recovery epoch above every term that is known (``stelae.spi.recovery_epoch``).
    last: OpId  #: Compare-and-set: the last op id of the replica's log.
    config_id: OpId  #: Compare-and-set: the op id of the config in force.


class StandDown(msgspec.Struct, frozen=True, gc=False):
    """Leave the tablet to ``survivor``, which is about to be recovered in ``term`` (``RecoverAlone``).

    The core enters the term and gives its vote in it to the survivor, so it cannot be recovered itself in this epoch.
    It campaigns no more until it has the survivor's log. The answer is in ``Ready.stood_down``, or is a rejection of
    the token, and then nothing was done. It may be repeated. The only voter of a tablet rejects it, unless it knows of
    a later recovery itself: another survivor lacks what it has committed alone."""

    token: int
    term: int
    survivor: NodeId


class Removed(msgspec.Struct, frozen=True, gc=False):
    """A member or a master says that the committed config ``config_id`` does not list this replica.

    The replica does not campaign any more, until it gets a newer config that lists it. The event has no effect if the
    replica knows a config that is at least as new. If the config is of a later recovery epoch than the replica's term,
    the replica enters that term, even as leader, and so stands down for good."""

    config_id: OpId


_Local: TypeAlias = Tick | Propose | ReadRequest | Persisted | PersistFailed | Applied | RangeSent | RangeCompacted
_Remote: TypeAlias = Received | LeaderAlive | PeerAlive | BeatException | PeerUnreachable
_Leadership: TypeAlias = Campaign | Transfer | StepDown
_Recovery: TypeAlias = RecoverAlone | StandDown
Event: TypeAlias = _Local | _Remote | _Leadership | MergeMetadata | ChangeMembers | AbortChange | Removed | _Recovery
