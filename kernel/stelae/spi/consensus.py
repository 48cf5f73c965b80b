"""Contract of a consensus engine (contract version 1): a pure core, one per replica.

The core is a state machine with one entrance (``step``) and explicit effects (``take_ready``). It starts no thread,
opens no socket, reads no clock and holds no entry bodies: it knows op ids, the driver (``stelae.host``) has the bytes.
Same config, seed, restored state and events: same effects, byte for byte, under any ``PYTHONHASHSEED``.

Ordering and durability (``Ready`` is carried out by the kernel's one executor)
    1. Readies are carried out in the order of their ids, and become durable in that order.
    2. Within one Ready: first ``hard_state``, then ``append`` (replacement, then entries), and
       only when both are durable ``after_persist`` may be sent. ``at_once`` and ``ranges`` depend
       on nothing that this Ready makes durable, but they wait for earlier Readies' hard states.
    3. ``Persisted(ready_id)`` attests every id up to it. A Ready that replaced a suffix sets a floor: completions below
       it say nothing about entries. Of an earlier term, replies of ``after_persist`` are dropped, the watermark is not.
    4. A ``Range`` names the op ids of both ends. The driver drops it when the log has changed,
       sends a shorter one when it is over the byte limit, and says so with ``RangeSent``. Where the log no longer has
       the first entry, it sends nothing and says so with ``RangeCompacted``.
    5. ``commit`` never goes back; up to it entries may be applied in order. ``committed_config`` gates collection only.
    6. Entries that the core emits carry timestamp 0; the executor stamps them in log order.

Liveness that the kernel coalesces per pair of nodes
    A leader states ``beats`` (the peers that it keeps alive in its term). The kernel's heartbeat service carries these
    for all tablets in one message per pair of nodes. Before it delivers a ``Tick`` that reaches a deadline, or a vote
    request, the driver first delivers what it heard since: ``LeaderAlive`` to followers, ``PeerAlive`` to leaders.

Lagging peers
    The driver collects a log no further than ``Status.all_replicated_index``, unless an operator has set a bound. So a
    follower keeps what a lagging peer needs, as its leader does, and can catch that peer up when it leads itself.

    1. A leader states an index up to which it knows the committed log to be durable on every member of its config,
       itself included. A member that has not acknowledged anything in its term counts as 0.
    2. It tells its followers in messages that it sends them anyway. A core states the highest index that it received or
       computed, in any term: committed entries that are durable on every member stay so. A restored core states 0.
    3. A peer that needs entries below the log's base is in state ``"COPY"``: one ``CopyRequest``, and no more ranges.
       ``CopyFinished`` ends this state; so does a reply that shows that the peer's log reaches the base by now."""

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar, TypeAlias

import msgspec

from stelae.spi.errors import Corrupt
from stelae.spi.ids import NodeId, OpId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.settings import Engine

CONSENSUS_CONTRACT_VERSION = 1


class Role(StrEnum):
    """Role of a replica in its config."""

    LEADER = "LEADER"
    FOLLOWER = "FOLLOWER"
    LEARNER = "LEARNER"
    CANDIDATE = "CANDIDATE"
    NON_PARTICIPANT = "NON_PARTICIPANT"


class MemberType(StrEnum):
    """What a member of a config is for."""

    VOTER = "VOTER"
    PRE_VOTER = "PRE_VOTER"  #: A learner that the leader promotes once it has caught up.
    NON_VOTER = "NON_VOTER"
    WITNESS = "WITNESS"


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One member of a config; ``address`` is its last known ``host:port``."""

    node_id: NodeId
    address: str
    member_type: MemberType = MemberType.VOTER


class TabletConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The members of a consensus group, sorted by node id. ``op_id``, the compare-and-set id of changes, is that of the
    entry which carried the config; ``OpId(0, 0)`` for an initial one that no entry has carried yet."""

    op_id: OpId
    members: tuple[Member, ...]

    def voters(self) -> tuple[NodeId, ...]:
        """Node ids of the members that count towards a majority."""
        voting = (MemberType.VOTER, MemberType.WITNESS)
        return tuple(m.node_id for m in self.members if m.member_type in voting)

    def member(self, node_id: NodeId) -> Member | None:
        """The member of that node id, if any."""
        return next((m for m in self.members if m.node_id == node_id), None)


