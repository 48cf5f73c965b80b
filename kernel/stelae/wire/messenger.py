"""The messenger of a process: sends and receives requests, answers and one-way messages.

A node listens on one socket and keeps two links, one per lane, to each peer. A client has links only. All messages that
one turn of the event loop produced for one destination are sent as one packet at the end of the turn.

Ordering
    Within one lane to one peer, messages arrive in the order of ``send`` and ``call``, or not at all. A retry of a call
    takes its place in the order at the time of the retry. Between lanes there is no order.
Durability
    None. A message of ``send`` may be lost. An unanswered ``call`` may or may not have taken effect.

All methods run on one event loop, never block, and start no task."""

import asyncio
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stelae.spi.errors import CallerError, StelaeError, Unavailable
from stelae.spi.ids import IncarnationId, NodeId
from stelae.spi.services import Buffer, Clock, Metrics
from stelae.wire.addresses import check_listen_host, resolver, split_address
from stelae.wire.call_retries import Call, Response, RetryPolicy
from stelae.wire.context import MessengerContext, TimeSource
from stelae.wire.envelope import Identity
from stelae.wire.faults import FaultSeam
from stelae.wire.link import Link
from stelae.wire.listener import Listener
from stelae.wire.packets import measure
from stelae.wire.refusals import Fields, Misdirected, StaleSender
from stelae.wire.requests import MessageHandler, RequestHandler, ServedKind, ServedKinds
from stelae.wire.settings import Lane, WireSettings
from stelae.wire.sockets import SocketLoop

__all__ = ["Identity", "Lane", "Messenger", "PeerChange", "Response", "RetryPolicy"]


@dataclass(frozen=True, slots=True)
class PeerChange:
    """A lane to a peer came up or went down."""

    node_id: NodeId
    #: The incarnation of the peer to which the lane is, or was, connected.
    incarnation: IncarnationId
    lane: Lane
    up: bool


