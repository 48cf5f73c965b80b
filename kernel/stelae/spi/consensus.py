"""Contract of a consensus engine (contract version 1): a pure state machine, one per replica.

The core takes events (``step``) and returns effects (``take_ready``). It starts no threads, opens no sockets, reads no
clock and holds no entry bodies. It knows the op ids of entries; the driver (``stelae.host``) has the bytes. The same
config, seed, restored state and events give the same effects, byte for byte, under any ``PYTHONHASHSEED``.

Ordering and durability
    The kernel's executor (``stelae.host.executor``) carries out every ``Ready``.

    1. Readies are carried out in the order of their ids, and become durable in that order.
    2. Within one Ready, ``hard_state`` becomes durable first, then ``append`` (the replacement, then the entries). The
       messages of ``after_persist`` are sent only when both are durable. The messages of ``at_once`` and ``ranges`` do
       not depend on what this Ready makes durable, but they wait for the hard states of earlier Readies.
    3. ``Persisted(ready_id)`` says that every Ready up to that id is durable. A Ready that replaces a suffix of the log
       sets a floor: completions of earlier Readies say nothing about entries any more. If the term has changed since a
       Ready, its ``after_persist`` messages are dropped; ``Persisted`` is delivered all the same.
    4. A ``Range`` names the op ids of both its ends. If the log has changed, the driver drops the range. If the range
       is above the byte limit, the driver sends a shorter one. It reports both with ``RangeSent``. If the first entry
       of the range has been collected, it sends nothing and reports ``RangeCompacted``. A range that does not continue
       the last one to the same peer replaces all earlier ones that are not sent yet: the driver drops them.
    5. ``commit`` never decreases. Entries up to it may be applied, in order. ``committed_config`` only decides how far
       the log may be collected.
    6. New entries from the core have timestamp 0. The executor gives them their timestamps, in log order.
    7. Each request with a token gets one answer, and no second one: a proposal or a read that is not accepted or ready
       is rejected. The driver forgets a token with its answer.

Heartbeats
    A leader names in ``beats`` the peers to which it sends heartbeats in its term. The kernel's heartbeat service sends
    them for all tablets in one message per pair of nodes. Before the driver delivers a ``Tick`` that reaches a
    deadline, or a vote request, it delivers the heartbeats received so far: ``LeaderAlive`` to followers, ``PeerAlive``
    to leaders. A peer that refused a heartbeat and acknowledges the next one is delivered at once, because it may have
    got its copy.

Members
    A config is active from the moment at which its entry is appended until the entry is replaced. At most one change is
    pending: a leader appends the next one when the last one is committed. Three changes come from the leader itself: it
    makes a ``PRE_VOTER`` a ``VOTER``, or a ``PRE_WITNESS`` a ``WITNESS``, once the rest can be sent within an election
    timeout; it makes a ``WITNESS`` a ``VOTER`` once that one says that it has all rows; and it removes a new member
    that stops answering before it has its vote. A refusal of a heartbeat is an answer. Heartbeats, progress and votes
    of a member end with the config that removes it. A core accepts requests from any node, because its own config may
    be old; the driver must not drop them.

Witnesses
    A replica with ``LogView.log_only`` keeps the log from a committed op id on and has no rows. It votes if the config
    says so, and may win an election, because it may have the only copy of an acknowledged entry. As leader it is a
    *caretaker*: it rejects all requests, replicates, and hands over to the first ``VOTER`` that has all of its log.

Recovery
    A tablet that has lost its majority is recovered from one survivor, by an operator (``RecoverAlone``). The high
    bits of a term are its *recovery epoch* (``stelae.spi.recovery_epoch``). A core whose term is of a later epoch
    than the last entry of its log stands down: it never campaigns, and votes for no replica whose log is of an
    earlier epoch than the candidate's term. If the leader of a later epoch replaces an entry that such a core knows
    as committed, the replica must be replaced: the core ends with ``Fatal``. The driver delivers these two events
    only to an engine with the capability ``RECOVERS``.

Lagging peers
    The driver collects a log no further than ``Status.all_replicated_index``, unless an operator has set a bound. So a
    follower keeps the entries that a lagging peer needs, as the leader does, and can send them if it becomes leader.

    1. A leader computes an index up to which every member of its config, itself included, is known to hold the
       committed log durably. A member that has not acknowledged anything in the leader's term counts as 0.
    2. It adds this index to messages that it sends to its followers anyway. A core states the highest index that it
       received or computed, in any term, because committed entries that are durable on every member stay durable. A
       restored core states 0.
    3. A peer that needs entries at or below the log's base is in state ``"COPY"``. The core sends it no more ranges,
       and repeats its ``CopyRequest`` at growing intervals as long as the peer is alive. The core
       probes the peer with each of them. The state ends with a reply which shows that the peer's log reaches the base
       by now, because it was copied or restored. Nothing else tells the core that a copy has ended."""

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar

