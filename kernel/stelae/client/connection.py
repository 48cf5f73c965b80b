"""The connection of a client to the nodes of a cluster, and to single tablets.

A connection is given addresses and connects to the nodes that answer. For each tablet it finds the leader, and follows
it when it changes. It knows no tables: these are in ``stelae.client.async_client``. A connection belongs to one event
loop."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar
from weakref import WeakSet

import msgspec

from stelae.client.call_times import ASK_MS_MAX, ATTEMPT_MS_MAX, CALL_MS, TIMEOUT_S, TRANSFER_MS, left_ms
from stelae.client.failed_attempts import pause_after
from stelae.client.greeting import ANY_CLUSTER, Greeting
from stelae.client.leader_tracker import LeaderTracker
from stelae.client.link_upkeep import LinkUpkeep
from stelae.client.lookup_queue import LookupQueue
from stelae.client.member_lookup import MemberLookup
from stelae.client.messenger_ports import NoTime, QuietMetrics, WallClock
from stelae.client.page_rows import PageRows, in_key_order
from stelae.client.tablet_writer import TabletWriter
from stelae.client.turns import ClientTurns, check_loop
from stelae.client.write_retries import BACKOFF_S_MAX, BACKOFF_S_MIN
from stelae.protocol.codec import decode, encode
from stelae.protocol.tablet_messages import (
    ALTER,
    CHECKSUM,
    DESCRIBE,
    DIFF,
    SCAN,
    SPLIT_KEYS,
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
    SplitKeys,
    SplitKeysRequest,
    StatusReply,
    StatusRequest,
    TransferRequest,
)
from stelae.rows.operation_encoding import Operation
from stelae.spi.errors import DeadlineExceeded, StelaeError, Unavailable
from stelae.spi.ids import ClientId, ClusterId, IncarnationId, NodeId, TabletId
from stelae.spi.rows import RowBatch
from stelae.spi.scan import ScanSpec
from stelae.spi.schema import Schema
from stelae.spi.write import OpResult
from stelae.wire.messenger import Identity, Lane, Messenger, Response
from stelae.wire.refusals import WrongCluster
from stelae.wire.settings import WireSettings

_Message = TypeVar("_Message", bound=msgspec.Struct)


class Connection:
    """A connection to the nodes of a cluster. Made by :meth:`connect`."""

    def __init__(self, messenger: Messenger, turns: ClientTurns, greeting: Greeting) -> None:
        self._messenger = messenger
        self._turns = turns
        # Weak: a writer or queue without a user may go. One with work that waits is held by its calls and timers.
        self._writers: WeakSet[TabletWriter] = WeakSet()
        self._lookups: WeakSet[LookupQueue] = WeakSet()
        self.member_lookup = MemberLookup(self)
        self._greeting = greeting
        greeting.on_mixed = self._end_mixed
        self.rng = random.Random(secrets.randbits(64))
        self.addresses: dict[NodeId, str] = {}
        """Addresses of the members of tablets that were opened."""
        self.takes_lz4 = False
        """The field ``lz4`` of requests for pages."""
        self.closed = False
        self._mixed = ""  #: Why the client has closed itself: its addresses are of two clusters.
        self._upkeep = LinkUpkeep(messenger, self._named, self.addresses)

    @property
    def nodes(self) -> Sequence[NodeId]:
        """The nodes that have answered at the addresses given at connect."""
        return self._greeting.nodes

    @property
    def cluster_id(self) -> ClusterId:
        """The cluster of the nodes that have answered."""
        return ClusterId(self._messenger.identity.cluster_id)

    @classmethod
    async def connect(
        cls, addresses: Sequence[str], *, cluster_id: ClusterId = ANY_CLUSTER, timeout_s: float = 10.0
    ) -> Connection:
        """Connect to the nodes that answer at ``host:port`` addresses; at least one must answer.

        With a ``cluster_id``, only nodes of that cluster answer.

        Raises:
            Unavailable: no node answered in time.
            WrongCluster: two of the addresses are of different clusters. A client of one closes itself if an address
                that answers late is of another cluster.
            ConfigError: an address is not ``host:port``.
        """
        clock, turns = WallClock(), ClientTurns(asyncio.get_running_loop())
        identity = Identity(
            cluster_id=cluster_id,
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
            greeting = Greeting(messenger, addresses)
            await greeting.first(timeout_s)
            return cls(messenger, turns, greeting)
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
            tablet_id: id of the tablet.
            members: nodes that host the tablet, with their addresses, to connect to.
            asked: nodes that host the tablet and that answered at connect. Without ``members`` and ``asked``, all nodes
                that answered at connect are asked.
            timeout_s: how long to ask.

        Raises:
            Unavailable: no node answered in time.
            NoSuchTablet: no node has the tablet.
        """
        deadline = asyncio.get_running_loop().time() + timeout_s
        self.add_peers(members)
        tracker = LeaderTracker([node_id for node_id, _ in members] or asked or self.nodes)
        if not members and not asked:
            tracker.on_lost = partial(self._greeting.again, tracker)
        answer = await self.ask_any(tracker, DESCRIBE, encode(DescribeRequest(tablet_id)), deadline, Lane.CONTROL)
        described = decode(answer.body[0], Description)
        leader = self.member_lookup.tracker(tablet_id, described.members)
        leader.learn(leader.members, described.leader)
        return ConnectedTablet(self, tablet_id, Schema.from_bytes(described.schema), leader)

    def add_peers(self, members: Sequence[tuple[NodeId, str]]) -> None:
        """Keep links to nodes, at these addresses. ``Unavailable``: the client is closed.

        A node that answers at another address is kept there: the one that nodes know may be out of date, or not be
        reachable from here."""
        self.check_open()
        for node_id, address in members:
            if self._messenger.connected(node_id) is None:
                self._messenger.add_peer(node_id, address)
            self.addresses[node_id] = address

    def _named(self) -> set[NodeId]:
        """Return the nodes that the client may ask: those that answered at connect, and those of all trackers."""
        return {*self.nodes, *(node for tracker in self.member_lookup.trackers for node in tracker.members)}

    async def reach(self, address: str, *, deadline_ms: int = CALL_MS) -> NodeId:
        """Connect to the node at an address that was not given at connect, and return its id.

        Raises:
            Unavailable: no node answered in time.
            ConfigError: the address is not ``host:port``.
        """
        self.check_open()
        return await self._messenger.connect(address, deadline_ms=deadline_ms)

    async def ask(self, node: NodeId, kind: str, body: bytes, *, deadline_ms: int = CALL_MS) -> Response:
        """Send one request to one node, without a retry, and return the answer.

        ``deadline_ms`` above ``ASK_MS_MAX`` counts as that.

        Raises:
            RetryableError: no answer came in time.
            StelaeError: the error with which the node refused the request.
        """
        self.check_open()
        return await self._messenger.call(node, kind, [body], deadline_ms=max(1, min(deadline_ms, ASK_MS_MAX)))

    async def status(self, node: NodeId, *, deadline_ms: int = CALL_MS) -> list[ReplicaReport]:
        """Return the state of every replica of one node.

        Raises:
            RetryableError: the node did not answer.
        """
        answer = await self.ask(node, STATUS, encode(StatusRequest()), deadline_ms=deadline_ms)
        return list(decode(answer.body[0], StatusReply).replicas)

    async def holders(self, tablet_id: TabletId, members: Sequence[tuple[NodeId, str]]) -> int:
        """Return how many of these nodes, given with their addresses, may have a replica of a tablet.

        A node that does not answer counts; only a node that answers that it has none does not. ``Unavailable``: the
        client is closed."""
        self.add_peers(members)
        request = encode(DescribeRequest(tablet_id))
        calls = (self.ask(node_id, DESCRIBE, request) for node_id, _ in members)
        answers = await asyncio.gather(*calls, return_exceptions=True)
        return sum(not isinstance(answer, NoSuchTablet) for answer in answers)

    async def change_schema(
        self, tablet: ConnectedTablet, schema: Schema, *, timeout_s: float = TIMEOUT_S
    ) -> ConnectedTablet:
        """Change the schema of a tablet, and return the tablet with its new schema.

        Columns may be added, dropped, renamed, get another default, or become nullable. ``schema.version`` must be one
        above the present version. A second request for the same schema has no effect. From now on, writes through
        ``ConnectedTablet`` objects with an older schema are refused with ``SCHEMA_MISMATCH``.

        Raises:
            SchemaMismatch: the schema cannot follow the present one; nothing was changed.
            Unavailable: no leader answered in time. The change may still take effect.
        """
        request = encode(AlterRequest(tablet.tablet_id, schema.to_bytes()))
        await self.repeat(tablet.leader, ALTER, request, asyncio.get_running_loop().time() + timeout_s)
        return ConnectedTablet(self, tablet.tablet_id, schema, tablet.leader)

    async def transfer_leadership(self, leader: NodeId, tablet_id: TabletId, to: NodeId | None = None) -> None:
        """Ask the leader of a tablet to transfer its leadership. Writes wait for at most one election timeout.

        Args:
            leader: the node that leads the tablet.
            tablet_id: id of the tablet.
            to: a voter of the tablet; ``None``: the most up-to-date one.

        Raises:
            NotLeader: the node does not lead the tablet.
            Unavailable: no voter took over in time, or could. The leader still leads.
            CallerError: ``to`` is not a voter of the tablet.
        """
        request = encode(TransferRequest(tablet_id, to))
        await self.ask(leader, TRANSFER_LEADERSHIP, request, deadline_ms=TRANSFER_MS)

    async def checksum(
        self, node: NodeId, tablet_id: TabletId, *, at: int | None = None, deadline_ms: int = 10 * CALL_MS
    ) -> Checksum:
        """Return the logical checksum of one replica's rows, with the op id and the time for which it is.

        ``at`` is the hybrid timestamp of the rows; ``None``: of the last applied entry. The node visits every row in
        Python, so a million rows take ten seconds or more on a busy node.

        Raises:
            RetryableError: the node did not answer, or the replica cannot serve, or has not applied entries up to
                ``at``.
            TooOld: ``at`` is below the replica's history floor.
        """
        answer = await self.ask(node, CHECKSUM, encode(ChecksumRequest(tablet_id, at)), deadline_ms=deadline_ms)
        return decode(answer.body[0], Checksum)

    def close(self) -> None:
        """Close the connection. Writes without an outcome and lookups fail, and so do all calls that still wait.

        A second call has no effect."""
        self.closed = True
        self._upkeep.close()
        self.member_lookup.close()
        for writer in list(self._writers):
            writer.close(self._why_closed())
        for lookups in list(self._lookups):
            lookups.close(self._why_closed())
        self._messenger.close()

    def _end_mixed(self, error: WrongCluster) -> None:
        """Close the connection. All calls fail with this error from now on."""
        if not self.closed:
            self._mixed = str(error)
            self.close()

    def _why_closed(self) -> StelaeError:
        return WrongCluster(self._mixed) if self._mixed else Unavailable("the client is closed")

    def check_open(self) -> None:
        """Raise ``Unavailable`` if the client is closed. Code that waits and asks again calls it in each round.

        ``WrongCluster``: it has closed itself. ``CallerError``: it is of another event loop."""
        if self.closed:
            raise self._why_closed()
        check_loop(self._turns.loop)

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def ask_any(self, tracker: LeaderTracker, kind: str, body: bytes, deadline: float, lane: Lane) -> Response:
        """Send a request to the tracked node, and to the next one if that cannot serve, until one answers.

        Args:
            tracker: chooses the nodes; it learns of hints and failures.
            kind: of the request.
            body: of the request.
            deadline: in seconds of the event loop's clock.
            lane: of the request.

        Raises:
            NoSuchTablet: all nodes answered that they do not have the tablet.
            Unavailable: no node served the request before the deadline, or the client is closed.
            StelaeError: a node refused the request, and no other one can serve it.
        """
        loop = asyncio.get_running_loop()
        self.member_lookup.trackers.add(tracker)
        without_tablet: set[NodeId] = set()
        problems: dict[NodeId, StelaeError] = {}
        attempt_ms = CALL_MS
        while True:
            self.check_open()
            node = tracker.current
            try:
                deadline_ms = min(attempt_ms, left_ms(deadline))
                answer = await self._messenger.call(node, kind, [body], deadline_ms=deadline_ms, lane=lane)
                tracker.served()
                return answer
            except StelaeError as error:
                self.check_open()
                pause = pause_after(error, tracker, node, without_tablet)
                if isinstance(error, DeadlineExceeded):
                    problems.setdefault(node, error)  # What the node answered before says more.
                    attempt_ms = min(2 * attempt_ms, ATTEMPT_MS_MAX)
                else:
                    problems[node] = error
            if loop.time() >= deadline:
                reasons = "; ".join(dict.fromkeys(map(str, problems.values())))
                raise Unavailable(f"no node could serve {kind} in time: {reasons}")
            if pause:
                await asyncio.sleep(BACKOFF_S_MIN + self.rng.random() * BACKOFF_S_MAX / 4)

    def call(self, node: NodeId, kind: str, body: bytes) -> asyncio.Future[Response]:
        """Send one request to one node at the end of this turn, without a retry; see ``Messenger.call``.

        ``Unavailable``: the client is closed."""
        self.check_open()
        return self._messenger.call(node, kind, [body], deadline_ms=CALL_MS)

    async def repeat(self, tracker: LeaderTracker, kind: str, body: bytes, deadline: float) -> Response:
        """Send a request as :meth:`ask_any` does, on the lane ``CONTROL``."""
        return await self.ask_any(tracker, kind, body, deadline, Lane.CONTROL)

    def lookups(self, tablet_id: TabletId, schema: Schema) -> LookupQueue:
        """Return a new queue of lookups of a tablet. It is closed with the connection."""
        made = LookupQueue(self, self._turns.defer, tablet_id, schema)
        self._lookups.add(made)
        return made

    def _writer(self, tablet_id: TabletId, schema: Schema, leader: LeaderTracker) -> TabletWriter:
        self.check_open()  # ``close`` may have come while the tablet was looked up.
        made = TabletWriter(
            self._messenger,
            leader,
            tablet_id=tablet_id,
            # Each writer needs its own client id, because it numbers its operations from 1.
            client_id=ClientId(secrets.token_hex(8)),
            schema_version=schema.version,
            rng=self.rng,
            defer=self._turns.defer,
        )
        self._writers.add(made)
        return made


