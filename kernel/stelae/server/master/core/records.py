"""The records of the catalog: a frozen one for each table, tablet, server, client and answered request.

Small records of removed tables and tablets are kept for ever. Without them, masters could not distinguish a leftover
replica from a tablet of another cluster, which is never deleted (source, *All state changes must be fenced*)."""

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
    """The key of a record: its kind, and its name within the kind."""

    kind: str
    id: str


class TableRecord(msgspec.Struct, frozen=True, array_like=True, kw_only=True, dict=True, tag="table"):
    """One table. If it is removed, ``schema`` and ``partition_schema`` are empty."""

    table_id: TableId
    name: str
    state: TableState
    schema: bytes  #: ``Schema.to_bytes`` of the newest version.
    partition_schema: bytes  #: ``PartitionSchema.to_bytes``.
    replication_factor: int
    consensus: str  #: The consensus engine of all its tablets. A tablet has only one.
    next_column_id: int  #: Greater than every column id that was ever used.
    changed_us: int  #: Wall time of the last change.
    fully_applied: bytes | None = None  #: While ALTERING: the schema that every tablet knows.
    purge_us: int = 0  #: While SOFT_DELETED: the wall time at which it is removed.
    #: The schemas that tablets began with, by version. A replica that is created late begins with the same one. Its
    #: log brings every later one.
    first_schemas: tuple[tuple[int, bytes], ...] = ()

    @property
    def key(self) -> Key:
        """Key of the record in the catalog."""
        return Key("table", self.table_id)

    @property
    def terminal(self) -> bool:
        """Whether its state is terminal."""
        return self.state in TERMINAL_TABLE

    @cached_property
    def newest(self) -> Schema:
        """The newest schema. A removed table has none."""
        return Schema.from_bytes(self.schema)

    @cached_property
    def visible(self) -> Schema:
        """The schema that clients get. Every tablet knows it."""
        return self.newest if self.fully_applied is None else Schema.from_bytes(self.fully_applied)

    def schema_of(self, tablet: TabletRecord) -> bytes:
        """Return the schema that the replicas of a tablet begin with."""
        return dict(self.first_schemas).get(tablet.first_schema, self.schema)

    @cached_property
    def partitioning(self) -> PartitionSchema:
        """How rows are distributed over tablets. A removed table has no partitioning."""
        return PartitionSchema.from_bytes(self.partition_schema)


class TabletRecord(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag="tablet"):
    """One tablet.

    If it is removed or replaced, ``partition`` is empty, and ``config`` names the nodes that may still hold it."""

    tablet_id: TabletId
    table_id: TableId
    state: TabletState
    partition: Partition
    since_us: int  #: Wall time at which it entered its state.
    config: TabletConfig | None = None  #: The newest committed config that was reported; at first the initial one.
    replaced_by: TabletId | None = None
    #: Nodes whose replica has lost its last op id: never a member again under that id (``durability.md`` rule 19).
    barred: tuple[NodeId, ...] = ()
    first_schema: int = 0  #: Version of the schema that its replicas begin with.
    #: Nodes that have reported a replica while its first config was in force. A node that has none later has lost it,
    #: and may not create an empty one, which could vote against acknowledged entries.
    begun: tuple[NodeId, ...] = ()

    @property
    def has_first_config(self) -> bool:
        """Whether its first config is in force, whose entry is the first of the log."""
        return self.config is not None and self.config.op_id.index <= 1

    def has_yet_to_begin(self, node_id: NodeId) -> bool:
        """Return whether a node is a first member that has never reported a replica, so that it may create an empty
        one.

        It is so only while the first config is in force. Later members get a copy. A replica that was reported and is
        missing now has been lost, with the entries that it acknowledged."""
        is_first = self.has_first_config and self.config is not None and self.config.member(node_id) is not None
        return is_first and node_id not in self.begun and node_id not in self.barred

    @property
    def key(self) -> Key:
        """Key of the record in the catalog."""
        return Key("tablet", self.tablet_id)

    @property
    def terminal(self) -> bool:
        """Whether its state is terminal."""
        return self.state in TERMINAL_TABLET


class ServerRecord(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag="server"):
    """One tablet server that has sent a heartbeat to a leader."""

    node_id: NodeId
    address: str
    location: str = ""  #: ``/dc/rack/host`` or empty.
    mode: ServerMode = ServerMode.NORMAL

    @property
    def key(self) -> Key:
        """Key of the record in the catalog."""
        return Key("server", self.node_id)


class ClusterRecord(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag="cluster"):
    """The cluster. It is written once."""

    cluster_id: ClusterId
    created_us: int  #: Wall time. It tells the cluster from others that have the same id by mistake.

    @property
    def key(self) -> Key:
        """Key of the record in the catalog."""
        return Key("cluster", "cluster")


class RequestRecord(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag="request"):
    """The answer to one change of a table. It is in the batch of the change, so the change happens exactly once."""

    client_id: ClientId
    sequence: int
    digest: int  #: 64-bit hash of the request.
    answer: bytes
    decided_us: int  #: Wall time.

    @property
    def key(self) -> Key:
        """Key of the record in the catalog."""
        return request_key(self.client_id, self.sequence)


class ClientRecord(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag="client"):
    """The floor of a client: answers up to this sequence are forgotten, and such requests are refused."""

    client_id: ClientId
    floor: int
    changed_us: int

    @property
    def key(self) -> Key:
        """Key of the record in the catalog."""
        return Key("client", self.client_id)


Record: TypeAlias = TableRecord | TabletRecord | ServerRecord | ClusterRecord | RequestRecord | ClientRecord

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)


def request_key(client_id: ClientId, sequence: int) -> Key:
    """Return the key of the answer to a request."""
    return Key("request", f"{client_id}/{sequence}")


def encode_record(record: Record) -> bytes:
    """Return the stored form of a record."""
    return _ENCODER.encode(record)


def decode_record(data: bytes) -> Record:
    """Return the record that :func:`encode_record` encoded. Raises ``Corrupt`` if it is none."""
    try:
        return _DECODER.decode(data)
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"not a record of the catalog: {error}") from error
