"""The messenger of a process: one door for requests, answers and one-way messages.

A node listens with one socket and keeps two links, one per lane, to each peer; a client has links
only. What one turn of the loop produced for one destination leaves as one message at its end.

Ordering
    Within one lane to one peer, messages arrive in the order of ``send`` and ``call``, or not at
    all; a repeated attempt of a call stands where it was repeated. Between lanes there is no order.
Durability
    None. ``send`` may lose anything; an unanswered ``call`` may or may not have had its effect.

Everything here runs on one event loop, never blocks, and starts no task."""

import asyncio
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stelae.spi.errors import CallerError, StelaeError, Unavailable
from stelae.spi.ids import IncarnationId, NodeId
from stelae.spi.services import Buffer, Clock, Metrics
from stelae.wire.addresses import check_listen_host, resolver, split_address
from stelae.wire.calls import Call, Response, RetryPolicy
from stelae.wire.common import Common, TimeSource
from stelae.wire.edge import Edge
from stelae.wire.envelope import Identity
from stelae.wire.faults import FaultSeam
from stelae.wire.link import Link
from stelae.wire.parcels import measure
from stelae.wire.refusals import Fields, Misdirected, StaleSender
from stelae.wire.requests import MessageHandler, RequestHandler, Service, Services
from stelae.wire.settings import Lane, WireSettings
from stelae.wire.station import Station

__all__ = ["Identity", "Lane", "Messenger", "PeerChange", "Response", "RetryPolicy"]


@dataclass(frozen=True, slots=True)
class PeerChange:
    """A lane to a peer came up or went down. ``incarnation`` is the run that it leads, or led."""

    node_id: NodeId
    incarnation: IncarnationId
    lane: Lane
    up: bool