import msgspec

from stelae.spi.consensus_events import Event
from stelae.spi.ids import ZERO, NodeId, OpId
from stelae.spi.log import Entry
from stelae.spi.members import TabletConfig
from stelae.spi.rejections import Rejection
from stelae.spi.settings import Engine

CONSENSUS_CONTRACT_VERSION = 1

REPLICATES = "replicates"  #: Capability: a tablet can have several members, and the engine replicates to them.
CHANGES_MEMBERS = "changes_members"  #: Capability: ``ChangeMembers`` adds, removes, promotes and demotes members.
RECOVERS = "recovers"  #: Capability: ``RecoverAlone`` and ``StandDown`` recover a tablet that has lost its majority.


class Role(StrEnum):
    """Role of a replica in its config."""

    LEADER = "LEADER"
    FOLLOWER = "FOLLOWER"
    LEARNER = "LEARNER"
    CANDIDATE = "CANDIDATE"
    NON_PARTICIPANT = "NON_PARTICIPANT"


class HardState(msgspec.Struct, frozen=True, gc=False):
    """What must survive a crash in addition to the log: the term, the vote given in this term, and promises."""

    term: int = 0
    voted_for: NodeId | None = None
    #: How long, in microseconds, the replica may have promised a leader to grant no other candidate a vote (a read
    #: lease); 0: it has promised nothing.
    promised_us: int = 0


class LogView(msgspec.Struct, frozen=True, kw_only=True):
    """What a core needs to know of its log when it is restored. The core never reads entries."""

    base: OpId  #: The op id of the last collected entry, or of the point where the log began.
    last: OpId  #: The op id of the last durable entry. It equals ``base`` for an empty log.
    #: For each sequence of entries with equal terms above ``base``, ascending: ``(first index, term)``.
    term_runs: tuple[tuple[int, int], ...] = ()
    configs: tuple[TabletConfig, ...] = ()  #: The configs of all config entries above ``base``, ascending.
    log_only: bool = False  #: The replica has no rows, as that of a witness. Everything below ``base`` is missing.
    #: The last op id of an earlier replica of this node, as long as the log has not reached it. The core votes for no
    #: log that ends before it (``durability.md`` rule 18).
    vote_floor: OpId = ZERO


# -- effects: the output of take_ready() ----------------------------------------------------------


class LogAppend(msgspec.Struct, frozen=True, kw_only=True):
    """Change the log: remove everything at or above ``replace_from``, if given, then append ``entries``."""

    entries: tuple[Entry, ...]
    replace_from: int | None = None


class Outbound(msgspec.Struct, frozen=True):
    """One message to a peer. ``term`` is the core's term when the message was made."""

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
    """The peers to which the kernel sends heartbeats for this tablet. A replica that is not leader has none."""

    term: int
    peers: tuple[NodeId, ...]


class ReadReady(msgspec.Struct, frozen=True, gc=False):
    """A majority has confirmed the read index of ``token``. The read may be served once ``index`` is applied."""

    token: int
    index: int


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """The proposal of ``token`` is in the log at ``op_id``. It is not committed and may still be replaced."""

    token: int
    op_id: OpId


class ConfigChanged(msgspec.Struct, frozen=True, gc=False):
    """The change of ``token`` is committed. ``config`` is the config of its entry."""

    token: int
    config: TabletConfig


class CopyRequest(msgspec.Struct, frozen=True):
    """A peer needs a copy: it lacks entries from ``first_index`` on that were collected, does not host the tablet, or
    its replica is damaged.

    The core repeats the request at growing intervals until the peer's log reaches the base: a request may be lost, or
    refused for the moment."""

    peer: NodeId
    first_index: int
    hosted: bool = True  #: False if the peer does not host the tablet. If nothing was collected, it needs no copy then.
    damaged: bool = False  #: The peer's replica has failed because of damage, whatever its log has.


