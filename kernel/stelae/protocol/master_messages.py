"""What clients ask of masters, and what they are told.

A change carries ``(client id, sequence, first incomplete)`` as a write does: sent again to any master, any number of
times, it has one effect and one answer. It names its table by id or by name. Kinds are what travels beside them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import mmh3
import msgspec

from stelae.partition.schema import KeyRange, Partition
from stelae.protocol.catalog_names import ServerMode, TableId, TableState, TabletState
from stelae.spi.ids import ClientId, NodeId, TabletId
from stelae.spi.policy import PolicySnapshot

CHANGE = "master.change"
READ = "master.read"


class CreateTable(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Create a table. ``schema`` and ``partition_schema`` are encoded; the schema is of version 1."""

    name: str
    schema: bytes
    partition_schema: bytes
    replication_factor: int = 3
    consensus: str = "raft"


class AddColumn(msgspec.Struct, frozen=True, tag=True, tag_field="step"):
    """Add a column behind all others; it is nullable, or has a default."""

    name: str
    type: str
    nullable: bool = True
    default: Any = None


class DropColumn(msgspec.Struct, frozen=True, tag=True, tag_field="step"):
    """Drop a column that is not of the key. Its id is never given out again."""

    name: str


class RenameColumn(msgspec.Struct, frozen=True, tag=True, tag_field="step"):
    """Call a column by another name; nothing of it moves."""

    name: str
    to: str


class SetDefault(msgspec.Struct, frozen=True, tag=True, tag_field="step"):
    """Give a column another default; ``None``: take it away."""

    name: str
    default: Any


class RenameTable(msgspec.Struct, frozen=True, tag=True, tag_field="step"):
    """Call the table by another name."""

    to: str


class AddRange(msgspec.Struct, frozen=True, tag=True, tag_field="step"):
    """Add a range of encoded range columns, with tablets of its own."""

    range: KeyRange


class DropRange(msgspec.Struct, frozen=True, tag=True, tag_field="step"):
    """Drop a range, and every row in it."""

    range: KeyRange


AlterStep: TypeAlias = AddColumn | DropColumn | RenameColumn | SetDefault | RenameTable | AddRange | DropRange


class AlterTable(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Take these steps in this order, all of them or none."""

    table: str
    steps: tuple[AlterStep, ...]


class DeleteTable(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Delete a table: for good, or so that it can be recalled for ``keep_ms``."""

    table: str
    keep_ms: int = 0


class RecallTable(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Bring a soft-deleted table back; ``name`` when its own has been taken meanwhile."""

    table_id: TableId
    name: str | None = None


class SetServerMode(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Say what an operator wants of a tablet server."""

    node_id: NodeId
    mode: ServerMode


Change: TypeAlias = CreateTable | AlterTable | DeleteTable | RecallTable | SetServerMode


class ChangeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One change, with its identity. ``first_incomplete``: every lower sequence has been answered."""

    client_id: ClientId
    sequence: int
    first_incomplete: int
    change: Change

    @property
    def digest(self) -> int:
        """64-bit hash of the change: tells a retry from another use of its identity."""
        return mmh3.mmh3_x64_128_utupledigest(msgspec.msgpack.encode(self.change))[0] >> 1


class ChangeReply(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A change that is committed: it can be neither lost nor undone by a failure."""

    table_id: TableId | None
    schema_version: int = 0


class ChangeRefused(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A change that cannot be. It is kept like a reply: a late copy of the request must not succeed after it."""

    code: str
    detail: str


ChangeOutcome: TypeAlias = ChangeReply | ChangeRefused
"""What a change comes to, for good."""

_VERDICT: msgspec.msgpack.Decoder[ChangeOutcome] = msgspec.msgpack.Decoder(ChangeOutcome)


def encode_outcome(verdict: ChangeOutcome) -> bytes:
    """Return the form in which the catalog keeps it."""
    return msgspec.msgpack.encode(verdict)


def decode_outcome(data: bytes) -> ChangeOutcome:
    """Read what :func:`encode_outcome` wrote."""
    return _VERDICT.decode(data)


class ListTables(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Which tables there are; with those that can be recalled, if asked for."""

    soft_deleted: bool = False


class GetTable(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A table, by id or by name, with its tablets and where they are."""

    table: str


class AreCurrent(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Whether tablets are those that hold the rows of a table, by their :func:`tablets_digest`.

    Of a range whose tablets do not all run yet none counts: nobody has been told that it takes rows."""

    table: str
    digest: int


class ListServers(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Which tablet servers are on record."""


POLICY_TABLETS_MAX = 1000
"""Tablets of one ``PolicyPart``: as many as a step of a master may look at, and a message may hold."""


class GetPolicyPart(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The cluster as the masters' policy sees it: all servers, and ``POLICY_TABLETS_MAX`` tablets behind ``after``."""

    after: TabletId = TabletId("")


Question: TypeAlias = ListTables | GetTable | AreCurrent | ListServers | GetPolicyPart


class CatalogReadRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A question. ``staleness_ms``: how old the answer may be; 0 asks the leader, and is linearizable."""

    question: Question
    staleness_ms: int = 0


class TableSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a list."""

    table_id: TableId
    name: str
    state: TableState


class TableList(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """CatalogAnswer to ``ListTables``, in order of names."""

    tables: tuple[TableSummary, ...]


class TabletPlace(msgspec.Struct, frozen=True, kw_only=True):
    """One tablet. Without ``members`` it is not there yet: ask again."""

    tablet_id: TabletId
    state: TabletState
    partition: Partition
    members: tuple[tuple[NodeId, str], ...] = ()
    leader: NodeId | None = None
    waits_for: str = ""  #: Of one that does not run yet: what it waits for, for people.


class TableDescription(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """CatalogAnswer to ``GetTable``. ``tablets`` are in the order of the partitions, one for each."""

    table_id: TableId
    name: str
    state: TableState
    schema: bytes
    partition_schema: bytes
    replication_factor: int
    tablets: tuple[TabletPlace, ...]


class Currency(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """CatalogAnswer to ``AreCurrent``."""

    current: bool


class ServerLine(msgspec.Struct, frozen=True, kw_only=True):
    """One server. ``silent_ms``: since this master heard of it; ``None``: never, since it started."""

    node_id: NodeId
    address: str
    location: str
    mode: ServerMode
    silent_ms: int | None


class ServerList(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """CatalogAnswer to ``ListServers``, in order of node ids."""

    servers: tuple[ServerLine, ...]


class PolicyPart(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """CatalogAnswer to ``GetPolicyPart``, in order of tablet ids. ``more``: others come behind its last one."""

    snapshot: PolicySnapshot
    more: bool


CatalogAnswer: TypeAlias = TableList | TableDescription | Currency | ServerList | PolicyPart


def tablets_digest(tablets: Iterable[TabletId]) -> int:
    """64-bit hash of a set of tablets. Ids are never used again and a partition stays that of its tablet, so that it
    tells the partitions of a table, too."""
    return mmh3.mmh3_x64_128_utupledigest(" ".join(sorted(tablets)).encode())[0] >> 1