class Messenger:
    """See the module; it must be made on the running loop.

    ``identity`` says who this process is; a client draws a node id for its session. ``clock`` is monotonic time for
    deadlines, ``time`` the hybrid clock that headers carry. ``defer`` runs a callable at the end of the present turn of
    the loop; ``loop.call_soon`` will do, at the price of one turn. Counters are named ``wire_...``; ``rng`` jitters."""

    def __init__(
        self,
        identity: Identity,
        *,
        clock: Clock,
        time: TimeSource,
        defer: Callable[[Callable[[], None]], None],
        settings: WireSettings,
        metrics: Metrics,
        faults: FaultSeam | None = None,
        rng: random.Random,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._common = Common(identity, settings, clock, time, metrics, faults, rng, self._loop.call_later)
        self._edge = Edge(self._common, defer)
        self._services = Services(self._common, self._edge.deadlines)
        self._resolve = resolver(self._loop)
        self._station: Station | None = None
        self._links: dict[NodeId, dict[Lane, Link]] = {}
        self._strangers: dict[Link, asyncio.Future[NodeId]] = {}
        self._watchers: list[Callable[[PeerChange], None]] = []
        self.on_superseded: Callable[[StelaeError], None] = lambda error: None  #: A peer knows a later run.
        self._request_ids = itertools.count(1)

    @property
    def identity(self) -> Identity:
        """Who this process is; the cluster id may have been learned at the first hello."""
        return self._common.identity

    def bind(self, address: str) -> str:
        """Listen on ``host:port`` (0: any free port) and return the actual address. ``ConfigError``: it does not exist,
        is taken, or is not loopback and ``insecure_listen`` is not set."""
        if self._station is not None:
            raise CallerError("this messenger listens already")
        host, port = split_address(address)
        host = check_listen_host(host, insecure_listen=self._common.settings.insecure_listen)
        self._station = Station(self._common, self._services, self._edge, host, port)
        return self._station.address

    def serve(self, kind: str, handler: RequestHandler, *, lane: Lane = Lane.CONTROL) -> None:
        """Answer requests of a kind, on one lane; ``PluginError``: taken or reserved. ``handler`` must not block: it
        answers now or later, or raises a ``StelaeError`` as its answer; others are logged and answered ``INTERNAL``."""
        self._services.add(kind, Service(lane=lane, on_request=handler))

    def on_message(self, kind: str, handler: MessageHandler, *, lane: Lane = Lane.CONTROL) -> None:
        """Take one-way messages of a kind, on one lane; handler and errors as for ``serve``."""
        self._services.add(kind, Service(lane=lane, on_message=handler))

    def add_peer(self, node_id: NodeId, address: str) -> None:
        """Keep links to a node, or move them to a new ``address``, resolved at each attempt to connect: they are down
        until it can be. ``ConfigError``: not ``host:port``. ``CallerError``: this node itself."""
        split_address(address)
        if node_id == self.identity.node_id:
            raise CallerError("a node is not its own peer")
        if node_id in self._links:
            for link in self._links[node_id].values():
                link.move(address)
        else:
            self._links[node_id] = {lane: self._open_link(lane, address, node_id) for lane in Lane}

    def remove_peer(self, node_id: NodeId) -> None:
        """Give up the links to a node; its calls fail ``Unavailable``."""
        for link in self._links.pop(node_id, {}).values():
            self._close_link(link, Unavailable(f"node {node_id} is no longer a peer"))

    def connect(self, address: str, *, deadline_ms: int = 10_000) -> asyncio.Future[NodeId]:
        """Say hello to whoever lives at ``host:port`` and keep links as to a peer. The future gives the node id once
        the control lane is up; ``Unavailable`` at the deadline; ``WrongCluster`` and the like at once if refused."""
        split_address(address)
        found: asyncio.Future[NodeId] = self._loop.create_future()
        for node_id, lanes in self._links.items():
            if lanes[Lane.CONTROL].address == address and lanes[Lane.CONTROL].up:
                found.set_result(node_id)
                return found
        link = self._open_link(Lane.CONTROL, address, None)
        self._strangers[link] = found

        def give_up() -> None:
            if not found.done():
                found.set_exception(Unavailable(f"nobody answers at {address} ({link.last_failure})"))

        def settled(_: asyncio.Future[NodeId]) -> None:
            timer.cancel()
            if self._strangers.pop(link, None) is not None:
                self._close_link(link, Unavailable("nobody waits for this address any more"))

        timer = self._loop.call_later(deadline_ms / 1000, give_up)
        found.add_done_callback(settled)
        return found

    def on_peer_change(self, handler: Callable[[PeerChange], None]) -> None:
        """Call ``handler`` whenever a lane to a peer comes up or goes down."""
        self._watchers.append(handler)

    def connected(self, node_id: NodeId, lane: Lane = Lane.CONTROL) -> IncarnationId | None:
        """Return the run of a peer that a lane leads to, or ``None`` when it is down."""
        link = self._link(node_id, lane)
        return link.peer_incarnation if link is not None and link.up else None

    def send(
        self,
        to: NodeId,
        kind: str,
        frames: Sequence[Buffer] = (),
        *,
        lane: Lane = Lane.CONTROL,
        fields: Fields | None = None,
    ) -> bool:
        """Send a one-way message at the end of this turn; frames must not change afterwards. False, and nothing is
        queued: the lane is down, or its credit used up. ``TooLarge``: a frame, or their number, is above the limit."""
        lengths = measure(frames, self._common.settings)
        link = self._link(to, lane)
        if link is not None and link.send(kind, frames, lengths, fields):
            return True
        self._common.metrics.count("wire_messages_unsent")
        return False

    def call(
        self,
        to: NodeId,
        kind: str,
        frames: Sequence[Buffer] = (),
        *,
        deadline_ms: int,
        lane: Lane = Lane.CONTROL,
        fields: Fields | None = None,
        trace_id: str = "",
        retry: RetryPolicy | None = None,
    ) -> asyncio.Future[Response]:
        """Send a request at the end of this turn; the future gives the answer.

        With ``retry`` (for what is idempotent) it is repeated until ``deadline_ms`` from now, also over new connections
        and to a successor of the peer's process. Cancelling the future tells the peer. Frames must not change until the
        future is done. It fails with ``Unavailable``: not connected, or the connection was lost (effect unknown);
        ``Overloaded``: the link's credit is used up, or the peer said so; ``DeadlineExceeded``: no answer in time
        (effect unknown); or the error with which the peer refused, see ``stelae.wire.refusals``. ``call`` itself raises
        ``TooLarge`` as ``send`` does, and ``CallerError`` for a deadline out of bounds."""
        settings, now_us = self._common.settings, self._common.now_us()
        lengths = measure(frames, settings)
        if not 0 < deadline_ms <= settings.deadline_ms_max:
            raise CallerError(f"deadline_ms is from 1 to {settings.deadline_ms_max}")
        due_us, request_id = now_us + deadline_ms * 1000, next(self._request_ids)
        call = Call(self._loop, request_id, kind, frames, lengths, fields, trace_id, due_us, retry)
        link = self._link(to, lane)
        if link is None:
            call.set_exception(Unavailable(f"node {to} is not a peer"))
        else:
            link.calls.start(call, now_us)
        return call

    def close(self) -> None:
        """Stop: calls fail ``Unavailable``, requests are abandoned, what is unsent is lost."""
        if self._edge.closed:
            return
        error = Unavailable("this process is closing its messenger")
        for found in self._strangers.values():
            if not found.done():
                found.set_exception(error)
        links = [link for lanes in self._links.values() for link in lanes.values()]
        for link in (*self._strangers, *links):
            self._close_link(link, error)
        self._strangers.clear()
        self._links.clear()
        if self._station is not None:
            self._station.close()
        self._edge.close()

    def _link(self, node_id: NodeId, lane: Lane) -> Link | None:
        return self._links[node_id][lane] if node_id in self._links else None

    def _open_link(self, lane: Lane, address: str, peer: NodeId | None) -> Link:
        link = Link(self._common, self._edge, self._resolve, self._changed, lane, address, peer)
        link.open()
        return link

    def _close_link(self, link: Link, error: StelaeError) -> None:
        self._edge.leave(link)
        was_up = link.up
        link.close(error)
        if was_up:
            self._tell(link, up=False)

    def _changed(self, link: Link, error: StelaeError | None) -> None:
        found = self._strangers.get(link)
        if isinstance(error, StaleSender):
            self.on_superseded(error)
        if error is None:
            if found is None or self._adopt(link, found):
                self._tell(link, up=True)
        elif found is None:
            self._tell(link, up=False)
        elif isinstance(error, Misdirected) and not found.done():
            found.set_exception(error)  # who asked for an address must hear that it is wrong

    def _adopt(self, link: Link, found: asyncio.Future[NodeId]) -> bool:
        """A stranger has said its name: it becomes a peer, unless it is one already."""
        assert link.peer is not None
        del self._strangers[link]
        node_id, lanes = link.peer, self._links.get(link.peer)
        if lanes is None:
            bulk = self._open_link(Lane.BULK, link.address, node_id)
            self._links[node_id] = {Lane.CONTROL: link, Lane.BULK: bulk}
        else:
            # The peer now takes this connection for the newest of its lane, so the old link must open another.
            self._edge.leave(link)
            link.close(Unavailable("another link leads there"))
            lanes[Lane.CONTROL].restart("the same peer was found under another address")
        if not found.done():
            found.set_result(node_id)
        return lanes is None

    def _tell(self, link: Link, *, up: bool) -> None:
        if link.peer is None or link.peer_incarnation is None:
            return
        change = PeerChange(link.peer, link.peer_incarnation, link.lane, up)
        for handler in self._watchers:
            try:
                handler(change)
            except Exception:
                # Whoever only watches must not leave a link half way between two states.
                self._common.unexpected("a handler of peer changes")
