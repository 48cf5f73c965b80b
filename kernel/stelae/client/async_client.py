"""The ``async`` client: finds tables and opens them. What it does, the synchronous one does too."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias
from weakref import WeakSet

from stelae.client.arguments import BadArgument, alter_step, seconds, text, whole
from stelae.client.catalog import POLL_S, CatalogClient, CatalogLocations, find_catalog
from stelae.client.connection import ConnectedTablet, Connection
from stelae.client.definition import Columns, definition, plain_defaults
from stelae.client.leader import LeaderTracker
from stelae.client.locations import FileLocations, Locations, NodeLocations, NoSuchTable, TableLocation, TabletLocation
from stelae.client.page_rows import PageRows
from stelae.client.scan import AsyncScan
from stelae.client.session import FINISH_S, AsyncSession
from stelae.client.table import TIMEOUT_S, AsyncTable
from stelae.client.times import from_wall_us
from stelae.client.tokens import BadToken, ScanToken, checked_token
from stelae.client.writer_core import BACKOFF_S_MAX
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
from stelae.protocol.tablet_messages import ScanPage
from stelae.rows.operations import Operation
from stelae.spi.errors import CallerError, RetryableError, SchemaMismatch, StelaeError, Unavailable
from stelae.spi.ids import NodeId, TabletId
from stelae.spi.rows import RowBatch
from stelae.spi.scan import ScanSpec
from stelae.spi.schema import Schema
from stelae.spi.write import OpResult

Addresses: TypeAlias = str | Sequence[str]
Tables: TypeAlias = str | Path | None


STRAGGLERS_S = 2.0
"""How long the last replicas of a dropped range are waited for, in seconds, when a majority is gone."""


async def connect_async(addresses: Addresses, *, tables: Tables = None, timeout_s: float = 10.0) -> AsyncClient:
    """Connect to a cluster.

    Args:
        addresses: ``"host:port,host:port"``, or a list of such addresses; one that answers is enough.
        tables: a locations file (``stelae.client.locations``); ``None``: the masters know, if the addresses are theirs
            (one is enough); else each tablet of the nodes is a table.
        timeout_s: how long to wait for an answer.

    Raises:
        Unavailable: nobody answered in time.
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
    client = AsyncClient(await Connection.connect(listed, timeout_s=timeout_s), listed)
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
    """Tables of one cluster. Made by :func:`connect_async`; used on one event loop."""

    def __init__(self, connection: Connection, addresses: Sequence[str]) -> None:
        self.connection = connection
        self.addresses = tuple(addresses)
        self.locations: Locations = NodeLocations(self._tablet_ids, self.schema_of)
        """Where tables are found."""
        self._sessions: WeakSet[AsyncSession] = WeakSet()
        self.catalog: CatalogClient | None = None
        """The masters, if the cluster has any and no locations file stands in for them."""

    async def tables(self) -> list[str]:
        """Return the names of all tables, sorted."""
        return [*await self.locations.tables()]

    async def table(self, name: str, *, timeout_s: float = TIMEOUT_S) -> AsyncTable:
        """Open a table: find its tablets and read its schema.

        Raises:
            NoSuchTable: with the names that there are.
            Unavailable: one of its tablets cannot be reached in time.
            SchemaMismatch: its tablets are not of one schema.
        """
        text("the name of a table", name)
        timeout_s = seconds("timeout_s", timeout_s)
        location, access = await self._found(name, timeout_s)
        table = AsyncTable(location, access, self.addresses, wall_timestamp, self._reopen, self._newer)
        table.sessions = self._sessions
        return table

    async def _found(
        self, name: str, timeout_s: float, known: TableLocation | None = None
    ) -> tuple[TableLocation, list[SpreadTablet]]:
        """Find a table and open its tablets, unless it is as it is ``known``.

        While it is being altered, masters and tablets are at different steps now and then, and a follower may be
        behind its leader: then all of it is looked at again."""
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
            for tablet in tablets:
                tablet.ask_if_gone(partial(self._is_gone, self.catalog, location.table_id, tablet.tablet_id))
        return [SpreadTablet(tablet, self.connection) for tablet in tablets]

    async def _reopen(self, before: TableLocation, timeout_s: float) -> tuple[TableLocation, list[SpreadTablet]]:
        """Find a table again, once no alteration of it is under way."""
        name = before.table_id or before.name
        try:
            if self.catalog is not None and before.table_id:
                await self._settled(self.catalog, name, timeout_s)
            return await self._found(name, timeout_s, before)
        except (NoTable, NoSuchTable) as error:
            raise await self._dropped(before) from error

    async def _dropped(self, before: TableLocation) -> NoSuchTable:
        return NoSuchTable(before.name, await self.tables(), f"table {before.name[:80]!r} was dropped")

    async def _is_gone(self, catalog: CatalogClient, table_id: str, tablet_id: TabletId) -> bool:
        """Whether a tablet will never be again: its table, or its range, was dropped for good."""
        try:
            found = await catalog.get_table(table_id, timeout_s=TIMEOUT_S)
        except NoTable:
            return True
        except StelaeError:
            return False  # Nobody can say; who asks goes on and asks again.
        return all(tablet.tablet_id != tablet_id for tablet in found.tablets)

    async def _newer(self, before: TableLocation, timeout_s: float) -> tuple[TableLocation, list[SpreadTablet]] | None:
        """Find a table again unless it still has the tablets that it had; alterations under way are not waited for."""
        if self.catalog is None or not before.table_id:
            return None
        try:
            known = [tablet.tablet_id for tablet in before.tablets]
            if await self.catalog.are_current(before.table_id, known, timeout_s=timeout_s):
                return None
            return await self._found(before.table_id, timeout_s)
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
        """Create a table and open it: it takes writes when this returns; see ``stelae.client.definition``.

        Raises:
            TableExists, SchemaMismatch, BadPartitioning: it cannot be created as it is described.
            TooFewServers: fewer tablet servers live than a tablet has replicas.
            Unavailable: not in time. The table may be there all the same; ``table`` waits for it.
        """
        text("the name of a table", name)
        whole("replicas", replicas, 1)
        timeout_s = seconds("timeout_s", timeout_s)
        await self._masters().change(definition(name, columns, key, partition, replicas), timeout_s=timeout_s)
        return await self.table(name, timeout_s=timeout_s)

    async def alter_table(self, name: str, *steps: AlterStep, timeout_s: float = TIMEOUT_S) -> AsyncTable:
        """Change a table by these steps, all of them or none, and open it as it is then.

        Steps are ``AddColumn``, ``DropColumn``, ``RenameColumn``, ``SetDefault``, ``RenameTable``, ``AddRange`` and
        ``DropRange``, all of ``stelae.client``; ``AsyncTable.key_range`` makes the range of the last two. A table that
        was opened before reads the columns that it knows of, and the ranges that there are; its writes, and
        ``refresh``, look it up again.

        When it returns, a range that was dropped takes no more writes, whoever still knows of it.

        Raises:
            NoTable, BadChange: there is no such table, or it cannot be changed so.
            Unavailable: not in time; the change may still take effect, once.
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
        found = [name, *(step.to for step in steps if isinstance(step, RenameTable))][-1]
        await self._settled(catalog, found, timeout_s)
        if drops:
            left = {tablet.tablet_id for tablet in (await catalog.get_table(found, timeout_s=timeout_s)).tablets}
            await self._until_gone([tablet for tablet in before if tablet.tablet_id not in left], timeout_s)
        return await self.table(found, timeout_s=timeout_s)

    async def _until_gone(self, dropped: Sequence[TabletPlace], timeout_s: float) -> None:
        """Wait until no replica is left of tablets, or none but those of servers that cannot be asked.

        Once a majority says that it is gone, nobody who still knows of them can have a write acknowledged that would be
        gone with them; the others are waited for a little, so that such a write is refused and does not wait for an
        answer."""
        now_s = asyncio.get_running_loop().time
        deadline_s = now_s() + timeout_s
        for tablet in dropped:
            patience_s = deadline_s
            while True:
                left = await self.connection.holders(tablet.tablet_id, tablet.members)
                if left <= len(tablet.members) // 2:
                    patience_s = min(patience_s, now_s() + STRAGGLERS_S)
                if not left or (left <= len(tablet.members) // 2 and now_s() >= patience_s):
                    break
                if now_s() >= deadline_s:
                    fact = f"the range is dropped, and its tablet {tablet.tablet_id} is still being deleted"
                    raise Unavailable(f"{fact}: who opened the table before may reach it until then")
                await asyncio.sleep(POLL_S)

    async def recall_table(self, table_id: str, *, name: str | None = None, timeout_s: float = TIMEOUT_S) -> AsyncTable:
        """Bring back a table that was dropped with ``keep_s``, and open it.

        Args:
            table_id: of the table; ``catalog.list_tables(soft_deleted=True)`` has it.
            name: what it is called from now on, if another table has taken its name.

        Raises:
            BadChange: there is no such table to be recalled.
            TableExists: its name is taken.
            Unavailable: not in time; it may still come back.
        """
        catalog = self._masters()
        text("table_id", table_id)
        if name is not None:
            text("name", name)
        timeout_s = seconds("timeout_s", timeout_s)
        await catalog.change(RecallTable(table_id=TableId(table_id), name=name), timeout_s=timeout_s)
        await self._settled(catalog, table_id, timeout_s)
        return await self.table(table_id, timeout_s=timeout_s)

    async def _settled(self, catalog: CatalogClient, name: str, timeout_s: float) -> None:
        """Wait until every tablet has the newest schema."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while (await catalog.running(name, timeout_s=timeout_s)).state is not TableState.RUNNING:
            if loop.time() >= deadline:
                raise Unavailable(f"table {name!r} is still ALTERING: not every tablet has its newest schema yet")
            await asyncio.sleep(POLL_S)

    async def drop_table(self, name: str, *, keep_s: float = 0.0, timeout_s: float = TIMEOUT_S) -> None:
        """Delete a table, with all its rows: for good, or so that it can be recalled for ``keep_s`` seconds.

        Raises:
            NoTable: there is none of that name.
            Unavailable: not in time; it may still be deleted.
        """
        text("the name of a table", name)
        change = DeleteTable(table=name, keep_ms=int(seconds("keep_s", keep_s) * 1000))
        await self._masters().change(change, timeout_s=seconds("timeout_s", timeout_s))

    def _masters(self) -> CatalogClient:
        if self.catalog is None:
            where = ", ".join(self.addresses)
            raise CallerError(f"no masters at {where}: tables are made by masters, connect to one of them")
        return self.catalog

    async def open(self, token: ScanToken, *, timeout_s: float = TIMEOUT_S) -> AsyncScan:
        """Carry on the scan of a token, of the table that it was made of, whatever that is called by now.

        Raises:
            BadToken: it is no token, or its table is gone.
            SchemaMismatch: a column that it reads was dropped.
        """
        token = checked_token(token)
        timeout_s = seconds("timeout_s", timeout_s)
        if self.catalog is None or not token.table_id:
            return (await self.table(token.table, timeout_s=timeout_s)).open(token, timeout_s=timeout_s)
        try:
            table = await self.table(token.table_id, timeout_s=timeout_s)
        except NoSuchTable as error:
            others = await self.tables()
            now = "the table of that name is another one now" if token.table in others else str(error).split("; ")[-1]
            raise BadToken(f"the token is of a table that is gone, called {token.table!r} then; {now}") from error
        return table.open(token, timeout_s=timeout_s)

    async def close(self) -> None:
        """Close the connections; what is unanswered fails. Closing twice is harmless.

        Sessions that were left open are ended: those that flush by themselves send what they hold, for
        ``FINISH_S`` at most; ``UnwrittenRows`` is warned of what is not written."""
        try:
            await asyncio.gather(*(session.finish(FINISH_S) for session in list(self._sessions)))
        finally:
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
        """Which tablets the nodes have that answer now; at least one answers, or it is ``Unavailable``."""
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
            raise Unavailable(f"no node says which tablets it has: {problem}")
        return hosted

    async def _open(self, location: TabletLocation, timeout_s: float) -> ConnectedTablet:
        members = location.members
        if not members:
            hosted = await self._hosts(location.tablet_id, timeout_s)
            return await self.connection.tablet(location.tablet_id, asked=hosted, timeout_s=timeout_s)
        return await self.connection.tablet(location.tablet_id, members=members, timeout_s=timeout_s)

    async def _hosts(self, tablet_id: TabletId, timeout_s: float) -> list[NodeId]:
        """Nodes that host a tablet; waits for them to come up."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            try:
                hosted = await self._hosted()
            except Unavailable:
                hosted = {}
            nodes = [node for node, tablets in hosted.items() if tablet_id in tablets]
            if nodes:
                return nodes
            if loop.time() >= deadline:
                raise Unavailable(f"no node that answers has the tablet {tablet_id!r}")
            await asyncio.sleep(BACKOFF_S_MAX)


class SpreadTablet:
    """A tablet whose leader takes writes and linearizable reads, and any of whose replicas others."""

    def __init__(self, tablet: ConnectedTablet, connection: Connection) -> None:
        self._tablet = tablet
        self._rng = connection.rng
        self._any = self._drawn()
        self.tablet_id = tablet.tablet_id

    @property
    def retries(self) -> int:
        """How many operations had to be sent again."""
        return self._tablet.retries

    def send(self, encoded: Operation, timeout_s: float, *, follows: bool = False) -> asyncio.Future[OpResult]:
        """Send an operation to the leader; ``follows``: in one request with the one before."""
        return self._tablet.send(encoded, timeout_s, follows=follows)

    async def page(
        self, spec: ScanSpec, *, at: int | None, at_least: int | None, reader: PageRows, timeout_s: float
    ) -> tuple[ScanPage, Awaitable[RowBatch | None]]:
        """Read a page; what names its time may come from any replica."""
        if spec.after is None:
            self._any = self._drawn()  # Each scan anew: else all readers would end up at the leader.
        ask = None if at is None and at_least is None else self._any
        return await self._tablet.page(spec, at=at, at_least=at_least, ask=ask, reader=reader, timeout_s=timeout_s)

    def _drawn(self) -> LeaderTracker:
        return LeaderTracker(sorted(self._tablet.leader.members, key=lambda _: self._rng.random()))


def wall_timestamp() -> int:
    """The hybrid timestamp of now, by this machine's clock."""
    return from_wall_us(time.time_ns() // 1000)


def _check_schemas(location: TableLocation, tablets: Sequence[ConnectedTablet]) -> None:
    for tablet in tablets:
        if tablet.schema != location.schema:
            has = f"tablet {tablet.tablet_id!r} has version {tablet.schema.version} of its schema"
            raise SchemaMismatch(
                f"table {location.name!r}: {has}, and it is found with version {location.schema.version}"
            )