def encode_config(config: TabletConfig) -> bytes:
    """Return the body of a ``CONFIG`` entry. The op id is not part of it: the entry has it."""
    return msgspec.msgpack.encode(config.members)


def decode_config(entry: Entry) -> TabletConfig:
    """Return the config that a ``CONFIG`` entry carries; ``Corrupt`` if it is none."""
    try:
        return TabletConfig(op_id=entry.op_id, members=_MEMBERS.decode(entry.body))
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"entry {entry.op_id} carries no config: {error}") from error


class HardState(msgspec.Struct, frozen=True, gc=False):
    """What must survive a crash besides the log: the term, and the vote given in it."""

    term: int = 0
    voted_for: NodeId | None = None


class LogView(msgspec.Struct, frozen=True, kw_only=True):
    """What the core is told of a log at restore; it never reads entries."""

    base: OpId  #: Before the first entry that is still there.
    last: OpId  #: Of the last durable entry; equals ``base`` for an empty log.
    #: ``(first index, term)`` of each run of equal terms above ``base``, ascending.
    term_runs: tuple[tuple[int, int], ...] = ()
    configs: tuple[TabletConfig, ...] = ()  #: Every config entry above ``base``, ascending.


# -- events: what goes into step() ---------------------------------------------------------------


class Tick(msgspec.Struct, frozen=True, gc=False):
    """Time has reached ``now_us`` (monotonic microseconds; never goes back)."""

    now_us: int


class Received(msgspec.Struct, frozen=True):
    """A message of this engine arrived from a peer, with the entries that travelled along."""

    sender: NodeId
    message: msgspec.Struct
    entries: tuple[Entry, ...] = ()


class Proposal(msgspec.Struct, frozen=True, gc=False):
    """One entry to replicate. ``token`` is the driver's, unique per core; it comes back."""

    token: int
    kind: EntryKind
    body: bytes


class Propose(msgspec.Struct, frozen=True):
    """Entries to replicate, in this order."""

    proposals: tuple[Proposal, ...]


class ReadRequest(msgspec.Struct, frozen=True, gc=False):
    """Ask for a read index. Answered by ``Ready.reads_ready`` or a rejection of the token."""

    token: int


class Persisted(msgspec.Struct, frozen=True, gc=False):
    """Every Ready up to ``ready_id`` is durable."""

    ready_id: int


class PersistFailed(msgspec.Struct, frozen=True):
    """Ready ``ready_id`` and all later ones are not durable and never will be.

    The core gives up leadership without sending anything that depends on them; its idea of the
    log is cut to end at ``durable_index``. That may lie below the commit index: what a majority
    committed stays committed, and comes again from a leader. Comes before any later ``Persisted``."""

    ready_id: int
    durable_index: int


class Applied(msgspec.Struct, frozen=True, gc=False):
    """The store has applied every entry up to ``index``."""

    index: int


class RangeSent(msgspec.Struct, frozen=True, gc=False):
    """A range was not sent as asked: it ended at ``through`` (``None``: nothing was sent)."""

    peer: NodeId
    asked: OpId
    through: OpId | None


class RangeCompacted(msgspec.Struct, frozen=True, gc=False):
    """A range that ends at ``asked`` was not sent: its first entry was collected. ``base`` is the log's base by now."""

    peer: NodeId
    asked: OpId
    base: OpId


class LeaderAlive(msgspec.Struct, frozen=True, gc=False):
    """Its leader's node named this tablet and term in a heartbeat heard at ``heard_at_us``."""

    leader: NodeId
    term: int
    heard_at_us: int


class PeerAlive(msgspec.Struct, frozen=True, gc=False):
    """A peer acknowledged a heartbeat that named this tablet in ``term``."""

    peer: NodeId
    term: int
    heard_at_us: int


class BeatException(msgspec.Struct, frozen=True, gc=False):
    """A peer answered a heartbeat with an exception: a higher term ends the leadership, else a real append follows."""

    peer: NodeId
    term: int  #: The peer's; 0 when it has none.
    reason: str  #: ``"term"``, ``"unknown"`` or ``"failed"``.


class PeerUnreachable(msgspec.Struct, frozen=True, gc=False):
    """The link to a peer is down: what was in flight to it may be lost."""

    peer: NodeId


