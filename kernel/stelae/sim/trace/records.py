"""The records of a trace: what happened, when, and on which node.

Times are virtual microseconds since the start of the run. A node is named by its position; positions from the number of
nodes up are clients."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, TypeAlias

import msgspec

from stelae.sim.fault_plan import Fault
from stelae.sim.network import NetworkLink
from stelae.sim.node_change import NodeChange
from stelae.sim.report import RunResult
from stelae.spi.ids import OpId


class TraceKind(StrEnum):
    """The kinds of records by which a trace is filtered."""

    VIOLATION = "violation"
    FAULT = "fault"
    """A node has started, stopped or changed otherwise; links were cut or mended."""
    ROLE = "role"
    """A replica has changed its role, its term or its leader, or has begun to serve."""
    VOTE = "vote"
    """A message of an election or of a leadership transfer."""
    APPEND = "append"
    """An append with entries."""
    REFUSAL = "refusal"
    """An answer that refuses an append."""
    PROBE = "probe"
    """An append without entries."""
    REPLY = "reply"
    """An answer that accepts an append."""
    MESSAGE = "message"
    """Any other consensus message."""
    HEARTBEAT = "heartbeat"
    TERM = "term"
    """A term and a vote are durable."""
    TRUNCATE = "truncate"
    """The end of a log was replaced, or could not be written."""
    PERSIST = "persist"
    """Entries are durable in the log."""
    COMMIT = "commit"
    CONFIG = "config"
    """A replica has another config, or a config is committed."""
    APPLY = "apply"
    CLIENT = "client"
    """An operation of a client, its answer, and the messages between clients and nodes."""


class NodeStarted(msgspec.Struct, frozen=True, kw_only=True, tag="started"):
    """A replica was restored from what its node has read back from its disk."""

    at_us: int
    node: int
    term: int
    voted_for: int | None
    base: OpId
    last: OpId
    commit: int


class NodeChanged(msgspec.Struct, frozen=True, kw_only=True, tag="node"):
    """The process, the disk or the clock of a node has changed."""

    at_us: int
    node: int
    change: NodeChange


class LinksChanged(msgspec.Struct, frozen=True, kw_only=True, tag="links"):
    """Directed links were cut or mended."""

    at_us: int
    links: tuple[NetworkLink, ...]
    cut: bool


class RoleChanged(msgspec.Struct, frozen=True, kw_only=True, tag="role"):
    """A replica has another role, term or leader, or has begun or stopped to serve."""

    at_us: int
    node: int
    role: str
    term: int
    leader: int | None
    serving: bool


class TermSaved(msgspec.Struct, frozen=True, kw_only=True, tag="term"):
    """A term and the vote in it are durable."""

    at_us: int
    node: int
    term: int
    voted_for: int | None


class LogWritten(msgspec.Struct, frozen=True, kw_only=True, tag="log"):
    """The replicated log has reported the outcome of an append.

    Attributes:
        replace_from: everything at and above this index was removed first.
        first, last: op ids of the appended entries; ``None`` for an append without entries.
        error: why the append failed; empty if it is durable.
    """

    at_us: int
    node: int
    replace_from: int | None
    first: OpId | None
    last: OpId | None
    error: str


class CommitIndexRaised(msgspec.Struct, frozen=True, kw_only=True, tag="commit"):
    """A core has reported a higher commit index."""

    at_us: int
    node: int
    index: int


class TraceMember(msgspec.Struct, frozen=True, kw_only=True):
    """One member of a config. ``node`` is ``None`` for a member that is no node of the run."""

    node: int | None
    member_type: str


class ReplicaConfigChanged(msgspec.Struct, frozen=True, kw_only=True, tag="config"):
    """A replica has another config, or is the first one to know that a config is committed.

    Attributes:
        op_id: op id of the entry that contains the config.
        committed: the replica knows that this config is committed.
    """

    at_us: int
    node: int
    op_id: OpId
    committed: bool
    members: tuple[TraceMember, ...]


class ReplicaAppliedEntry(msgspec.Struct, frozen=True, kw_only=True, tag="apply"):
    """A replica has applied an entry."""

    at_us: int
    node: int
    op_id: OpId


class OperationBegun(msgspec.Struct, frozen=True, kw_only=True, tag="invoked"):
    """A client has begun an operation."""

    at_us: int
    client: str
    sequence: int
    action: str
    keys: tuple[int, ...]


class OperationAnswered(msgspec.Struct, frozen=True, kw_only=True, tag="answered"):
    """A client has received an answer of a node."""

    at_us: int
    client: str
    sequence: int
    action: str
    node: int
    answer: str


class MessageSent(msgspec.Struct, kw_only=True, tag="message"):
    """A message between two nodes, or between a client and a node.

    Attributes:
        name: name of the message on the wire.
        fields: the fields of a consensus message that differ from their defaults.
        first, last: op ids of the entries that it carries; ``None`` for none.
        arrived_us: times at which the message and its duplicates have arrived.
        lost_us: times at which the message and its duplicates were lost.
    """

    at_us: int
    sender: int
    receiver: int
    name: str
    kind: TraceKind
    fields: dict[str, Any] = msgspec.field(default_factory=dict)
    first: OpId | None = None
    last: OpId | None = None
    arrived_us: list[int] = msgspec.field(default_factory=list)
    lost_us: list[int] = msgspec.field(default_factory=list)


class ViolationFound(msgspec.Struct, frozen=True, kw_only=True, tag="violation"):
    """An invariant was violated. The run ends here."""

    at_us: int
    invariant: str
    detail: str


_OfNode: TypeAlias = (
    NodeStarted
    | NodeChanged
    | RoleChanged
    | TermSaved
    | LogWritten
    | CommitIndexRaised
    | ReplicaConfigChanged
    | ReplicaAppliedEntry
)
TraceRecord: TypeAlias = _OfNode | LinksChanged | OperationBegun | OperationAnswered | MessageSent | ViolationFound


class RunTrace(msgspec.Struct, frozen=True, kw_only=True):
    """The trace of a run: its result, and its records in order of time.

    Attributes:
        nodes: number of nodes.
        healed_us: time at which all faults end; the end of the run if it ended earlier.
    """

    result: RunResult
    nodes: int
    healed_us: int
    records: tuple[TraceRecord, ...]

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The faults that were scheduled."""
        return self.result.plan
