"""Where tables are: their tablets, and the members of each.

Masters know it (``stelae.client.catalog``); without any it comes from a static file, or from the nodes themselves."""

from __future__ import annotations

import tomllib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from stelae.client.connection import TIMEOUT_S
from stelae.partition.partitioning import Partitioning
from stelae.partition.plain_partitioning import partition_schema_from_plain
from stelae.partition.schema import BadPartitioning, PartitionSchema
from stelae.protocol.nearest_names import listed
from stelae.spi.errors import BadIdentifier, CallerError, ConfigError, StelaeError
from stelae.spi.ids import NodeId, TabletId, node_id, tablet_id
from stelae.spi.schema import Schema

Members = tuple[tuple[NodeId, str], ...]


class NoSuchTable(CallerError, code="NO_SUCH_TABLE"):
    """A table that the cluster, or the locations file, does not have."""

    def __init__(self, name: str, known: Sequence[str], fact: str = "") -> None:
        super().__init__(f"{fact or f'no table {name[:80]!r}'}; there are: {listed(known, name)}")


class TabletLocation(msgspec.Struct, frozen=True):
    """One tablet; without ``members`` whoever was connected to is asked for them."""

    tablet_id: TabletId
    members: Members = ()


class TableLocation(msgspec.Struct, frozen=True):
    """One table: ``tablets`` are in the order of the partitions, one for each."""

    name: str
    schema: Schema
    partition_schema: PartitionSchema
    tablets: tuple[TabletLocation, ...]
    table_id: str = ""  #: By which it is found again, whatever it is called by then; empty: by its name.

    def __post_init__(self) -> None:
        if len(self.tablets) != self.partition_schema.count:
            what = f"{self.partition_schema.count} partitions and {len(self.tablets)} tablets"
            raise BadPartitioning(f"table {self.name!r} has {what}; it needs one tablet for each, in their order")
        names = [tablet.tablet_id for tablet in self.tablets]
        if len(set(names)) != len(names):
            raise BadPartitioning(f"table {self.name!r} names a tablet twice")

    def partitioning(self) -> Partitioning:
        """The partition schema, bound to the table's."""
        return Partitioning(self.schema, self.partition_schema)


SchemaOf = Callable[[TabletLocation], Awaitable[Schema]]
"""Asks a tablet for its schema: a tablet knows it best, since schemas are entries of its log."""


class Locations(ABC):
    """Finds tables."""

    @abstractmethod
    async def tables(self) -> Sequence[str]:
        """Return the names of all tables, sorted."""

    @abstractmethod
    async def find(self, name: str, *, timeout_s: float = TIMEOUT_S) -> TableLocation:
        """Return where a table is; ``NoSuchTable``: there is none of that name. ``Unavailable``: nobody could say in
        time, or its tablets do not all serve yet."""


class NodeLocations(Locations):
    """Each tablet of the nodes that were connected to is a table of its own, under the tablet's name.

    Args:
        tablets: asks the nodes which tablets they have.
        schema_of: asks a tablet.
    """

    def __init__(self, tablets: Callable[[], Awaitable[Sequence[TabletId]]], schema_of: SchemaOf) -> None:
        self._tablets = tablets
        self._schema_of = schema_of

    async def tables(self) -> Sequence[str]:
        return sorted({*await self._tablets()})

    async def find(self, name: str, *, timeout_s: float = TIMEOUT_S) -> TableLocation:
        known = await self.tables()
        if name not in known:
            raise NoSuchTable(name, known)
        location = TabletLocation(tablet_id(name))
        return TableLocation(name, await self._schema_of(location), PartitionSchema(), (location,))


class FileLocations(Locations):
    """Tables that a TOML file describes::

        [tables.readings]
        partition.hash = [{columns = ["sensor"], buckets = 2}]
        tablets = [
            {id = "readings-0", members = [{uuid = "...", address = "127.0.0.1:7051"}]},
            {id = "readings-1", members = [{uuid = "...", address = "127.0.0.1:7052"}]},
        ]

    Without ``members`` the nodes that were connected to must host the tablet. ``ConfigError``: the file cannot be
    read, or is not as described."""

    def __init__(self, path: str | Path, schema_of: SchemaOf) -> None:
        self._path = str(path)
        self._schema_of = schema_of
        try:
            read = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"the locations file cannot be read: {error}", where=self._path) from error
        tables = read.get("tables")
        if set(read) != {"tables"} or not isinstance(tables, Mapping):
            raise self._wrong(f"expected [tables.NAME] and nothing else, found: {', '.join(sorted(read)) or 'nothing'}")
        self._tables: Mapping[str, Any] = tables
        self._tablets = {name: self._read_tablets(name, table) for name, table in tables.items()}

    async def tables(self) -> Sequence[str]:
        return sorted(self._tables)

    async def find(self, name: str, *, timeout_s: float = TIMEOUT_S) -> TableLocation:
        if name not in self._tables:
            raise NoSuchTable(name, list(self._tables))
        tablets = self._tablets[name]
        schema = await self._schema_of(tablets[0])
        try:
            scheme = partition_schema_from_plain(schema, self._tables[name].get("partition", {}))
            return TableLocation(name, schema, scheme, tablets)
        except BadPartitioning as error:
            raise self._wrong(f"table {name!r}: {error}") from error

    def _read_tablets(self, name: str, table: Any) -> tuple[TabletLocation, ...]:
        if not isinstance(table, Mapping) or set(table) - {"partition", "tablets"}:
            raise self._wrong(f"table {name!r} has partition and tablets, and nothing else")
        listed = table.get("tablets")
        if not isinstance(listed, list) or not listed:
            raise self._wrong(f"table {name!r} needs tablets, a list of {{id, members}}")
        try:
            return tuple(
                TabletLocation(
                    tablet_id(one["id"]),
                    tuple((node_id(member["uuid"]), str(member["address"])) for member in one.get("members", ())),
                )
                for one in listed
            )
        except (KeyError, TypeError, AttributeError, BadIdentifier) as error:
            fact = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise self._wrong(f"table {name!r}: a tablet is {{id, members = [{{uuid, address}}]}}: {fact}") from error

    def _wrong(self, fact: str) -> StelaeError:
        return ConfigError(fact, where=self._path)