class CopyFinished(msgspec.Struct, frozen=True, gc=False):
    """A copy to a peer ended; ``through`` is its last op id, ``None`` if it failed. The leader probes the peer at that
    position, and continues from where their logs agree. For a peer that still lacks collected entries it makes a new
    request."""

    peer: NodeId
    through: OpId | None


class Campaign(msgspec.Struct, frozen=True, gc=False):
    """Campaign at once. A hinted one counts only where no config was ever agreed."""

    hinted: bool = True


class Transfer(msgspec.Struct, frozen=True, gc=False):
    """Hand leadership over, to a voter or (``None``) to the best one; for at most an election timeout no proposal is
    taken. Answered by ``Ready.handed_over`` or a rejection of the token, and then this replica leads on."""

    token: int
    to: NodeId | None


class StepDown(msgspec.Struct, frozen=True, gc=False):
    """Give up leadership (a replica that stops or fails); ignored by others."""


_MEMBERS = msgspec.msgpack.Decoder(tuple[Member, ...])
_Local: TypeAlias = Tick | Propose | ReadRequest | Persisted | PersistFailed | Applied | RangeSent | RangeCompacted
_Remote: TypeAlias = Received | LeaderAlive | PeerAlive | BeatException | PeerUnreachable
Event: TypeAlias = _Local | _Remote | CopyFinished | Campaign | Transfer | StepDown

# -- effects: what comes out of take_ready() ------------------------------------------------------


class LogAppend(msgspec.Struct, frozen=True, kw_only=True):
    """Change the log: void everything at or above ``replace_from``, then append ``entries``."""

    entries: tuple[Entry, ...]
    replace_from: int | None = None


class Outbound(msgspec.Struct, frozen=True):
    """One message to a peer. ``term`` is the core's when it was made."""

    to: NodeId
    message: msgspec.Struct
    term: int


class Range(msgspec.Struct, frozen=True):
    """Send ``message`` with the entries after ``prev`` up to and including ``last``."""

    to: NodeId
    message: msgspec.Struct
    term: int
    prev: OpId
    last: OpId


class Beats(msgspec.Struct, frozen=True):
    """Whom the kernel keeps alive for this tablet; no peers: nobody (not leading)."""

    term: int
    peers: tuple[NodeId, ...]


class ReadReady(msgspec.Struct, frozen=True, gc=False):
    """The read of ``token`` may be served once ``index`` is applied."""

    token: int
    index: int


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """The proposal of ``token`` is in the log at ``op_id``; it may still be replaced."""

    token: int
    op_id: OpId


class RejectReason(StrEnum):
    """Why a proposal, a read or a transfer was not taken."""

    NOT_LEADER = "NOT_LEADER"
    CONFIGURING = "CONFIGURING"  #: Leader, but no entry of its own term is committed yet.
    OVERLOADED = "OVERLOADED"
    TOO_LARGE = "TOO_LARGE"
    UNSUPPORTED = "UNSUPPORTED"  #: Proposals only: of a kind that the core alone puts into the log.
    LEADERSHIP_LOST = "LEADERSHIP_LOST"  #: Reads and transfers: stepped down before a majority confirmed.
    TRANSFERRING = "TRANSFERRING"  #: Proposals and transfers: leadership is being handed over.
    NOT_A_VOTER = "NOT_A_VOTER"  #: Transfers only: to a stranger, or to a member that may not lead.
    NO_SUCCESSOR = "NO_SUCCESSOR"  #: Transfers only: nobody won in time.


class Rejection(msgspec.Struct, frozen=True):
    """A proposal or read that was not taken; nothing of it is in the log."""

    token: int
    reason: RejectReason
    leader: NodeId | None = None


class CopyRequest(msgspec.Struct, frozen=True):
    """A peer needs the entries from ``first_index`` on, and the log's base is above; or it does not host the tablet.
    Made once, when the peer enters the state ``"COPY"``."""

    peer: NodeId
    first_index: int


