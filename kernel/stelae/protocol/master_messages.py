"""The requests of clients to masters, and their answers.

A change has the identity ``(client id, sequence, first incomplete)``, as a write does. It has one effect and one
answer, wherever and however often it is retried. It names its table by id or by name. The constants are message
kinds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import mmh3
import msgspec

from stelae.partition.schema import KeyRange, Partition
from stelae.protocol.catalog_names import ServerMode, TableId, TableState, TabletState
from stelae.spi.errors import SchemaMismatch
from stelae.spi.ids import ZERO, ClientId, NodeId, OpId, TabletId
from stelae.spi.members import TabletConfig
from stelae.spi.policy import PolicySnapshot

CHANGE = "master.change"
READ = "master.read"


class CreateTable(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Create a table. ``schema`` and ``partition_schema`` are encoded; the schema is of version 1.

    Column ids are 1 to ``COLUMN_ID_MAX`` (``stelae.spi.schema``). The ids of later columns follow the highest one."""

    name: str
    schema: bytes
    partition_schema: bytes
    replication_factor: int = 3
    consensus: str = "raft"


class AddColumn(msgspec.Struct, frozen=True, tag=True, tag_field="step"):
    """Add a column after all others. It must be nullable or have a default."""

    name: str
    type: str
    nullable: bool = True
    default: Any = None  #: A plain value, not a list or a map: ``SchemaMismatch``.

    def __post_init__(self) -> None:
        _check_default(self.name, self.default)


def _check_default(column: str, default: Any) -> None:
    """Refuse a default that contains other values, which may be nested so deeply that it can be decoded, and cannot be
    encoded or printed again."""
    if isinstance(default, list | dict):
        found = "list" if isinstance(default, list) else "map"
        raise SchemaMismatch(f"the default of column {column[:80]!r} is a {found}: expected one plain value")


class DropColumn(msgspec.Struct, frozen=True, tag=True, tag_field="step"):
    """Drop a column that is not a key column. Its id is never reused."""

    name: str


class RenameColumn(msgspec.Struct, frozen=True, tag=True, tag_field="step"):
    """Rename a column. No data changes."""

    name: str
    to: str


class SetDefault(msgspec.Struct, frozen=True, tag=True, tag_field="step"):
    """Change the default of a column, or remove it with ``None``."""

    name: str
    default: Any  #: A plain value, not a list or a map: ``SchemaMismatch``.

    def __post_init__(self) -> None:
        _check_default(self.name, self.default)


class RenameTable(msgspec.Struct, frozen=True, tag=True, tag_field="step"):
    """Rename the table."""

    to: str


class SetReplicas(msgspec.Struct, frozen=True, tag=True, tag_field="step"):
    """Set the number of replicas of each tablet. The masters add and remove replicas after the change."""

    count: int  #: Odd, and at most ``[master] replication_factor_max``.


class AddRange(msgspec.Struct, frozen=True, tag=True, tag_field="step"):
    """Add a range of encoded range columns. It gets its own tablets."""

    range: KeyRange


class DropRange(msgspec.Struct, frozen=True, tag=True, tag_field="step"):
    """Drop a range with all its rows."""

    range: KeyRange


AlterStep: TypeAlias = (
    AddColumn | DropColumn | RenameColumn | SetDefault | RenameTable | SetReplicas | AddRange | DropRange
)


