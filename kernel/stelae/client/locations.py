"""Locations of tables: their tablets, and the members of each tablet.

In a cluster with masters, the masters have the locations (``stelae.client.catalog``). Without masters, they come from a
file, or from the nodes themselves."""

from __future__ import annotations

import tomllib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from stelae.client.call_times import TIMEOUT_S
from stelae.partition.partitioning import Partitioning
from stelae.partition.plain_partitioning import partition_schema_from_plain
from stelae.partition.schema import BadPartitioning, PartitionSchema
from stelae.protocol.nearest_names import listed
from stelae.spi.errors import BadIdentifier, CallerError, ConfigError, StelaeError
from stelae.spi.ids import NodeId, TabletId, node_id, tablet_id
from stelae.spi.schema import Schema

Members = tuple[tuple[NodeId, str], ...]
"""Node id and address of each member of a tablet."""


class NoSuchTable(CallerError, code="NO_SUCH_TABLE"):
    """The cluster, or the locations file, has no table of this name."""

    def __init__(self, name: str, known: Sequence[str], fact: str = "") -> None:
        super().__init__(f"{fact or f'no table {name[:80]!r}'}; there are: {listed(known, name)}")


class TabletLocation(msgspec.Struct, frozen=True):
    """The location of one tablet."""

    tablet_id: TabletId
    members: Members = ()  #: Empty: the nodes that the client is connected to are asked for them.


class TableLocation(msgspec.Struct, frozen=True):
    """The location of one table."""

    name: str
    schema: Schema
    partition_schema: PartitionSchema
    tablets: tuple[TabletLocation, ...]  #: One for each partition, in the order of the partitions.
    table_id: str = ""  #: Identifies the table across renames. Empty: the table is identified by its name.
    replicas: int = 0  #: Number of replicas of each tablet, as the masters have it; 0: there are no masters.

    def __post_init__(self) -> None:
        if len(self.tablets) != self.partition_schema.count:
            what = f"{self.partition_schema.count} partitions and {len(self.tablets)} tablets"
            raise BadPartitioning(f"table {self.name!r} has {what}; it needs one tablet for each, in their order")
        names = [tablet.tablet_id for tablet in self.tablets]
        if len(set(names)) != len(names):
            raise BadPartitioning(f"table {self.name!r} names a tablet twice")

    def partitioning(self) -> Partitioning:
        """Return the partitioning of rows with the table's schema."""
        return Partitioning(self.schema, self.partition_schema)


SchemaOf = Callable[[TabletLocation], Awaitable[Schema]]
"""Asks a tablet for its schema. The tablet has the newest one, because schemas are entries of its log."""


class Locations(ABC):
    """Finds tables."""

    @abstractmethod
    async def tables(self) -> Sequence[str]:
        """Return the names of all tables, sorted."""

    @abstractmethod
    async def find(self, name: str, *, timeout_s: float = TIMEOUT_S) -> TableLocation:
        """Return the location of a table.

        Raises:
            NoSuchTable: there is no table of that name.
            Unavailable: no answer came in time, or not all tablets of the table serve yet.
        """


class NodeLocations(Locations):
    """Finds tables on the nodes that the client is connected to. Each tablet is a table with the name of the tablet.

    Args:
        tablets: returns the tablets of the nodes.
        schema_of: returns the schema of a tablet.
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
    """Finds tables in a TOML file::

        [tables.readings]
        partition.hash = [{columns = ["sensor"], buckets = 2}]
        tablets = [
            {id = "readings-0", members = [{uuid = "...", address = "127.0.0.1:7051"}]},
            {id = "readings-1", members = [{uuid = "...", address = "127.0.0.1:7052"}]},
        ]

    A tablet without ``members`` must be on the nodes that the client is connected to.

    Raises:
        ConfigError: the file cannot be read, or does not have this form.
    """

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