class Fatal(msgspec.Struct, frozen=True):
    """A broken invariant: stop this tablet and print the history. Nothing after it is valid."""

    reason: str
    history: tuple[str, ...]


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """The accumulated effects of one turn; see the module's "Ordering and durability"."""

    id: int
    hard_state: HardState | None = None
    append: LogAppend | None = None
    after_persist: tuple[Outbound, ...] = ()
    at_once: tuple[Outbound, ...] = ()
    ranges: tuple[Range, ...] = ()
    commit: int | None = None
    committed_config: TabletConfig | None = None
    beats: Beats | None = None
    accepted: tuple[Accepted, ...] = ()
    reads_ready: tuple[ReadReady, ...] = ()
    handed_over: tuple[int, ...] = ()  #: Tokens of transfers: another leads now, or was asked for by name and leads.
    copy_requests: tuple[CopyRequest, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    fatal: Fatal | None = None


class PeerProgress(msgspec.Struct, frozen=True, kw_only=True):
    """What a leader knows of one peer."""

    node_id: NodeId
    match_index: int
    next_index: int
    state: str  #: ``"PROBE"``, ``"REPLICATE"`` or ``"COPY"``: it cannot be caught up from the log.
    in_flight: int


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """Immutable snapshot of a core, for people and for checkers."""

    node_id: NodeId
    role: Role
    term: int
    voted_for: NodeId | None
    leader: NodeId | None
    last: OpId
    durable_index: int
    commit: int
    applied: int
    serving: bool  #: An entry of the current term is known to be committed: RUNNING.
    config: TabletConfig
    committed_config: TabletConfig
    peers: tuple[PeerProgress, ...] = ()
    all_replicated_index: int = 0  #: Every member is known to hold the committed log durably up to here.


class ConsensusCore(ABC):
    """One replica's consensus state machine. Called from the event loop; never blocks."""

    @abstractmethod
    def step(self, events: Sequence[Event]) -> None:
        """Take a batch of events. Peer input never raises; a broken invariant becomes ``Fatal``."""

    def can_wait(self, event: Event) -> bool:
        """Whether nobody waits for ``event``: stepped alone now it would give no ``Ready``. Then the driver may step it
        first thing in the next turn, which another event or the deadline brings. Asked while no event is held back."""
        return False

    @abstractmethod
    def take_ready(self) -> Ready | None:
        """Return the effects accumulated since the last call, or ``None`` if there are none."""

    @abstractmethod
    def next_deadline(self) -> int | None:
        """Monotonic microseconds at which a ``Tick`` is due; ``None`` when no time matters."""

    @abstractmethod
    def status(self) -> Status:
        """A snapshot; cheap enough to call each turn."""

    @abstractmethod
    def validate_state(self) -> None:
        """Check every invariant; raises ``AssertionError``. For tests and the simulator."""


class ConsensusEngine(Engine):
    """Makes cores. Subclasses are registered through ``stelae_consensus_engines``."""

    contract_version: ClassVar[int] = CONSENSUS_CONTRACT_VERSION
    message_types: ClassVar[Mapping[str, type[msgspec.Struct]]]  #: By kind: the kernel's codec goes by these.
    is_vote_request: ClassVar[frozenset[str]] = frozenset()  #: Before these the driver delivers the heartbeats heard.

    @classmethod
    def beat_interval_ms(cls, config: Any) -> int:
        """How often a leader's node must keep its followers alive, in milliseconds, at least 1."""
        return 200

    @classmethod
    @abstractmethod
    def restore(
        cls,
        *,
        node_id: NodeId,
        hard_state: HardState,
        log: LogView,
        commit: int,
        applied: int,
        committed_config: TabletConfig,
        config: Any,
        rng: random.Random,
        now_us: int,
    ) -> ConsensusCore:
        """Make the core of a replica whose log and metadata are readable.

        ``commit``: the highest index known committed (what the store flushed or the log's hint, at most
        ``log.last.index``); ``applied``, at most that: by the store. ``committed_config`` is of consensus metadata; the
        newest config entry in ``log`` wins while it stands. Of ``rng``, ``random()`` and ``getrandbits()`` are used."""

    @classmethod
    @abstractmethod
    def restore_voter(
        cls, *, node_id: NodeId, hard_state: HardState, last: OpId | None, config: Any, now_us: int
    ) -> ConsensusCore:
        """Make the core of a tombstone or a copy under way: it votes and does nothing else. ``last`` is the last op id
        of the log it once had; ``None`` is UNKNOWN: it never votes."""
