"""The catalog in memory: an immutable snapshot with its indexes. Each applied batch replaces it by the next one.

A reader that keeps a snapshot sees one state of the cluster. A snapshot depends on the applied batches alone, and
not on reports or liveness. So two masters that have applied the same entries have equal catalogs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar, assert_never

import msgspec

from stelae.protocol.catalog_names import TableId, TableState
from stelae.server.master.core.batches import CatalogBatch
from stelae.server.master.core.records import (
    ClientRecord,
    ClusterRecord,
    Key,
    Record,
    RequestRecord,
    ServerRecord,
    TableRecord,
    TabletRecord,
)
from stelae.spi.ids import ZERO, ClientId, NodeId, OpId, TabletId

TabletIds = tuple[TabletId, ...]


class Catalog(msgspec.Struct, frozen=True, kw_only=True):
    """One snapshot. Its maps are never changed."""

    applied: OpId = ZERO  #: Op id of the last applied entry.
    records: Mapping[Key, Record]
    names: Mapping[str, TableId]  #: Ids of the tables that clients can see, by name.
    tables: Mapping[TableId, TableRecord]  #: All tables, also removed ones.
    tablets: Mapping[TabletId, TabletRecord]  #: All tablets, also removed and replaced ones.
    of_table: Mapping[TableId, TabletIds]  #: Tablets that are not terminal, in order of their creation.
    servers: Mapping[NodeId, ServerRecord]
    clients: Mapping[ClientId, ClientRecord]
    requests: Mapping[ClientId, Mapping[int, RequestRecord]]
    cluster: ClusterRecord | None = None

    @classmethod
    def empty(cls) -> Catalog:
        """Return the catalog before the first batch."""
        return cls(records={}, names={}, tables={}, tablets={}, of_table={}, servers={}, clients={}, requests={})

    @classmethod
    def load(cls, records: Iterable[Record], applied: OpId) -> Catalog:
        """Return the snapshot with the records of a scan of the system table, as of an op id."""
        given = tuple(records)
        empty = cls.empty()
        return (
            empty.apply(CatalogBatch(puts=given), applied) if given else msgspec.structs.replace(empty, applied=applied)
        )

    def apply(self, batch: CatalogBatch | None, op_id: OpId) -> Catalog:
        """Return the snapshot after an entry. This one does not change. ``None``: the entry has no rows."""
        if batch is None:
            return msgspec.structs.replace(self, applied=op_id)
        return _Next(self).apply(batch, op_id)

    @property
    def cluster_created_us(self) -> int:
        """When the cluster was put on record; 0 if it was not. Two clusters with one id differ in it."""
        return 0 if self.cluster is None else self.cluster.created_us

    def table_named(self, name: str) -> TableRecord | None:
        """Return the table that clients see under a name."""
        table_id = self.names.get(name)
        return None if table_id is None else self.tables[table_id]

    def live_tablets(self, table_id: TableId) -> list[TabletRecord]:
        """Return the tablets of a table that are not terminal."""
        return [self.tablets[tablet_id] for tablet_id in self.of_table.get(table_id, ())]


_HIDDEN = (TableState.SOFT_DELETED, TableState.REMOVED)

K = TypeVar("K")
V = TypeVar("V")


class _Map(Generic[K, V]):
    """A map that is copied at its first change."""

    def __init__(self, before: Mapping[K, V]) -> None:
        self.now = before
        self._copy: dict[K, V] | None = None

    def edit(self) -> dict[K, V]:
        if self._copy is None:
            self.now = self._copy = dict(self.now)
        return self._copy


class _Next:
    """Builds the next snapshot."""

    def __init__(self, before: Catalog) -> None:
        self._before = before
        self._records = _Map(before.records)
        self._names = _Map(before.names)
        self._tables = _Map(before.tables)
        self._tablets = _Map(before.tablets)
        self._of_table = _Map(before.of_table)
        self._servers = _Map(before.servers)
        self._clients = _Map(before.clients)
        self._requests = _Map(before.requests)
        self._cluster = before.cluster
        self._members: dict[TableId, dict[TabletId, None]] = {}

    def apply(self, batch: CatalogBatch, op_id: OpId) -> Catalog:
        for record in batch.puts:
            self._records.edit()[record.key] = record
            self._put(record)
        for key in batch.drops:
            self._drop(self._records.edit().pop(key, None))
        for table_id, members in self._members.items():
            self._of_table.edit()[table_id] = tuple(members)
        return Catalog(
            applied=op_id,
            records=self._records.now,
            names=self._names.now,
            tables=self._tables.now,
            tablets=self._tablets.now,
            of_table=self._of_table.now,
            servers=self._servers.now,
            clients=self._clients.now,
            requests=self._requests.now,
            cluster=self._cluster,
        )

    def _put(self, record: Record) -> None:
        match record:
            case TableRecord():
                self._put_table(record)
            case TabletRecord():
                self._put_tablet(record)
            case ServerRecord():
                self._servers.edit()[record.node_id] = record
            case ClientRecord():
                self._clients.edit()[record.client_id] = record
            case RequestRecord():
                mine = self._requests.now.get(record.client_id, {})
                self._requests.edit()[record.client_id] = {**mine, record.sequence: record}
            case ClusterRecord():
                self._cluster = record
            case _:
                assert_never(record)

    def _put_table(self, record: TableRecord) -> None:
        old = self._tables.now.get(record.table_id)
        if old is not None and self._names.now.get(old.name) == old.table_id:
            del self._names.edit()[old.name]
        self._tables.edit()[record.table_id] = record
        if record.state not in _HIDDEN:
            self._names.edit()[record.name] = record.table_id

    def _put_tablet(self, record: TabletRecord) -> None:
        self._tablets.edit()[record.tablet_id] = record
        members = self._members.get(record.table_id)
        if members is None:
            members = self._members[record.table_id] = dict.fromkeys(self._of_table.now.get(record.table_id, ()))
        if record.terminal:
            members.pop(record.tablet_id, None)
        else:
            members[record.tablet_id] = None

    def _drop(self, record: Record | None) -> None:
        """Drop a record of exactly-once. A drop of another kind of record, or a second drop, has no effect."""
        if isinstance(record, ClientRecord):
            self._clients.edit().pop(record.client_id, None)
        elif isinstance(record, RequestRecord):
            left = {n: r for n, r in self._requests.now[record.client_id].items() if n != record.sequence}
            if left:
                self._requests.edit()[record.client_id] = left
            else:
                del self._requests.edit()[record.client_id]
        elif record is not None:
            self._records.edit()[record.key] = record
