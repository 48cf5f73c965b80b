"""A client of tablets: connect, write with many calls in flight, scan.

It is given addresses of nodes and connects to those that answer; of a tablet it finds the leader and follows it. Tables
and their tablets are the matter of ``aio``, above it. One client belongs to one event loop."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec

from stelae.client.leader import LeaderTracker
from stelae.client.local_time import NoTime, QuietMetrics, WallClock
from stelae.client.page_rows import PageRows
from stelae.client.tablet_writer import TabletWriter
from stelae.client.turns import ClientTurns
from stelae.client.writer_core import BACKOFF_S_MAX, BACKOFF_S_MIN
from stelae.protocol.codec import decode, encode
from stelae.protocol.tablet_messages import (
    ALTER,
    CHECKSUM,
    DESCRIBE,
    DIFF,
    SCAN,
    STATUS,
    TRANSFER_LEADERSHIP,
    AlterRequest,
    Checksum,
    ChecksumRequest,
    DescribeRequest,
    Description,
    NoSuchTablet,
    ReplicaReport,
    ScanPage,
    ScanRequest,
    StatusReply,
    StatusRequest,
    TransferRequest,
)
from stelae.rows.batch_building import build_batch
from stelae.rows.operations import ROW_FORM_ROWS_MAX, Operation, operation
from stelae.spi.errors import NotLeader, RetryableError, StelaeError, StorageError, Unavailable
from stelae.spi.ids import ClientId, ClusterId, IncarnationId, NodeId, TabletId
from stelae.spi.rows import RowBatch
from stelae.spi.scan import Order, ScanSpec
from stelae.spi.schema import Schema
from stelae.spi.write import OpKind, OpResult
from stelae.wire.messenger import Identity, Lane, Messenger, Response
from stelae.wire.refusals import RemoteError
from stelae.wire.settings import WireSettings

_Message = TypeVar("_Message", bound=msgspec.Struct)
_KEY_ONLY = (OpKind.DELETE, OpKind.DELETE_IGNORE)

CALL_MS = 2_000
"""Deadline of one attempt to ask a node something, in milliseconds."""

TRANSFER_MS = 30_000
"""Deadline of a transfer of leadership, in milliseconds."""

TIMEOUT_S = 30.0
"""How long a call retries by default before it gives up, in seconds."""


class Connection:
    """Connections to the nodes of a cluster. Make one with :meth:`connect`."""

    def __init__(self, messenger: Messenger, turns: ClientTurns, nodes: Sequence[NodeId]) -> None:
        self._messenger = messenger
        self._turns = turns
        self._tablets: list[ConnectedTablet] = []
        self.nodes = list(nodes)
        """Nodes that answered at connect."""
        self.rng = random.Random(secrets.randbits(64))

    @classmethod
    async def connect(cls, addresses: Sequence[str], *, timeout_s: float = 10.0) -> Connection:
        """Connect to whoever answers at ``host:port`` addresses, at least one of them.

        Raises:
            Unavailable: nobody answered in time.
            ConfigError: an address is not ``host:port``.
        """
        clock, turns = WallClock(), ClientTurns(asyncio.get_running_loop())
        identity = Identity(
            cluster_id=ClusterId(""),
            node_id=NodeId(secrets.token_hex(16)),
            incarnation_id=IncarnationId(secrets.token_hex(8)),
        )
        messenger = Messenger(
            identity,
            clock=clock,
            time=NoTime(),
            defer=turns.defer_last,
            settings=WireSettings(),
            metrics=QuietMetrics(),
            rng=random.Random(secrets.randbits(64)),
        )
        try:
            return cls(messenger, turns, await _greet(messenger, addresses, timeout_s))
        except BaseException:
            messenger.close()
            raise

    async def tablet(
        self,
        tablet_id: TabletId,
        *,
        members: Sequence[tuple[NodeId, str]] = (),
        asked: Sequence[NodeId] = (),
        timeout_s: float = TIMEOUT_S,
    ) -> ConnectedTablet:
        """Find a tablet: its schema, its members and its leader.

        Args:
            tablet_id: its name.
            members: nodes that host it, and their addresses, to connect to.
            asked: nodes that answered at connect and host it; with neither, all of these are asked.
            timeout_s: how long to ask.

        Raises:
            Unavailable: no node could say in time.
            CallerError: the nodes have no such tablet.
        """
        deadline = asyncio.get_running_loop().time() + timeout_s
        for node_id, address in members:
            self._messenger.add_peer(node_id, address)
        tracker = LeaderTracker([node_id for node_id, _ in members] or asked or self.nodes)
        answer = await self.ask_any(tracker, DESCRIBE, encode(DescribeRequest(tablet_id)), deadline, Lane.CONTROL)
        described = decode(answer.body[0], Description)
        for node_id, address in described.members:
            self._messenger.add_peer(node_id, address)
        leader = LeaderTracker([node_id for node_id, _ in described.members])
        if described.leader is not None:
            leader.refused_by(leader.current, described.leader)
        found = ConnectedTablet(self, tablet_id, Schema.from_bytes(described.schema), leader)
        self._tablets.append(found)
        return found

    async def reach(self, address: str, *, deadline_ms: int = CALL_MS) -> NodeId:
        """Connect to whoever lives at an address that was not given at connect.

        Raises:
            Unavailable: nobody answered in time.
            ConfigError: the address is not ``host:port``.
        """
        return await self._messenger.connect(address, deadline_ms=deadline_ms)

    async def members(self, tablet_id: TabletId, *, timeout_s: float = TIMEOUT_S) -> tuple[tuple[NodeId, str], ...]:
        """Return the members of a tablet of the nodes that answered at connect, and their addresses.

        Raises:
            Unavailable: no node could say in time.
            NoSuchTablet: none of them has it.
        """
        deadline = asyncio.get_running_loop().time() + timeout_s
        tracker = LeaderTracker(self.nodes)
        answer = await self.ask_any(tracker, DESCRIBE, encode(DescribeRequest(tablet_id)), deadline, Lane.CONTROL)
        return decode(answer.body[0], Description).members

    async def ask(self, node: NodeId, kind: str, body: bytes, *, deadline_ms: int = CALL_MS) -> Response:
        """Ask one node, once; the errors are those of the request, and ``RetryableError`` if there is no answer."""
        return await self._messenger.call(node, kind, [body], deadline_ms=deadline_ms)

    async def status(self, node: NodeId, *, deadline_ms: int = CALL_MS) -> list[ReplicaReport]:
        """How every replica of one node stands.

        Raises:
            RetryableError: the node did not answer.
        """
        answer = await self.ask(node, STATUS, encode(StatusRequest()), deadline_ms=deadline_ms)
        return list(decode(answer.body[0], StatusReply).replicas)

    async def holders(self, tablet_id: TabletId, members: Sequence[tuple[NodeId, str]]) -> int:
        """Return how many of these nodes, given with their addresses, may have a replica of a tablet.

        All but those that answer that they have none."""
        for node_id, address in members:
            self._messenger.add_peer(node_id, address)
        question = encode(DescribeRequest(tablet_id))
        asked = (self.ask(node_id, DESCRIBE, question) for node_id, _ in members)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        return sum(not isinstance(answer, NoSuchTablet) for answer in answers)

    async def change_schema(
        self, tablet: ConnectedTablet, schema: Schema, *, timeout_s: float = TIMEOUT_S
    ) -> ConnectedTablet:
        """Put the next schema of a tablet into force, and return the tablet as it is now.

        Columns may come, go, be renamed, get another default or become nullable; ``schema.version`` is one above the
        version in force, and asking twice for the same schema is harmless. Handles made before refuse nothing, but
        their writes are refused with ``SCHEMA_MISMATCH`` from now on.

        Raises:
            SchemaMismatch: the schema cannot follow the one in force; nothing was changed.
            Unavailable: no leader could say in time; the change may still take effect.
        """
        deadline = asyncio.get_running_loop().time() + timeout_s
        request = encode(AlterRequest(tablet.tablet_id, schema.to_bytes()))
        await self.ask_any(tablet.leader, ALTER, request, deadline, Lane.CONTROL)
        changed = ConnectedTablet(self, tablet.tablet_id, schema, tablet.leader)
        self._tablets.append(changed)
        return changed

    async def transfer_leadership(self, leader: NodeId, tablet_id: TabletId, to: NodeId | None = None) -> None:
        """Ask the leader of a tablet to transfer its leadership. Writes wait for one election timeout at most.

        Args:
            leader: the node that leads the tablet.
            tablet_id: the tablet.
            to: a voter of the tablet; ``None``: the most up-to-date one.

        Raises:
            NotLeader: the node does not lead the tablet.
            Unavailable: no voter took over in time; the leader still leads.
            CallerError: ``to`` is no voter of the tablet.
        """
        request = encode(TransferRequest(tablet_id, to))
        await self.ask(leader, TRANSFER_LEADERSHIP, request, deadline_ms=TRANSFER_MS)

    async def checksum(
        self, node: NodeId, tablet_id: TabletId, *, at: int | None = None, deadline_ms: int = 10 * CALL_MS
    ) -> Checksum:
        """Logical checksum of one replica's rows, up to where they are applied, and of when they are; ``at``: of then.

        It visits every row in Python: a million of them take ten seconds and more on a busy node.

        Raises:
            RetryableError: the node did not answer, or the replica cannot serve, or has not applied entries up to then.
            TooOld: that time is below the replica's history floor.
        """
        answer = await self.ask(node, CHECKSUM, encode(ChecksumRequest(tablet_id, at)), deadline_ms=deadline_ms)
        return decode(answer.body[0], Checksum)

    def close(self) -> None:
        """Close the connections; unanswered writes fail. Closing twice is harmless."""
        for tablet in self._tablets:
            tablet.close()
        self._messenger.close()

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def ask_any(self, tracker: LeaderTracker, kind: str, body: bytes, deadline: float, lane: Lane) -> Response:
        """Ask the tracked node, and the next one when it cannot serve, until the deadline."""
        loop = asyncio.get_running_loop()
        without: set[NodeId] = set()
        said: dict[NodeId, StelaeError] = {}
        while True:
            node = tracker.current
            try:
                return await self._messenger.call(node, kind, [body], deadline_ms=CALL_MS, lane=lane)
            except NotLeader as error:
                problem: StelaeError = error
                pause = not tracker.refused_by(node, error.leader)
            except NoSuchTablet as error:
                without.add(node)
                if without >= set(tracker.members):
                    raise
                problem, pause = error, False
                tracker.failed(node)
            except (RetryableError, RemoteError) as error:
                if isinstance(error, RemoteError) and not _is_of_storage(error):
                    raise
                problem, pause = error, True
                tracker.failed(node)
            said[node] = problem
            if loop.time() >= deadline:
                told = "; ".join(dict.fromkeys(map(str, said.values())))
                raise Unavailable(f"no node could serve {kind} in time: {told}")
            if pause:
                await asyncio.sleep(BACKOFF_S_MIN + self.rng.random() * BACKOFF_S_MAX / 4)

    def _writer(self, tablet_id: TabletId, schema: Schema, leader: LeaderTracker) -> TabletWriter:
        return TabletWriter(
            self._messenger,
            leader,
            tablet_id=tablet_id,
            # One for each writer: each counts its operations from 1.
            client_id=ClientId(secrets.token_hex(8)),
            schema_version=schema.version,
            rng=self.rng,
            defer=self._turns.defer,
        )


class ConnectedTablet:
    """One tablet, as a client sees it."""

    def __init__(self, client: Connection, tablet_id: TabletId, schema: Schema, leader: LeaderTracker) -> None:
        self._client = client
        self.tablet_id = tablet_id
        self.schema = schema
        self.leader = leader
        """Whom writes and linearizable reads ask."""
        self._writer = client._writer(tablet_id, schema, leader)

    def ask_if_gone(self, is_gone: Callable[[], Awaitable[bool]]) -> None:
        """Have writes ask whether the tablet is gone for good when no member has a replica, rather than try on."""
        self._writer.is_gone = is_gone

    @property
    def retries(self) -> int:
        """How often operations had to be sent again."""
        return self._writer.retries

    def write(
        self, kind: OpKind, rows: Sequence[tuple[Any, ...]], *, timeout_s: float = TIMEOUT_S
    ) -> asyncio.Future[OpResult]:
        """Send one operation; many may be in flight.

        Args:
            kind: what to do with the rows.
            rows: one value per column of the schema, in its order (deletes: per key column).
            timeout_s: how long to retry; at most ``TIMEOUT_S_MAX``.

        The future's result holds the rows that were not taken (``errors``), or a ``refusal`` of
        the whole operation. It is set once a majority has made the operation durable; after
        ``DeadlineExceeded`` it may still take effect, at most once.

        Raises:
            SchemaMismatch: a row does not fit, of ``ROW_FORM_ROWS_MAX`` rows or more: those travel
                as one Arrow batch, which cannot hold it. In fewer rows it is a row error.
            Overloaded: too many operations are unanswered.
        """
        given: Sequence[tuple[Any, ...]] | bytes = rows
        if len(rows) >= ROW_FORM_ROWS_MAX:
            layout = self.schema.key_layout if kind in _KEY_ONLY else self.schema.layout
            given = build_batch(layout, rows).to_ipc()
        return self._writer.write(operation(kind, given), timeout_s)

    def send(self, encoded: Operation, timeout_s: float, *, follows: bool = False) -> asyncio.Future[OpResult]:
        """Send one operation that is encoded already; see :meth:`write` for the rest.

        ``follows``: it shares a request with the one before, so that neither is in the log without the other."""
        return self._writer.write(encoded, timeout_s, follows=follows)

    async def page(
        self,
        spec: ScanSpec,
        *,
        at: int | None = None,
        at_least: int | None = None,
        ask: LeaderTracker | None = None,
        reader: PageRows | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> tuple[ScanPage, asyncio.Future[RowBatch | None]]:
        """Read one page of a scan in key order, and the rows on it if there are any.

        The rows of a large page are read from its bytes by another thread, hence the future; ``Corrupt`` stands in it
        if they are none.

        Args:
            spec: what to read; ``after`` says where to go on.
            at: hybrid timestamp of the snapshot; ``None``: linearizable, unless ``at_least`` is given.
            at_least: any replica that has applied an entry of this time may choose; else the leader does.
            ask: whom to ask first, and who else; ``None``: the leader.
            reader: of the pages before, if any: what it knows need not travel again.

        Raises:
            Unavailable: nobody could serve in time.
            TooOld, SchemaMismatch: see ``TabletStore.scan``.
        """
        deadline = asyncio.get_running_loop().time() + timeout_s
        asked = _ordered(spec)
        reader = reader or PageRows(asked)
        kind, since = SCAN if reader.since is None else DIFF, reader.since
        request = encode(ScanRequest(self.tablet_id, asked, at, at_least=at_least, file=reader.file, since=since))
        answer = await self._client.ask_any(ask or self.leader, kind, request, deadline, Lane.BULK)
        page = decode(answer.body[0], ScanPage)
        if asked.columns is None and page.schema_version != self.schema.version:
            # The tablet has another schema by now. Those of our columns that it still has mean what they meant.
            named = msgspec.structs.replace(spec, columns=self.schema.layout.ids)
            return await self.page(named, at=page.at, ask=ask, reader=reader, timeout_s=timeout_s)
        return page, reader.read(page, reader.layout(self.schema, asked.columns), answer.body[1:])

    async def scan(
        self, spec: ScanSpec | None = None, *, at: int | None = None, timeout_s: float = TIMEOUT_S
    ) -> AsyncIterator[RowBatch]:
        """Read rows, batch by batch, all of one snapshot.

        Without ``at`` (a hybrid timestamp) the scan is linearizable: it sees every write that was
        acknowledged before it began. It survives a change of leader.

        Raises:
            Unavailable: no leader could serve in time.
            TooOld, SchemaMismatch: see ``TabletStore.scan``.
        """
        asked = _ordered(spec or ScanSpec())
        reader = PageRows(asked)
        while True:
            page, coming = await self.page(asked, at=at, reader=reader, timeout_s=timeout_s)
            at, rows = page.at, await coming
            # A page without rows is not the end: nothing in it matched.
            if rows is not None:
                yield rows
            if page.after is None:
                return
            limit = None if asked.limit is None else asked.limit - page.row_count
            if limit is not None and limit <= 0:
                return
            asked = msgspec.structs.replace(asked, after=page.after, limit=limit)

    def close(self) -> None:
        """Give every unanswered write an error."""
        self._writer.close(Unavailable("the client is closed"))


def _ordered(spec: ScanSpec) -> ScanSpec:
    """Pages are cut by key, so that any replica can go on where another stopped."""
    if spec.order is Order.ANY:
        return msgspec.structs.replace(spec, order=Order.KEY)
    return spec


def _is_of_storage(error: RemoteError) -> bool:
    """Whether a node could not read its own disk, or found damage on it: another replica has the same rows."""
    return issubclass(StelaeError.by_code.get(error.remote_code, StelaeError), StorageError)


async def _greet(messenger: Messenger, addresses: Sequence[str], timeout_s: float) -> list[NodeId]:
    """Say hello everywhere; go on as soon as one answered and the others had a moment."""
    hellos = [messenger.connect(a, deadline_ms=int(timeout_s * 1000)) for a in addresses]
    done, waiting = await asyncio.wait(hellos, return_when=asyncio.FIRST_COMPLETED)
    while waiting and not any(hello.exception() is None for hello in done):
        more, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        done |= more
    if waiting:
        more, waiting = await asyncio.wait(waiting, timeout=0.2)
        done |= more
    for hello in waiting:
        hello.cancel()
    nodes = [hello.result() for hello in hellos if hello in done and hello.exception() is None]
    if not nodes:
        refusals = {str(error) for hello in done if not isinstance(error := hello.exception(), Unavailable)}
        why = "; ".join(sorted(refusals)) or "see whether the nodes run, and whether these are their addresses"
        raise Unavailable(f"nobody answered in {timeout_s:g} s at {', '.join(addresses)}: {why}")
    return nodes
