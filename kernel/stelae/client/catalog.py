"""Reads the catalog from the masters, and sends changes of tables to the leading master.

A change has an identity, as a write has: the client sends it to the leading master until it is decided, and it has one
effect. Every master knows all others, so the address of one is enough to find the leader."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TypeVar

import msgspec

from stelae.client.call_times import TIMEOUT_S
from stelae.client.connection import ConnectedTablet, Connection
from stelae.client.leader_tracker import LeaderTracker
from stelae.client.locations import Locations, NoSuchTable, TableLocation, TabletLocation
from stelae.client.masters_lookup import MastersLookup
from stelae.client.member_lookup import TabletMembers
from stelae.partition.schema import PartitionSchema
from stelae.protocol.catalog_names import SYSTEM_TABLET, TabletState
from stelae.protocol.codec import encode
from stelae.protocol.master_errors import NoTable
from stelae.protocol.master_messages import (
    CHANGE,
    READ,
    AreCurrent,
    CatalogAnswer,
    CatalogReadRequest,
    Change,
    ChangeReply,
    ChangeRequest,
    Currency,
    GetPolicyPart,
    GetTable,
    ListServers,
    ListTables,
    PolicyPart,
    Question,
    ServerList,
    TableDescription,
    TableList,
    TabletPlace,
    tablets_digest,
)
from stelae.protocol.masters_messages import MASTERS, MastersRequest, MastersView
from stelae.protocol.tablet_messages import NoSuchTablet
from stelae.spi.errors import PeerError, RetryableError, Unavailable
from stelae.spi.ids import ClientId, TabletId
from stelae.spi.policy import PolicySnapshot
from stelae.spi.schema import Schema
from stelae.wire.settings import Lane

POLL_S = 0.05
"""Pause between two reads of a table that is being created or altered, in seconds."""

POLL_TABLET_S = 0.000_2
"""Addition to the pause for each tablet of the table: the larger the answer, the more it costs the master."""

_Answer = TypeVar("_Answer", TableList, TableDescription, Currency, ServerList, PolicyPart)
_REPLIES: msgspec.msgpack.Decoder[ChangeReply] = msgspec.msgpack.Decoder(ChangeReply)
_ANSWERS: msgspec.msgpack.Decoder[CatalogAnswer] = msgspec.msgpack.Decoder(CatalogAnswer)


async def find_catalog(connection: Connection, *, timeout_s: float = TIMEOUT_S) -> CatalogClient | None:
    """Find the masters among the nodes that the client is connected to, or through them: tablet servers name them.

    ``None``: the nodes know no masters.

    Raises:
        Unavailable: no node, or none of the masters that the nodes name, answered in time.
    """
    try:
        found = await connection.tablet(SYSTEM_TABLET, timeout_s=timeout_s)
    except NoSuchTablet:
        view = await _named_by_servers(connection, timeout_s)
        if view is None:
            return None
        found = await _named_masters(connection, view, timeout_s)
    catalog = CatalogClient(connection, found.leader)
    connection.member_lookup.ask_masters(SYSTEM_TABLET, catalog.present_members)
    return catalog


async def _named_by_servers(connection: Connection, timeout_s: float) -> MastersView | None:
    """Return the masters that tablet servers name; ``None``: each has answered that it knows none.

    ``Unavailable``: no server named masters in time, and one may know them."""
    loop = asyncio.get_running_loop()
    lookup, deadline = MastersLookup(connection), loop.time() + timeout_s
    while (view := await lookup.newest(())) is None:
        calls = (connection.ask(node, MASTERS, encode(MastersRequest())) for node in connection.nodes)
        answers = await asyncio.gather(*calls, return_exceptions=True)
        problem = next((answer for answer in answers if isinstance(answer, RetryableError)), None)
        if problem is None:
            return None
        if loop.time() >= deadline:
            raise Unavailable(f"no tablet server could say which masters there are: {problem}")
        await asyncio.sleep(POLL_S)
    return view


async def _named_masters(connection: Connection, view: MastersView, timeout_s: float) -> ConnectedTablet:
    """Return the system tablet on the masters that tablet servers have named."""
    try:
        return await connection.tablet(SYSTEM_TABLET, members=view.members, timeout_s=timeout_s)
    except Unavailable as error:
        listed = ", ".join(address for _, address in view.members)
        fact = f"the nodes at these addresses are tablet servers, and none of their masters ({listed}) answers"
        raise Unavailable(f"{fact}: {error}; start the masters, or recover them: stelae recover") from error


class CatalogClient:
    """Reads and changes the catalog. Made by :func:`find_catalog`; used on one event loop.

    Errors of the masters are raised with their classes (``stelae.protocol.master_errors``). Requests that may succeed
    later are retried until the timeout."""

    def __init__(self, connection: Connection, masters: LeaderTracker) -> None:
        self._connection = connection
        self._masters = masters
        self.lookup = MastersLookup(connection)
        self._client_id = ClientId(secrets.token_hex(8))
        self._sequence = 0
        self._open: set[int] = set()

    @property
    def masters(self) -> LeaderTracker:
        """Chooses the master to ask, and follows changes of the masters."""
        return self._masters

    async def masters_view(self, *, timeout_s: float = TIMEOUT_S) -> MastersView:
        """Return the present masters: the newest config that any node knows. ``Unavailable``: no node answered in time.

        It works without a leader."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        return await self.lookup.view(self._masters.members, deadline)

    async def present_members(self) -> TabletMembers | None:
        """Return the masters for a lookup of the members of the system tablet (``MemberLookup``)."""
        return await self.lookup.members(self._masters.members)

    async def change(self, change: Change, *, timeout_s: float = TIMEOUT_S) -> ChangeReply:
        """Make a change of the catalog. It is committed when this returns.

        Raises:
            CallerError: the change is not possible and had no effect.
            Unavailable: no master answered in time. The change may still take effect, once.
        """
        self._sequence += 1
        sequence = self._sequence
        self._open.add(sequence)
        try:
            request = ChangeRequest(
                client_id=self._client_id, sequence=sequence, first_incomplete=min(self._open), change=change
            )
            body = await self._ask(CHANGE, encode(request), timeout_s)
        finally:
            self._open.discard(sequence)
        try:
            return _REPLIES.decode(body)
        except ValueError as error:
            raise PeerError(f"a master's reply to a change cannot be read: {error}") from error

    async def list_tables(
        self, *, soft_deleted: bool = False, staleness_ms: int = 0, timeout_s: float = TIMEOUT_S
    ) -> TableList:
        """Return the tables, sorted by name.

        Args:
            soft_deleted: whether to include dropped tables that can be recalled.
            staleness_ms: how old the answer may be. Any master may answer whose catalog is fresh enough; the leader
                answers if no other one can. 0: the leader answers, after a majority has confirmed its leadership.
        """
        return await self._read(ListTables(soft_deleted=soft_deleted), TableList, timeout_s, staleness_ms)

    async def get_table(self, table: str, *, staleness_ms: int = 0, timeout_s: float = TIMEOUT_S) -> TableDescription:
        """Return a table, given by name or id, with its tablets and their members; ``NoTable``: it does not exist.

        ``staleness_ms`` is that of :meth:`list_tables`. Only the leading master knows the leaders of tablets."""
        return await self._read(GetTable(table=table), TableDescription, timeout_s, staleness_ms)

    async def are_current(self, table: str, tablets: Iterable[TabletId], *, timeout_s: float = TIMEOUT_S) -> bool:
        """Return whether these are the serving tablets of a table; ``NoTable``: the table does not exist any more.

        Request and answer are small: the leading master, confirmed by a majority, compares a hash of the tablets."""
        question = AreCurrent(table=table, digest=tablets_digest(tablets))
        return (await self._read(question, Currency, timeout_s)).current

    async def list_servers(self, *, timeout_s: float = TIMEOUT_S) -> ServerList:
        """Return the tablet servers that the masters have recorded."""
        return await self._read(ListServers(), ServerList, timeout_s)

    async def policy_snapshot(self, *, timeout_s: float = TIMEOUT_S) -> PolicySnapshot:
        """Return the cluster as the leading master's policy sees it.

        With more than ``POLICY_TABLETS_MAX`` tablets, it is combined from several answers. The cluster may have changed
        between them."""
        found = await self._read(GetPolicyPart(), PolicyPart, timeout_s)
        snapshot = found.snapshot
        while found.more:
            found = await self._read(GetPolicyPart(after=max(found.snapshot.tablets)), PolicyPart, timeout_s)
            tablets = {**snapshot.tablets, **found.snapshot.tablets}
            snapshot = msgspec.structs.replace(found.snapshot, tablets=tablets)
        return snapshot

    async def running(self, table: str, *, timeout_s: float = TIMEOUT_S) -> TableDescription:
        """Wait until every tablet of a table runs, with a leader, and return it.

        Raises:
            NoTable: there is no table of that name, or it was deleted meanwhile.
            Unavailable: not all tablets run in time. The message says how many do.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            found = await self.get_table(table, timeout_s=timeout_s)
            ready = [t for t in found.tablets if t.state is TabletState.RUNNING and t.members and t.leader]
            if len(ready) == len(found.tablets):
                return found
            if loop.time() >= deadline:
                fact = f"{len(ready)} of {len(found.tablets)} tablets of {table!r} run"
                late = next((f"; {t.tablet_id} waits for {t.waits_for}" for t in found.tablets if t.waits_for), "")
                raise Unavailable(f"{fact}{late}; to see its tablets, run: stelae table describe {table}")
            await asyncio.sleep(POLL_S + POLL_TABLET_S * len(found.tablets))

    async def _read(self, question: Question, kind: type[_Answer], timeout_s: float, staleness_ms: int = 0) -> _Answer:
        request = encode(CatalogReadRequest(question=question, staleness_ms=staleness_ms))
        if staleness_ms:
            body = await self._ask_anyone(request, timeout_s)
        else:
            body = await self._ask(READ, request, timeout_s)
        try:
            answer = _ANSWERS.decode(body)
        except ValueError as error:
            raise PeerError(f"a master's answer cannot be read: {error}") from error
        if not isinstance(answer, kind):
            raise PeerError(f"a master answered with {type(answer).__name__}, not {kind.__name__}")
        return answer

    async def _ask_anyone(self, request: bytes, timeout_s: float) -> bytes:
        """Ask a random master, and the others in turn until one is fresh enough."""
        members = self._masters.members
        start = int(self._connection.rng.random() * len(members))
        in_turn = LeaderTracker([*members[start:], *members[:start]])
        return await self._ask(READ, request, timeout_s, in_turn)

    async def _ask(self, kind: str, body: bytes, timeout_s: float, of: LeaderTracker | None = None) -> bytes:
        deadline = asyncio.get_running_loop().time() + timeout_s
        answer = await self._connection.ask_any(of or self._masters, kind, body, deadline, Lane.CONTROL)
        if len(answer.body) != 1:
            raise PeerError(f"a master answered {kind} with {len(answer.body)} frames")
        return bytes(answer.body[0])


async def tablets_of(catalog: CatalogClient, *, timeout_s: float = TIMEOUT_S) -> AsyncIterator[TabletPlace]:
    """Yield the tablets of all tables. ``Unavailable``: no master answered in time."""
    for table in (await catalog.list_tables(timeout_s=timeout_s)).tables:
        try:
            described = await catalog.get_table(table.table_id, timeout_s=timeout_s)
        except NoTable:
            continue  # Dropped since it was listed.
        for place in described.tablets:
            yield place


async def find_tablet(catalog: CatalogClient, tablet_id: str, *, timeout_s: float = TIMEOUT_S) -> TabletPlace:
    """Find a tablet among the tablets of all tables.

    Raises:
        NoSuchTablet: no table has a tablet with that id, or it has no members yet.
        Unavailable: no master answered in time.
    """
    async for place in tablets_of(catalog, timeout_s=timeout_s):
        if place.tablet_id == tablet_id and place.members:
            return place
    raise NoSuchTablet(f"no table has a tablet {tablet_id[:80]!r}; list the tablets with: stelae tablet list")


class CatalogLocations(Locations):
    """Finds tables through the masters."""

    def __init__(self, catalog: CatalogClient) -> None:
        self._catalog = catalog

    async def tables(self) -> Sequence[str]:
        return sorted(table.name for table in (await self._catalog.list_tables()).tables)

    async def find(self, name: str, *, timeout_s: float = TIMEOUT_S) -> TableLocation:
        try:
            found = await self._catalog.running(name, timeout_s=timeout_s)
        except NoTable as error:
            raise NoSuchTable(name, await self.tables()) from error
        return location_of(found)


def location_of(found: TableDescription) -> TableLocation:
    """Return the location of a table, without ranges that have a tablet without members yet.

    Raises:
        BadPartitioning: the table has no other ranges.
    """
    scheme = PartitionSchema.from_bytes(found.partition_schema)
    unfinished = {tablet.partition.range for tablet in found.tablets if not tablet.members}
    if unfinished:
        ranges = tuple(one for one in scheme.ranges if one not in unfinished)
        scheme = PartitionSchema(scheme.hash_levels, scheme.range_columns, ranges, scheme.version)
    serving = [tablet for tablet in found.tablets if tablet.partition.range not in unfinished]
    tablets = tuple(TabletLocation(tablet.tablet_id, tablet.members) for tablet in serving)
    schema = Schema.from_bytes(found.schema)
    return TableLocation(found.name, schema, scheme, tablets, found.table_id, found.replication_factor)