class Fatal(msgspec.Struct, frozen=True):
    """An invariant is broken. The driver stops this replica and logs the history. Later effects are not valid."""

    reason: str
    history: tuple[str, ...]


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """The effects since the last Ready. For their order see "Ordering and durability" of the module."""

    id: int  #: 1 for the first Ready of a core, then ascending without gaps.
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
    #: Tokens of the transfers that have succeeded: another replica leads now, or the named replica already led.
    handed_over: tuple[int, ...] = ()
    config_changes: tuple[ConfigChanged, ...] = ()
    #: Tokens of the ``AbortChange`` events that have cancelled a change.
    aborted: tuple[int, ...] = ()
    #: Tokens of the ``StandDown`` events that are carried out once this Ready is durable.
    stood_down: tuple[int, ...] = ()
    copy_requests: tuple[CopyRequest, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    fatal: Fatal | None = None


class PeerProgress(msgspec.Struct, frozen=True, kw_only=True):
    """What a leader knows of one peer."""

    node_id: NodeId
    match_index: int
    next_index: int
    state: str  #: ``"PROBE"``, ``"REPLICATE"``, or ``"COPY"`` if the log no longer has the entries that it needs.
    in_flight: int
    log_only: bool = False  #: The peer has no rows, as it said itself.


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """An immutable snapshot of a core's state."""

    node_id: NodeId
    role: Role
    term: int
    voted_for: NodeId | None
    leader: NodeId | None
    last: OpId
    durable_index: int
    commit: int
    applied: int
    serving: bool  #: An entry of the current term is known to be committed: the replica is RUNNING.
    config: TabletConfig
    committed_config: TabletConfig
    peers: tuple[PeerProgress, ...] = ()
    all_replicated_index: int = 0  #: Every member is known to hold the committed log durably up to this index.
    caretaker: bool = False  #: It may lead only until a voter has caught up, and never serves meanwhile (a witness).


class ConsensusCore(ABC):
    """The consensus state machine of one replica. It is called on the event loop and never blocks."""

    @abstractmethod
    def step(self, events: Sequence[Event]) -> None:
        """Process events, in order.

        Input of a peer never raises an exception, whatever it contains. A broken invariant becomes ``Fatal``."""

    def can_wait(self, event: Event) -> bool:
        """Return whether the driver may delay ``event``: to step it alone now would give no ``Ready``.

        The driver then steps a delayed event as the first one of the next turn, which another event or the deadline
        starts. It calls this only while no event is delayed."""
        return False

    @abstractmethod
    def take_ready(self) -> Ready | None:
        """Return the effects since the last call, or ``None`` if there are none."""

    @abstractmethod
    def next_deadline(self) -> int | None:
        """Return when the next ``Tick`` is due, in monotonic microseconds, or ``None`` if no deadline is set."""

    @abstractmethod
    def status(self) -> Status:
        """Return a snapshot of the state. Cheap enough to call in each turn."""

    @property
    def refused(self) -> Mapping[str, int]:
        """The number of messages that no correct peer sends, by what was wrong with them: a few fixed texts."""
        return {}

    @abstractmethod
    def validate_state(self) -> None:
        """Check every invariant, for tests and the simulator. Raises ``AssertionError`` if one is broken."""


class ConsensusEngine(Engine):
    """Makes cores. Subclasses are registered through the hook ``stelae_consensus_engines``.

    The capabilities are ``REPLICATES``, ``CHANGES_MEMBERS`` and ``RECOVERS``. An engine without the first one refuses
    configs of several members (``check_members``). An engine without the second one rejects changes as
    ``UNSUPPORTED``."""

    contract_version: ClassVar[int] = CONSENSUS_CONTRACT_VERSION
    #: The engine's message types by kind. The kernel encodes and decodes them.
    message_types: ClassVar[Mapping[str, type[msgspec.Struct]]]
    #: Kinds of vote requests. Before it delivers one, the driver delivers the heartbeats received so far.
    is_vote_request: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def beat_interval_ms(cls, config: Any) -> int:
        """Return the interval of a leader's heartbeats in milliseconds, at least 1."""
        return 200

    @classmethod
    def check_members(cls, node_id: NodeId, config: TabletConfig) -> None:
        """Check that the engine can serve this config on this node. By default it can serve every config.

        The kernel calls it before it creates a replica, and before a stopped node changes to this engine. Raises
        ``ConfigError``, with an engine that can serve the config, if it cannot. ``restore`` then refuses the same."""

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
        """Make the core of a replica whose log and metadata can be read.

        ``commit`` is the highest index that is known to be committed: what the store flushed or the log's commit hint,
        at most ``log.last.index``. ``applied`` is the index that the store has applied, at most ``commit``.
        ``committed_config`` is the config in consensus metadata. The newest config entry in ``log`` overrides it, as
        long as that entry is not replaced. The core uses only ``random()`` and ``getrandbits()`` of ``rng``.

        Raises ``Corrupt``, with what to do next after a semicolon, if the arguments contradict each other: a term of
        the log above the durable one, a commit index above the log's end, or an applied index above both the commit
        index and the log's base (``core_restore.refuse_contradictions``)."""

    @classmethod
    @abstractmethod
    def restore_voter(
        cls, *, node_id: NodeId, hard_state: HardState, last: OpId | None, config: Any, now_us: int
    ) -> ConsensusCore:
        """Make the core of a tombstone or of a replica that is being copied. It votes and does nothing else.

        It rejects every request as ``NOT_LEADER``, and has no deadline.

        ``last`` is the last op id of the log that the replica had. ``None`` means UNKNOWN: the core never votes."""