class AlterTable(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Alter a table by these steps, in this order: all of them or none."""

    table: str
    steps: tuple[AlterStep, ...]


class DeleteTable(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Delete a table. It can be recalled for ``keep_ms`` milliseconds."""

    table: str
    keep_ms: int = 0


class RecallTable(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Recall a soft-deleted table. ``name`` is a new name, if another table has its old one now."""

    table_id: TableId
    name: str | None = None


class SetServerMode(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Set the mode of a tablet server."""

    node_id: NodeId
    mode: ServerMode


class AdoptedTablet(msgspec.Struct, frozen=True, kw_only=True):
    """A tablet that tablet servers have, and the catalog does not."""

    tablet_id: TabletId
    partition: Partition
    config: TabletConfig  #: The newest committed config that a replica has.


class AdoptTable(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Take a table into the catalog that is on tablet servers only, because the catalog was lost.

    ``schema`` and ``partition_schema`` are encoded."""

    table_id: TableId  #: The id that its replicas have on record.
    name: str
    schema: bytes  #: The newest version that a replica has.
    applied: bytes | None = None  #: The oldest version that the newest replica of a tablet has, if it is another one.
    next_column_id: int  #: Greater than every column id in any version, and at most ``COLUMN_ID_MAX + 1``.
    partition_schema: bytes
    replication_factor: int
    consensus: str
    tablets: tuple[AdoptedTablet, ...]
    create_missing: bool = False  #: Create an empty tablet for each partition without one.


Change: TypeAlias = CreateTable | AlterTable | DeleteTable | RecallTable | SetServerMode | AdoptTable


class ChangeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One change with its identity."""

    client_id: ClientId
    sequence: int
    first_incomplete: int  #: Every change with a lower sequence number has been answered.
    change: Change

    @property
    def digest(self) -> int:
        """A 64-bit hash of the change. It tells a retry from another change with the same identity."""
        return mmh3.mmh3_x64_128_utupledigest(msgspec.msgpack.encode(self.change))[0] >> 1


class ChangeReply(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The change is committed. No failure can undo it."""

    table_id: TableId | None
    schema_version: int = 0


class ChangeRefused(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The change was refused. The refusal is stored like a reply, so that a delayed retry cannot succeed after it."""

    code: str
    detail: str


ChangeOutcome: TypeAlias = ChangeReply | ChangeRefused
"""The final outcome of a change."""

_VERDICT: msgspec.msgpack.Decoder[ChangeOutcome] = msgspec.msgpack.Decoder(ChangeOutcome)


def encode_outcome(verdict: ChangeOutcome) -> bytes:
    """Encode an outcome for the catalog."""
    return msgspec.msgpack.encode(verdict)


def decode_outcome(data: bytes) -> ChangeOutcome:
    """Decode the bytes of :func:`encode_outcome`."""
    return _VERDICT.decode(data)


class ListTables(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Ask for the list of tables, optionally with soft-deleted ones."""

    soft_deleted: bool = False


class GetTable(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Ask for a table, by id or name, with its tablets and their members."""

    table: str


class AreCurrent(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Ask whether a table has exactly these tablets, by their :func:`tablets_digest`.

    The tablets of a range do not count until all of them are running, because no client knows of the range before."""

    table: str
    digest: int


class ListServers(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Ask for the list of tablet servers."""


POLICY_TABLETS_MAX = 1000
"""The most tablets of one ``PolicyPart``. It bounds the time of a master's step and the size of the message."""


class GetPolicyPart(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Ask for the cluster as the masters' policy sees it: all servers, and the next tablets after ``after``.

    An answer has at most ``POLICY_TABLETS_MAX`` tablets."""

    after: TabletId = TabletId("")


Question: TypeAlias = ListTables | GetTable | AreCurrent | ListServers | GetPolicyPart


class CatalogReadRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A read of the catalog."""

    question: Question
    staleness_ms: int = 0  #: How old the answer may be. 0: the leader answers, and the read is linearizable.


class TableSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One table of a ``TableList``."""

    table_id: TableId
    name: str
    state: TableState


class TableList(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The answer to ``ListTables``, in order of names."""

    tables: tuple[TableSummary, ...]


class TabletPlace(msgspec.Struct, frozen=True, kw_only=True):
    """One tablet of a table. Without ``members`` it does not exist yet: ask again."""

    tablet_id: TabletId
    state: TabletState
    partition: Partition
    members: tuple[tuple[NodeId, str], ...] = ()
    learners: tuple[NodeId, ...] = ()  #: Those of the members that have no vote.
    leader: NodeId | None = None
    config: OpId = ZERO  #: The op id of the config with these members, as the masters know it. The higher one is newer.
    waits_for: str = ""  #: What a tablet that is not running yet waits for, for people.


class TableDescription(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The answer to ``GetTable``. ``tablets`` has one tablet for each partition, in the order of partitions."""

    table_id: TableId
    name: str
    state: TableState
    schema: bytes
    partition_schema: bytes
    replication_factor: int
    tablets: tuple[TabletPlace, ...]


class Currency(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The answer to ``AreCurrent``."""

    current: bool


class ServerLine(msgspec.Struct, frozen=True, kw_only=True):
    """One server of a ``ServerList``."""

    node_id: NodeId
    address: str
    location: str
    mode: ServerMode
    #: The time since its last heartbeat to this master; ``None`` if there was none since the master started.
    silent_ms: int | None


class ServerList(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The answer to ``ListServers``, in order of node ids."""

    servers: tuple[ServerLine, ...]


class PolicyPart(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The answer to ``GetPolicyPart``, in order of tablet ids."""

    snapshot: PolicySnapshot
    more: bool  #: There are more tablets after the last one.


CatalogAnswer: TypeAlias = TableList | TableDescription | Currency | ServerList | PolicyPart


def tablets_digest(tablets: Iterable[TabletId]) -> int:
    """Return a 64-bit hash of a set of tablets.

    Tablet ids are never reused and the partition of a tablet never changes, so it is also a hash of the partitions."""
    return mmh3.mmh3_x64_128_utupledigest(" ".join(sorted(tablets)).encode())[0] >> 1
