"""The ``async`` client: connects to a cluster, and opens, creates, alters and drops its tables."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias
from weakref import WeakSet

from stelae.client.arguments import BadArgument, Compression, alter_step, seconds, takes_lz4, text, whole, whole_ms
from stelae.client.catalog import POLL_S, CatalogClient, CatalogLocations, find_catalog, find_tablet, tablets_of
from stelae.client.connection import ConnectedTablet, Connection
from stelae.client.contacts import Contacts, connect_by, contacts_of
from stelae.client.locations import FileLocations, Locations, NodeLocations, NoSuchTable, TableLocation, TabletLocation
from stelae.client.masters import AsyncMasters
from stelae.client.nearness import Nearness, is_own_host
from stelae.client.replicas import AsyncReplicas
from stelae.client.scan import AsyncScan
from stelae.client.session import FINISH_S, AsyncSession
from stelae.client.spread_tablet import SpreadTablet
from stelae.client.table import AsyncTable
from stelae.client.table_definition import Columns, definition, plain_defaults
from stelae.client.table_places import TablePlaces
from stelae.client.times import from_wall_us
from stelae.client.tokens import BadToken, ScanToken, checked_token
from stelae.client.write_methods import TIMEOUT_S
from stelae.client.write_retries import BACKOFF_S_MAX
from stelae.partition.schema import BadPartitioning
from stelae.protocol.catalog_names import TableId, TableState
from stelae.protocol.master_errors import NoTable
from stelae.protocol.master_messages import (
    AddColumn,
    AlterStep,
    AlterTable,
    DeleteTable,
    DropRange,
    RecallTable,
    RenameTable,
    SetDefault,
    TabletPlace,
)
from stelae.spi.errors import CallerError, RetryableError, SchemaMismatch, StelaeError, Unavailable
from stelae.spi.ids import NodeId, TabletId
from stelae.spi.schema import Schema
from stelae.wire.addresses import split_address

Addresses: TypeAlias = str | Sequence[str]
Tables: TypeAlias = str | Path | None

LAST_REPLICAS_S = 2.0
"""How long to wait for the last replicas of a dropped range after a majority is gone, in seconds."""


async def connect_async(
    addresses: Addresses,
    *,
    tables: Tables = None,
    location: str = "",
    contacts: Contacts | None = None,
    compression: Compression = "none",
    timeout_s: float = 10.0,
) -> AsyncClient:
    """Connect to a cluster.

    Args:
        addresses: ``"host:port,host:port"``, or a list of such addresses. At least one must answer.
        tables: a locations file (``stelae.client.locations``). ``None``: if the addresses are those of masters, or of
            tablet servers that know masters (one is enough), the masters have the tables; otherwise each tablet of the
            nodes is a table.
        location: ``/dc/rack/host`` of this program, or the beginning of it, as in ``tserver.location`` of the nodes.
            Reads that any replica may serve ask the nearest one first. Empty: the location of a node on this host.
        contacts: what ``contacts`` of an earlier client has returned. Its nodes are asked if none answers at the
            addresses, because all masters were replaced.
        compression: ``"lz4"``: servers compress the rows of scans and diffs where that makes them smaller. It pays on
            networks that are slower than 4.6 Gbit/s.
        timeout_s: how long to wait for an answer.

    Raises:
        Unavailable: no node answered in time.
        ConfigError: an address is not ``host:port``, or the file cannot be used.
    """
    timeout_s = seconds("timeout_s", timeout_s)
    if tables is not None and not isinstance(tables, str | PathLike):
        raise BadArgument("tables", "the path of a locations file, or None", tables)
    expected = '"host:port,host:port", or a list of such addresses'
    given = addresses.split(",") if isinstance(addresses, str) else addresses
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise BadArgument("addresses", expected, addresses)
    given = [*given]
    for address in given:
        if not isinstance(address, str):
            raise BadArgument("an address", expected, address)
    listed = [address.strip() for address in given if address.strip()]
    if not listed:
        raise CallerError("no address to connect to; write host:port, for example 127.0.0.1:7051")
    text("location", location)
    lz4 = takes_lz4(compression)
    client = AsyncClient(await connect_by(listed, contacts, timeout_s), listed, location)
    client.connection.takes_lz4 = lz4
    try:
        if tables is not None:
            client.locations = FileLocations(tables, client.schema_of)
        elif (catalog := await find_catalog(client.connection, timeout_s=timeout_s)) is not None:
            client.catalog, client.locations = catalog, CatalogLocations(catalog)
    except BaseException:
        await client.close()
        raise
    return client


class AsyncClient:
    """A client of one cluster. Made by :func:`connect_async`; used on one event loop."""

    def __init__(self, connection: Connection, addresses: Sequence[str], location: str = "") -> None:
        self.connection = connection
        self._location = location
        self._nearness: Nearness | None = None
        self._places: TablePlaces | None = None
        self._placed: set[NodeId] = set()
        self.addresses = tuple(addresses)
        self.locations: Locations = NodeLocations(self._tablet_ids, self.schema_of)
        """Finds the tables."""
        self._sessions: WeakSet[AsyncSession] = WeakSet()
        self.catalog: CatalogClient | None = None
        """The masters; ``None``: the cluster has none, or a locations file is used instead."""

    async def tables(self, *, staleness_s: float = 0.0, timeout_s: float = TIMEOUT_S) -> list[str]:
        """Return the names of all tables, sorted.

        Args:
            staleness_s: how old the answer may be. Above 0, any master may answer whose catalog is fresh enough, also
                if no master leads. 0: the leading master answers. Without masters it has no effect.
            timeout_s: how long to wait for an answer of a master.

        Raises:
            Unavailable: no master answered in time, or none is fresh enough.
        """
        staleness_ms, timeout_s = whole_ms("staleness_s", staleness_s), seconds("timeout_s", timeout_s)
        if self.catalog is None:
            return [*await self.locations.tables()]
        found = await self.catalog.list_tables(staleness_ms=staleness_ms, timeout_s=timeout_s)
        return sorted(table.name for table in found.tables)

    async def table(self, name: str, *, timeout_s: float = TIMEOUT_S) -> AsyncTable:
        """Open a table: find its tablets and read its schema.

        Raises:
            NoSuchTable: there is no table of that name; the message has the names of the tables.
            Unavailable: a tablet of the table cannot be reached in time.
            SchemaMismatch: the tablets have different schemas.
        """
        text("the name of a table", name)
        timeout_s = seconds("timeout_s", timeout_s)
        location, access = await self._find(name, timeout_s)
        table = AsyncTable(location, access, self.addresses, wall_timestamp, self._reopen, self._newer)
        table.sessions = self._sessions
        return table

    async def _find(
        self, name: str, timeout_s: float, known: TableLocation | None = None
    ) -> tuple[TableLocation, list[SpreadTablet]]:
        """Find a table and open its tablets, unless its location is the ``known`` one.

        While the table is being altered, masters and tablets may have different schemas for a moment, and a follower
        may be behind its leader. Then the lookup is repeated."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            left_s = max(deadline - loop.time(), POLL_S)
            try:
                location = await self.locations.find(name, timeout_s=left_s)
                return location, [] if location == known else await self._tablets(location, left_s)
            except (SchemaMismatch, BadPartitioning):
                if self.catalog is None or loop.time() >= deadline:
                    raise
            await asyncio.sleep(POLL_S)

    async def _tablets(self, location: TableLocation, timeout_s: float) -> list[SpreadTablet]:
        tablets = await asyncio.gather(*(self._open(tablet, timeout_s) for tablet in location.tablets))
        _check_schemas(location, tablets)
        if self.catalog is not None and location.table_id:
            places = self._places = self._places or TablePlaces(self.catalog)
            for tablet in tablets:
                names = (location.table_id, tablet.tablet_id)
                tablet.ask_if_gone(partial(places.is_gone, *names))
                self.connection.member_lookup.ask_masters(tablet.tablet_id, partial(places.find, *names))
        nearness = await self._distances()
        return [SpreadTablet(tablet, self.connection, nearness) for tablet in tablets]

    async def _distances(self) -> Nearness:
        """Return the distances of the nodes that have a tablet. The masters know their locations."""
        addresses = dict(self.connection.addresses)
        if self._nearness is None or not addresses.keys() <= self._placed:
            hosts = {node: split_address(address)[0] for node, address in addresses.items()}
            loop = asyncio.get_running_loop()
            own_hosts = {host for host in {*hosts.values()} if await loop.run_in_executor(None, is_own_host, host)}
            own = {node for node, host in hosts.items() if host in own_hosts}
            try:
                servers = (await self.catalog.list_servers()).servers if self.catalog is not None else ()
            except StelaeError:
                servers = ()  # Any replica can serve. Which one is near is asked again when another table is opened.
            self._nearness = Nearness(self._location, {line.node_id: line.location for line in servers}, own)
            self._placed = {*addresses} if servers else set()
        return self._nearness

    async def _reopen(self, before: TableLocation, timeout_s: float) -> tuple[TableLocation, list[SpreadTablet]]:
        """Find a table again, after the end of any alteration that is under way."""
        name = before.table_id or before.name
        try:
            if self.catalog is not None and before.table_id:
                await self._until_altered(self.catalog, name, timeout_s)
            return await self._find(name, timeout_s, before)
        except (NoTable, NoSuchTable) as error:
            raise await self._dropped(before) from error

    async def _dropped(self, before: TableLocation) -> NoSuchTable:
        return NoSuchTable(before.name, await self.tables(), f"table {before.name[:80]!r} was dropped")

    async def _newer(self, before: TableLocation, timeout_s: float) -> tuple[TableLocation, list[SpreadTablet]] | None:
        """Find a table again if its tablets have changed. Does not wait for an alteration that is under way."""
        if self.catalog is None or not before.table_id:
            return None
        try:
            known = [tablet.tablet_id for tablet in before.tablets]
            if await self.catalog.are_current(before.table_id, known, timeout_s=timeout_s):
                return None
            return await self._find(before.table_id, timeout_s)
        except (NoTable, NoSuchTable) as error:
            raise await self._dropped(before) from error

    async def create_table(
        self,
        name: str,
        columns: Columns,
        key: str | Sequence[str],
        *,
        partition: Mapping[str, Any] | None = None,
        replicas: int = 3,
        timeout_s: float = TIMEOUT_S,
    ) -> AsyncTable:
        """Create a table and open it. It accepts writes when this returns. See ``stelae.client.table_definition``.

        Raises:
            TableExists, SchemaMismatch, BadPartitioning: the table cannot be created as described.
            TooFewServers: fewer tablet servers are alive than a tablet has replicas.
            Unavailable: the table is not ready in time. It may be created all the same; ``table`` waits for it.
        """
        text("the name of a table", name)
        whole("replicas", replicas, 1)
        timeout_s = seconds("timeout_s", timeout_s)
        await self._masters().change(definition(name, columns, key, partition, replicas), timeout_s=timeout_s)
        return await self.table(name, timeout_s=timeout_s)

    async def alter_table(self, name: str, *steps: AlterStep, timeout_s: float = TIMEOUT_S) -> AsyncTable:
        """Change a table by all of these steps or none, and open the changed table.

        The steps are ``AddColumn``, ``DropColumn``, ``RenameColumn``, ``SetDefault``, ``RenameTable``, ``SetReplicas``,
        ``AddRange`` and ``DropRange`` of ``stelae.client``. ``AsyncTable.key_range`` makes the ranges of the last two.
        A table object that was opened before still reads the columns of its last lookup, and the present ranges. It
        looks the table up again when a write is refused, or at ``refresh``.

        The masters add and remove replicas after ``SetReplicas``; this returns before that.

        When this returns, a dropped range accepts no more writes, even from clients that still have its location.

        Raises:
            NoTable, BadChange: there is no such table, or the change is not possible.
            Unavailable: the change is not complete in time. It may still take effect, once.
        """
        catalog = self._masters()
        text("the name of a table", name)
        timeout_s = seconds("timeout_s", timeout_s)
        steps = tuple(alter_step(step) for step in steps)
        if any(isinstance(step, AddColumn | SetDefault) for step in steps):
            described = await catalog.get_table(name, timeout_s=timeout_s)
            steps = plain_defaults(Schema.from_bytes(described.schema), steps)
        drops = any(isinstance(step, DropRange) for step in steps)
        before = (await catalog.get_table(name, timeout_s=timeout_s)).tablets if drops else ()
        await catalog.change(AlterTable(table=name, steps=steps), timeout_s=timeout_s)
        new_name = [name, *(step.to for step in steps if isinstance(step, RenameTable))][-1]
        await self._until_altered(catalog, new_name, timeout_s)
        if drops:
            left = {tablet.tablet_id for tablet in (await catalog.get_table(new_name, timeout_s=timeout_s)).tablets}
            await self._until_gone([tablet for tablet in before if tablet.tablet_id not in left], timeout_s)
        return await self.table(new_name, timeout_s=timeout_s)

    async def _until_gone(self, dropped: Sequence[TabletPlace], timeout_s: float) -> None:
        """Wait until tablets have no replica left, except on servers that do not answer.

        Once a majority of a tablet's voters has no replica, no client can have a write to it acknowledged, which would
        be lost with the tablet. The other members are waited for until ``LAST_REPLICAS_S``, so that such a write is
        refused at once, and does not wait for an answer."""
        now_s = asyncio.get_running_loop().time
        deadline_s = now_s() + timeout_s
        for tablet in dropped:
            last_replicas_s = deadline_s
            voters = [member for member in tablet.members if member[0] not in tablet.learners]
            while True:
                left = await self.connection.holders(tablet.tablet_id, voters)
                if left <= len(voters) // 2:
                    last_replicas_s = min(last_replicas_s, now_s() + LAST_REPLICAS_S)
                if not left or (left <= len(voters) // 2 and now_s() >= last_replicas_s):
                    break
                if now_s() >= deadline_s:
                    fact = f"the range is dropped, and its tablet {tablet.tablet_id} is still being deleted"
                    raise Unavailable(f"{fact}; until then, clients with the old location may still write to it")
                await asyncio.sleep(POLL_S)

    async def recall_table(self, table_id: str, *, name: str | None = None, timeout_s: float = TIMEOUT_S) -> AsyncTable:
        """Restore a table that was dropped with ``keep_s``, and open it.

        Args:
            table_id: id of the table, from ``catalog.list_tables(soft_deleted=True)``.
            name: a new name for the table; ``None``: its old name.

        Raises:
            BadChange: there is no such table to recall.
            TableExists: another table has the name.
            Unavailable: the table is not restored in time. It may still be restored.
        """
        catalog = self._masters()
        text("table_id", table_id)
        if name is not None:
            text("name", name)
        timeout_s = seconds("timeout_s", timeout_s)
        await catalog.change(RecallTable(table_id=TableId(table_id), name=name), timeout_s=timeout_s)
        await self._until_altered(catalog, table_id, timeout_s)
        return await self.table(table_id, timeout_s=timeout_s)

    async def _until_altered(self, catalog: CatalogClient, name: str, timeout_s: float) -> None:
        """Wait until every tablet has the newest schema."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while (await catalog.running(name, timeout_s=timeout_s)).state is not TableState.RUNNING:
            if loop.time() >= deadline:
                raise Unavailable(f"table {name!r} is still ALTERING: not every tablet has the newest schema yet")
            await asyncio.sleep(POLL_S)

    async def drop_table(self, name: str, *, keep_s: float = 0.0, timeout_s: float = TIMEOUT_S) -> None:
        """Drop a table with all its rows. With ``keep_s``, it can be recalled for that many seconds.

        Raises:
            NoTable: there is no table of that name.
            Unavailable: no master answered in time. The table may still be dropped.
        """
        text("the name of a table", name)
        change = DeleteTable(table=name, keep_ms=int(seconds("keep_s", keep_s) * 1000))
        await self._masters().change(change, timeout_s=seconds("timeout_s", timeout_s))

    def _masters(self) -> CatalogClient:
        if self.catalog is None:
            where = ", ".join(self.addresses)
            raise CallerError(f"no masters at {where}; only masters create and change tables: connect to one of them")
        return self.catalog

    async def tablet_ids(self, *, timeout_s: float = TIMEOUT_S) -> list[TabletId]:
        """Return the ids of all tablets, sorted. Without masters, those of the nodes that answer now.

        Raises:
            Unavailable: the masters, or without masters all nodes, did not answer in time.
        """
        timeout_s = seconds("timeout_s", timeout_s)
        if self.catalog is None:
            return await self._tablet_ids()
        return sorted([place.tablet_id async for place in tablets_of(self.catalog, timeout_s=timeout_s)])

    async def replicas(self, tablet_id: str, *, timeout_s: float = TIMEOUT_S) -> AsyncReplicas:
        """Return the replicas of a tablet, to show or change them.

        ``stelae tablet list`` shows the ids of tablets.

        Raises:
            NoSuchTablet: the cluster has no tablet with that id.
            Unavailable: the masters, or without masters the nodes, did not answer in time.
        """
        text("the id of a tablet", tablet_id)
        timeout_s = seconds("timeout_s", timeout_s)
        if self.catalog is None:
            name = TabletId(tablet_id)
            opened = await self.connection.tablet(name, asked=await self._hosts(name, timeout_s), timeout_s=timeout_s)
            return AsyncReplicas(self.connection, name, opened.leader)
        place = await find_tablet(self.catalog, tablet_id, timeout_s=timeout_s)
        tracker = self.connection.member_lookup.tracker(place.tablet_id, place.members)
        return AsyncReplicas(self.connection, place.tablet_id, tracker, self.catalog.list_servers)

    @property
    def masters(self) -> AsyncMasters:
        """The masters of the cluster, to show or change them. Raises ``CallerError`` in a cluster without masters."""
        if self.catalog is None:
            raise CallerError("this client knows no masters; connect to the address of a master")
        return AsyncMasters(self.connection, self.catalog)

    async def contacts(self) -> Contacts:
        """Return nodes by which a later client, for example in another process, finds the cluster again.

        They are the masters that this client knows, and servers of tables that it has opened."""
        return contacts_of(self.connection, None if self.catalog is None else self.catalog.masters)

    async def open(self, token: ScanToken, *, timeout_s: float = TIMEOUT_S) -> AsyncScan:
        """Return the scan of a token, on the table of the token, even if that was renamed.

        Raises:
            BadToken: the argument is not a token, or its table was dropped.
            SchemaMismatch: a column that the token reads was dropped.
        """
        token = checked_token(token)
        timeout_s = seconds("timeout_s", timeout_s)
        if self.catalog is None or not token.table_id:
            return (await self.table(token.table, timeout_s=timeout_s)).open(token, timeout_s=timeout_s)
        try:
            table = await self.table(token.table_id, timeout_s=timeout_s)
        except NoSuchTable as error:
            names = await self.tables()
            fact = f"the token is of table {token.table!r}, which was dropped"
            now = "another table has that name now" if token.table in names else str(error).split("; ")[-1]
            raise BadToken(f"{fact}; {now}") from error
        return table.open(token, timeout_s=timeout_s)

    async def close(self) -> None:
        """Close the client. Calls without an answer fail with ``Unavailable``. A second call has no effect.

        Open sessions are closed. A session with automatic flushes sends its rows, for at most ``FINISH_S`` seconds. An
        ``UnwrittenRows`` warning reports the rows that are not written."""
        try:
            await asyncio.gather(*(session.finish(FINISH_S) for session in list(self._sessions)))
        finally:
            if self._places is not None:
                self._places.close()
            self.connection.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def schema_of(self, location: TabletLocation) -> Schema:
        """Ask a tablet for its schema."""
        return (await self._open(location, TIMEOUT_S)).schema

    async def _tablet_ids(self) -> list[TabletId]:
        return sorted({tablet for hosted in (await self._hosted()).values() for tablet in hosted})

    async def _hosted(self) -> dict[NodeId, list[TabletId]]:
        """Return the tablets of each node that answers now; ``Unavailable``: no node answers."""
        nodes = self.connection.nodes
        found = await asyncio.gather(*(self.connection.status(node) for node in nodes), return_exceptions=True)
        hosted: dict[NodeId, list[TabletId]] = {}
        problem: BaseException | None = None
        for node, reports in zip(nodes, found, strict=True):
            if isinstance(reports, RetryableError):
                problem = reports
            elif isinstance(reports, BaseException):
                raise reports
            else:
                hosted[node] = [report.tablet_id for report in reports]
        if not hosted:
            raise Unavailable(f"no node answers which tablets it has: {problem}")
        return hosted

    async def _open(self, location: TabletLocation, timeout_s: float) -> ConnectedTablet:
        members = location.members
        if not members:
            hosts = await self._hosts(location.tablet_id, timeout_s)
            return await self.connection.tablet(location.tablet_id, asked=hosts, timeout_s=timeout_s)
        return await self.connection.tablet(location.tablet_id, members=members, timeout_s=timeout_s)

    async def _hosts(self, tablet_id: TabletId, timeout_s: float) -> list[NodeId]:
        """Return the nodes that host a tablet. Waits until at least one does."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            try:
                hosted = await self._hosted()
            except Unavailable:
                self.connection.check_open()
                hosted = {}
            nodes = [node for node, tablets in hosted.items() if tablet_id in tablets]
            if nodes:
                return nodes
            if loop.time() >= deadline:
                raise Unavailable(f"no node that answers has the tablet {tablet_id!r}")
            await asyncio.sleep(BACKOFF_S_MAX)


def wall_timestamp() -> int:
    """Return the hybrid timestamp of now, by this machine's clock."""
    return from_wall_us(time.time_ns() // 1000)


def _check_schemas(location: TableLocation, tablets: Sequence[ConnectedTablet]) -> None:
    for tablet in tablets:
        if tablet.schema != location.schema:
            fact = f"tablet {tablet.tablet_id!r} has schema version {tablet.schema.version}"
            raise SchemaMismatch(f"table {location.name!r}: {fact}, and the table has {location.schema.version}")