class ConnectedTablet:
    """One tablet of a connection: writes operations and reads pages. Made by ``Connection.tablet``."""

    def __init__(self, connection: Connection, tablet_id: TabletId, schema: Schema, leader: LeaderTracker) -> None:
        self._connection = connection
        self.tablet_id = tablet_id
        self.schema = schema
        self.leader = leader
        """Chooses the node for writes and linearizable reads."""
        self._writer = connection._writer(tablet_id, schema, leader)

    def ask_if_gone(self, is_gone: Callable[[], Awaitable[bool]]) -> None:
        """Set the function that returns whether the tablet is gone for good.

        It is called when no member has a replica. If it returns true, writes fail at once instead of being retried."""
        self._writer.is_gone = is_gone

    @property
    def retries(self) -> Mapping[str, int]:
        """How many times an operation was sent again, by the code of the error that made it necessary."""
        return self._writer.retries

    def send(self, encoded: Operation, timeout_s: float, *, follows: bool = False) -> asyncio.Future[OpResult]:
        """Send one encoded operation. Many may be in flight.

        Args:
            encoded: its rows, in one of the forms of ``rows.operation_encoding``.
            timeout_s: how long to retry; at most ``TIMEOUT_S_MAX``.
            follows: put it in the same request as the operation before, so that both keep their order.

        The future's result has the rows that were not written (``errors``), or a ``refusal`` of the whole operation. It
        is set once a majority has made the operation durable. After ``DeadlineExceeded``, the operation may still take
        effect, at most once.

        Raises:
            Overloaded: too many operations have no outcome yet.
        """
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
        """Read one page of a scan in key order, and return a future with its rows, or with ``None`` if it has none.

        The rows of a large page are decoded by another thread, hence the future. It fails with ``Corrupt`` if the rows
        cannot be decoded.

        Args:
            spec: the scan; ``after`` has the key behind which the page begins.
            at: hybrid timestamp of the snapshot; ``None``: linearizable, unless ``at_least`` is given.
            at_least: hybrid timestamp. A replica that has applied an entry at or above it may choose the snapshot.
            ask: chooses the nodes to ask; ``None``: the leader is asked.
            reader: the reader of the pages before, if there are any. It has the footer of the file of stored rows.

        Raises:
            Unavailable: no node could serve in time.
            TooOld, SchemaMismatch: see ``TabletStore.scan``.
        """
        deadline = asyncio.get_running_loop().time() + timeout_s
        asked = in_key_order(spec)
        reader = reader or PageRows(asked)
        kind, since, lz4 = SCAN if reader.since is None else DIFF, reader.since, self._connection.takes_lz4
        request = ScanRequest(self.tablet_id, asked, at, at_least=at_least, file=reader.file, since=since, lz4=lz4)
        answer = await self._connection.ask_any(ask or self.leader, kind, encode(request), deadline, Lane.BULK)
        page = decode(answer.body[0], ScanPage)
        if asked.columns is None and page.schema_version != self.schema.version:
            # The tablet has another schema now. The ids of our columns still mean the same columns.
            explicit = msgspec.structs.replace(spec, columns=self.schema.layout.ids)
            return await self.page(explicit, at=page.at, ask=ask, reader=reader, timeout_s=timeout_s)
        return page, reader.read(page, reader.layout(self.schema, asked.columns), answer.body[1:])

    async def split_keys(self, spec: ScanSpec, bytes_max: int, *, timeout_s: float = TIMEOUT_S) -> SplitKeys:
        """Return encoded keys that divide the key range of a scan into parts of about ``bytes_max``, and the size.

        The members are asked in turn until one answers. Raises ``Unavailable`` if none does in time."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        request = encode(SplitKeysRequest(self.tablet_id, bytes_max, spec.key_from, spec.key_until))
        members = self._connection.member_lookup.follow(self.tablet_id, LeaderTracker(self.leader.members))
        answer = await self._connection.ask_any(members, SPLIT_KEYS, request, deadline, Lane.CONTROL)
        return decode(answer.body[0], SplitKeys)

    async def scan(
        self, spec: ScanSpec | None = None, *, at: int | None = None, timeout_s: float = TIMEOUT_S
    ) -> AsyncIterator[RowBatch]:
        """Yield the rows of one snapshot, batch by batch.

        Without ``at`` (a hybrid timestamp), the scan is linearizable: it sees every write that was acknowledged before
        it began. It continues after a change of leader.

        Raises:
            Unavailable: no leader could serve in time.
            TooOld, SchemaMismatch: see ``TabletStore.scan``.
        """
        asked = in_key_order(spec or ScanSpec())
        reader = PageRows(asked)
        while True:
            page, decoded = await self.page(asked, at=at, reader=reader, timeout_s=timeout_s)
            at, rows = page.at, await decoded
            # A page without rows is not the end of the scan: no row matched among those that were read.
            if rows is not None:
                yield rows
            if page.after is None:
                return
            limit = None if asked.limit is None else asked.limit - page.row_count
            if limit is not None and limit <= 0:
                return
            asked = msgspec.structs.replace(asked, after=page.after, limit=limit)