class Messenger:
    """See the module docstring. It must be constructed on the running event loop.

    ``identity`` is the identity of this process; a client draws a random node id for its session. ``clock`` gives the
    monotonic time of deadlines, ``time`` the hybrid timestamps of envelopes. ``defer`` runs a callable at the end of
    the current turn of the loop; ``loop.call_soon`` can be used, and costs one turn. The names of the counters in
    ``metrics`` begin with ``wire_``. ``rng`` draws the jitter of pauses."""

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
        self._context = MessengerContext(identity, settings, clock, time, metrics, faults, rng, self._loop.call_later)
        self._socket_loop = SocketLoop(self._context, defer)
        self._served_kinds = ServedKinds(self._context, self._socket_loop.deadlines)
        self._resolve = resolver(self._loop)
        self._listener: Listener | None = None
        self._links: dict[NodeId, dict[Lane, Link]] = {}
        self._learned: set[NodeId] = set()  # Peers of ``learn_peer`` that nothing else has asked for.
        #: The links of ``connect`` whose peer has not answered yet.
        self._unidentified: dict[Link, asyncio.Future[NodeId]] = {}
        #: Those of ``connect`` whose peer was known already: the link of the peer that comes up again.
        self._returning: dict[asyncio.Future[NodeId], Link] = {}
        self._handlers: list[Callable[[PeerChange], None]] = []
        #: Called when a peer refuses this process because it knows a later incarnation.
        self.on_superseded: Callable[[StelaeError], None] = lambda error: None
        self._request_ids = itertools.count(1)

    @property
    def identity(self) -> Identity:
        """The identity of this process. Its cluster id may have been learned at the first hello."""
        return self._context.identity

    def bind(self, address: str) -> str:
        """Listen on ``host:port`` and return the actual address. Port 0 means any free port.

        Raises ``ConfigError`` if the address is not one of this machine, is in use, or is not a loopback address and
        ``insecure_listen`` is not set."""
        if self._listener is not None:
            raise CallerError("this messenger already listens")
        host, port = split_address(address)
        host = check_listen_host(host, insecure_listen=self._context.settings.insecure_listen)
        self._listener = Listener(self._context, self._served_kinds, self._socket_loop, host, port)
        return self._listener.address

    def serve(self, kind: str, handler: RequestHandler, *, lane: Lane = Lane.CONTROL) -> None:
        """Serve requests of a kind on one lane.

        ``handler`` must not block. It answers at once or later, or raises a ``StelaeError``, which is sent as the
        answer. Any other exception is logged, and the answer is ``INTERNAL``. Raises ``PluginError`` if the kind is
        already registered or reserved."""
        self._served_kinds.add(kind, ServedKind(lane=lane, on_request=handler))

    def on_message(self, kind: str, handler: MessageHandler, *, lane: Lane = Lane.CONTROL) -> None:
        """Handle one-way messages of a kind on one lane. Handler and errors are as for ``serve``."""
        self._served_kinds.add(kind, ServedKind(lane=lane, on_message=handler))

    def add_peer(self, node_id: NodeId, address: str) -> None:
        """Keep links to a node. If there are links already, change their address.

        A host name is resolved at each attempt to connect; the links are down while it cannot be resolved. Raises
        ``ConfigError`` if ``address`` is not ``host:port``, and ``CallerError`` for this node itself."""
        split_address(address)
        if node_id == self.identity.node_id:
            raise CallerError("a node cannot be its own peer")
        self._learned.discard(node_id)
        if node_id in self._links:
            for link in self._links[node_id].values():
                link.move(address)
        else:
            self._links[node_id] = {lane: self._open_link(lane, address, node_id) for lane in Lane}

    def learn_peer(self, node_id: NodeId, address: str = "") -> bool:
        """Open links to a node at an address, or at the one that it has said in its hello when it connected.

        Returns False if there are links to it already, which change their address if one is given; also if no address
        is known. Raises as ``add_peer``."""
        new = node_id not in self._links
        if new and self._listener is not None:
            address = address or self._listener.address_of(node_id)
        if address:
            learned = new or node_id in self._learned
            self.add_peer(node_id, address)
            if learned:
                self._learned.add(node_id)
        return new and bool(address)

    def forget_peer(self, node_id: NodeId) -> None:
        """Close the links to a node that ``learn_peer`` opened, unless ``add_peer`` came since."""
        if node_id in self._learned:
            self.remove_peer(node_id)

    def advertise(self, address: str) -> None:
        """Say in later hellos that this process listens at ``host:port``, so that peers can answer over their links."""
        self._context.address = address

    def remove_peer(self, node_id: NodeId) -> None:
        """Close the links to a node. Calls to it that are not answered fail with ``Unavailable``."""
        self._learned.discard(node_id)
        for link in self._links.pop(node_id, {}).values():
            self._close_link(link, Unavailable(f"node {node_id} is no longer a peer"))

    def connect(self, address: str, *, deadline_ms: int = 10_000) -> asyncio.Future[NodeId]:
        """Connect to the process at ``host:port``, whose node id is not known, and keep links to it as to a peer.

        The future returns the node id once the control lane is up. It fails with ``Unavailable`` at the deadline, and
        with ``WrongCluster`` or another ``Misdirected`` at once if the process refuses the hello. If the process is a
        peer already whose control lane is down, its links move to this address."""
        split_address(address)
        peer_id: asyncio.Future[NodeId] = self._loop.create_future()
        for node_id, lanes in self._links.items():
            if lanes[Lane.CONTROL].address == address and lanes[Lane.CONTROL].up:
                peer_id.set_result(node_id)
                return peer_id
        link = self._open_link(Lane.CONTROL, address, None)
        self._unidentified[link] = peer_id

        def give_up() -> None:
            if not peer_id.done():
                waited_for = self._returning.get(peer_id, link)
                peer_id.set_exception(Unavailable(f"no answer from {address}: {waited_for.hindrance}"))

        def done(_: asyncio.Future[NodeId]) -> None:
            timer.cancel()
            self._returning.pop(peer_id, None)
            if self._unidentified.pop(link, None) is not None:
                self._close_link(link, Unavailable("the attempt to connect was given up"))

        timer = self._loop.call_later(deadline_ms / 1000, give_up)
        peer_id.add_done_callback(done)
        return peer_id

    def on_peer_change(self, handler: Callable[[PeerChange], None]) -> None:
        """Call ``handler`` whenever a lane to a peer comes up or goes down."""
        self._handlers.append(handler)

    @property
    def peers(self) -> frozenset[NodeId]:
        """The nodes to which links are kept, whether they are up or down."""
        return frozenset(self._links)

    def connected(self, node_id: NodeId, lane: Lane = Lane.CONTROL) -> IncarnationId | None:
        """Return the incarnation of the peer to which a lane is connected, or ``None`` if the lane is down."""
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
        """Send a one-way message at the end of this turn. The frames must not change afterwards.

        Returns False, and drops the message, if the lane is down or its credit is used up. Raises ``TooLarge`` if a
        frame, or the number of frames, is above the limit."""
        lengths = measure(frames, self._context.settings)
        link = self._link(to, lane)
        if link is not None and link.send(kind, frames, lengths, fields):
            return True
        self._context.metrics.count("wire_messages_unsent")
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
        """Send a request at the end of this turn. The future returns the answer.

        ``retry`` is for idempotent requests: the request is repeated until ``deadline_ms`` from now, also over new
        connections and to a later incarnation of the peer. When the future is cancelled, the peer is notified. The
        frames must not change until the future is done.

        The future fails with

        - ``Unavailable`` if the lane is not connected, or the connection was lost (the effect is unknown);
        - ``Overloaded`` if the link's credit is used up, or the peer is overloaded;
        - ``DeadlineExceeded`` if there was no answer in time (the effect is unknown);
        - the error with which the peer refused the request (``stelae.wire.refusals``).

        ``call`` itself raises ``TooLarge`` as ``send`` does, and ``CallerError`` if the deadline is out of bounds."""
        settings, now_us = self._context.settings, self._context.now_us()
        lengths = measure(frames, settings)
        if not 0 < deadline_ms <= settings.deadline_ms_max:
            raise CallerError(f"deadline_ms must be from 1 to {settings.deadline_ms_max}, not {deadline_ms}")
        due_us, request_id = now_us + deadline_ms * 1000, next(self._request_ids)
        call = Call(self._loop, request_id, kind, frames, lengths, fields, trace_id, due_us, retry)
        link = self._link(to, lane)
        if link is None:
            call.set_exception(Unavailable(f"node {to} is not a peer"))
        else:
            link.calls.start(call, now_us)
        return call

    def close(self) -> None:
        """Stop. Calls fail with ``Unavailable``, open requests are abandoned, and unsent messages are lost."""
        if self._socket_loop.closed:
            return
        error = Unavailable("this process is closing its messenger")
        for peer_id in (*self._unidentified.values(), *self._returning):
            if not peer_id.done():
                peer_id.set_exception(error)
        links = [link for lanes in self._links.values() for link in lanes.values()]
        for link in (*self._unidentified, *links):
            self._close_link(link, error)
        self._unidentified.clear()
        self._links.clear()
        if self._listener is not None:
            self._listener.close()
        self._socket_loop.close()

    def _link(self, node_id: NodeId, lane: Lane) -> Link | None:
        return self._links[node_id][lane] if node_id in self._links else None

    def _open_link(self, lane: Lane, address: str, peer: NodeId | None) -> Link:
        link = Link(self._context, self._socket_loop, self._resolve, self._link_changed, lane, address, peer)
        link.open()
        return link

    def _close_link(self, link: Link, error: StelaeError) -> None:
        self._socket_loop.leave(link)
        was_up = link.up
        link.close(error)
        if was_up:
            self._notify(link, up=False)

    def _link_changed(self, link: Link, error: StelaeError | None) -> None:
        peer_id = self._unidentified.get(link)
        if isinstance(error, StaleSender):
            self.on_superseded(error)
        if error is None:
            if peer_id is None or self._adopt(link, peer_id):
                self._notify(link, up=True)
                self._returned(link)
        elif peer_id is None:
            self._notify(link, up=False)
        elif isinstance(error, Misdirected) and not peer_id.done():
            peer_id.set_exception(error)  # The caller of ``connect`` must learn that the address is wrong.

    def _adopt(self, link: Link, peer_id: asyncio.Future[NodeId]) -> bool:
        """Make the process that answered ``connect`` a peer. Return False if it is a peer already."""
        assert link.peer is not None
        del self._unidentified[link]
        node_id, lanes = link.peer, self._links.get(link.peer)
        if lanes is None:
            bulk = self._open_link(Lane.BULK, link.address, node_id)
            self._links[node_id] = {Lane.CONTROL: link, Lane.BULK: bulk}
            if not peer_id.done():
                peer_id.set_result(node_id)
            return True
        # The peer has dropped the connection of the existing link, because this one is newer on the same lane. So this
        # link is closed and the existing one reconnects, at its own address if it was up there.
        self._socket_loop.leave(link)
        link.close(Unavailable("another link to the same peer exists"))
        control = lanes[Lane.CONTROL]
        if not peer_id.done():
            self._returning[peer_id] = control
        if control.up:
            control.restart("the same peer was found under another address")
        else:
            for other in lanes.values():
                other.move(link.address)
        return False

    def _returned(self, link: Link) -> None:
        """Complete the ``connect`` calls that wait for a link of a peer."""
        for peer_id in [one for one, waited_for in self._returning.items() if waited_for is link]:
            assert link.peer is not None
            if not peer_id.done():
                peer_id.set_result(link.peer)

    def _notify(self, link: Link, *, up: bool) -> None:
        if link.peer is None or link.peer_incarnation is None:
            return
        change = PeerChange(link.peer, link.peer_incarnation, link.lane, up)
        for handler in self._handlers:
            try:
                handler(change)
            except Exception:
                # An error of a handler must not interrupt the link's change of state.
                self._context.unexpected("a handler of peer changes")
