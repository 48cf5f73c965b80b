"""What the catalog holds: one frozen record for each table, tablet, server, client and answered request.

Records of removed tables and tablets are kept for ever, and small: without them an orphan could not be told from a
tablet of a foreign cluster, and nothing of the latter is ever deleted (source, *All state changes must be fenced*)."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple, TypeAlias

import msgspec

from stelae.partition.schema import Partition, PartitionSchema
from stelae.protocol.catalog_names import ServerMode, TableId, TableState, TabletState
from stelae.server.master.core.states import TERMINAL_TABLE, TERMINAL_TABLET
from stelae.spi.errors import Corrupt
from stelae.spi.ids import ClientId, ClusterId, NodeId, TabletId
from stelae.spi.members import TabletConfig
from stelae.spi.schema import Schema


class Key(NamedTuple):
    """Of a record: its kind, and its name within the kind."""

    kind: str
    id: str


class TableRecord(msgspec.Struct, frozen=True, array_like=True, kw_only=True, dict=True, tag="table"):
    """One table. Of a removed one ``schema`` and ``partition_schema`` are empty."""

    table_id: TableId
    name: str
    state: TableState
    schema: bytes  #: ``Schema.to_bytes`` of the newest version.
    partition_schema: bytes  #: ``PartitionSchema.to_bytes``.
    replication_factor: int
    consensus: str  #: Engine of all its tablets; two never mix within one tablet.
    next_column_id: int  #: Above every id ever given out.
    changed_us: int  #: Wall time of the last change.
    fully_applied: bytes | None = None  #: While ALTERING: the schema that every tablet knows.
    purge_us: int = 0  #: While SOFT_DELETED: wall time from which it is removed.
    #: The schemas that tablets began with, by version: a replica that is made late begins with the same, and its log
    #: brings it every later one.
    first_schemas: tuple[tuple[int, bytes], ...] = ()

    @property
    def key(self) -> Key:
        """Where it stands in the catalog."""
        return Key("table", self.table_id)

    @property
    def terminal(self) -> bool:
        """Whether nothing leads out of its state."""
        return self.state in TERMINAL_TABLE

    @cached_property
    def newest(self) -> Schema:
        """The newest schema; not of a removed table."""
        return Schema.from_bytes(self.schema)

    @cached_property
    def visible(self) -> Schema:
        """The schema that clients are told: one that every tablet knows."""
        return self.newest if self.fully_applied is None else Schema.from_bytes(self.fully_applied)

    def schema_of(self, tablet: TabletRecord) -> bytes:
        """The schema that the replicas of a tablet begin with."""
        return dict(self.first_schemas).get(tablet.first_schema, self.schema)

    @cached_property
    def partitioning(self) -> PartitionSchema:
        """How rows are spread; not of a removed table."""
        return PartitionSchema.from_bytes(self.partition_schema)


class TabletRecord(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag="tablet"):
    """One tablet. Of a removed or replaced one ``partition`` is empty and ``config`` says who may still hold it."""

    tablet_id: TabletId
    table_id: TableId
    state: TabletState
    partition: Partition
    since_us: int  #: Wall time at which it came into its state.
    config: TabletConfig | None = None  #: Newest committed one that was reported; at first the initial one.
    replaced_by: TabletId | None = None
    #: Nodes whose replica has lost its last op id: never a member again under that name (``durability.md`` rule 19).
    barred: tuple[NodeId, ...] = ()
    first_schema: int = 0  #: Version of the schema that its replicas begin with.
    #: Nodes that have reported a replica while it ran. One that then has none has lost it, and does not begin anew: an
    #: empty replica would vote for what is acknowledged not to be there.
    begun: tuple[NodeId, ...] = ()

    def has_yet_to_begin(self, node_id: NodeId) -> bool:
        """Whether a first member has never reported a replica, so that it may be asked to create one.

        Only while the first config stands, whose entry is the first of the log: who joins later comes by a copy. A
        replica that was reported and is not there any more has been lost, with what it acknowledged."""
        is_first = self.config is not None and self.config.op_id.index <= 1 and self.config.member(node_id) is not None
        return is_first and node_id not in self.begun and node_id not in self.barred

    @property
    def key(self) -> Key:
        """Where it stands in the catalog."""
        return Key("tablet", self.tablet_id)

    @property
    def terminal(self) -> bool:
        """Whether nothing leads out of its state."""
        return self.state in TERMINAL_TABLET


class ServerRecord(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag="server"):
    """One tablet server that some leader has heard of."""

    node_id: NodeId
    address: str
    location: str = ""  #: ``/dc/rack/host`` or empty.
    mode: ServerMode = ServerMode.NORMAL

    @property
    def key(self) -> Key:
        """Where it stands in the catalog."""
        return Key("server", self.node_id)


class ClusterRecord(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag="cluster"):
    """The cluster: written once."""

    cluster_id: ClusterId
    created_us: int

    @property
    def key(self) -> Key:
        """Where it stands in the catalog."""
        return Key("cluster", "cluster")


class RequestRecord(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag="request"):
    """The answer to one change of a table, in the batch of the change: it makes the change exactly-once."""

    client_id: ClientId
    sequence: int
    digest: int  #: 64-bit hash of the request.
    answer: bytes
    decided_us: int  #: Wall time.

    @property
    def key(self) -> Key:
        """Where it stands in the catalog."""
        return request_key(self.client_id, self.sequence)


class ClientRecord(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag="client"):
    """Up to which sequence a client's answers have been forgotten: what comes again from there is refused."""

    client_id: ClientId
    floor: int
    changed_us: int

    @property
    def key(self) -> Key:
        """Where it stands in the catalog."""
        return Key("client", self.client_id)


Record: TypeAlias = TableRecord | TabletRecord | ServerRecord | ClusterRecord | RequestRecord | ClientRecord

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)


def request_key(client_id: ClientId, sequence: int) -> Key:
    """Return where the answer to a request stands."""
    return Key("request", f"{client_id}/{sequence}")


def encode_record(record: Record) -> bytes:
    """Return the form in which the system table stores a record."""
    return _ENCODER.encode(record)


def decode_record(data: bytes) -> Record:
    """Read what :func:`encode_record` wrote; ``Corrupt``: it is no record."""
    try:
        return _DECODER.decode(data)
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"not a record of the catalog: {error}") from error
