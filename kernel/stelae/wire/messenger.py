"""The messenger of a process: one door for requests, answers and one-way messages.

A node listens with one socket and keeps two links, one per lane, to each peer; a client has links
only. What one turn of the loop produced for one destination leaves as one message at its end.

Ordering
    Within one lane to one peer, messages arrive in the order of ``send`` and ``call``, or not at
    all; a repeated attempt of a call stands where it was repeated. Between lanes there is no order.
Durability
    None. ``send`` may lose anything; an unanswered ``call`` may or may not have had its effect.

Everything here runs on one event loop, never blocks, and starts no task.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

from stelae.spi.errors import CallerError, Unavailable
from stelae.spi.ids import IncarnationId, NodeId
from stelae.spi.services import Buffer, Clock, Metrics
from stelae.wire.addresses import check_listen_host, split_address
from stelae.wire.calls import Call, CallFuture, Response, RetryPolicy
from stelae.wire.common import Common, TimeSource, measure
from stelae.wire.edge import Edge
from stelae.wire.envelope import Identity
from stelae.wire.faults import Faults
from stelae.wire.peers import PeerChange, PeerHandler, Peers
from stelae.wire.refusals import Fields
from stelae.wire.services import MessageHandler, RequestHandler, Service, Services
from stelae.wire.settings import Lane, WireSettings
from stelae.wire.station import Station

__all__ = ["Identity", "Lane", "Messenger", "PeerChange", "Response", "RetryPolicy"]


class Messenger:
    """See the module.

    Args:
        identity: who this process is; a client draws a node id for its session.
        clock: monotonic time for deadlines.
        time: the hybrid clock that headers carry.
        defer: runs a callable at the end of the present turn of the loop; ``loop.call_soon`` will
            do, at the price of one turn.
        settings: limits and periods.
        metrics: where counters go, all named ``wire_...``.
        faults: the fault seam, or ``None`` for a process that has none.
        rng: for jitter.

    It must be made on the running loop.
    """

    def __init__(
        self,
        identity: Identity,
        *,
        clock: Clock,
        time: TimeSource,
        defer: Callable[[Callable[[], None]], None],
        settings: WireSettings,
        metrics: Metrics,
        faults: Faults | None = None,
        rng: random.Random,
    ) -> None:
        self._edge = Edge(clock, defer, settings)
        self._common = Common(
            identity=identity,
            settings=settings,
            clock=clock,
            time=time,
            metrics=metrics,
            faults=faults,
            rng=rng,
            call_later=self._edge.loop.call_later,
        )
        self._services = Services()
        self._peers = Peers(self._common, self._edge)
        self._station: Station | None = None
        self._last_request_id = 0

    @property
    def identity(self) -> Identity:
        """Who this process is; the cluster id may have been learned at the first hello."""
        return self._common.identity

    # -- serving ----------------------------------------------------------------------------------

    def bind(self, address: str) -> str:
        """Listen on ``host:port`` (0: any free port); return the actual address.

        Raises:
            ConfigError: no such address, not loopback without ``insecure_listen``, or taken.
        """
        if self._station is not None:
            raise CallerError("this messenger listens already")
        host, port = split_address(address)
        host = check_listen_host(host, insecure_listen=self._common.settings.insecure_listen)
        self._station = Station(self._common, self._services, self._edge, host, port)
        return self._station.address

    def serve(self, kind: str, handler: RequestHandler, *, lane: Lane = Lane.CONTROL) -> None:
        """Answer requests of a kind, on one lane.

        ``handler`` runs on the loop and must not block; it answers now or later. A ``StelaeError``
        that it raises is its answer; any other exception is logged and answered ``INTERNAL``.

        Raises:
            PluginError: the kind is taken or reserved.
        """
        self._services.add(kind, Service(lane=lane, on_request=handler))

    def on_message(self, kind: str, handler: MessageHandler, *, lane: Lane = Lane.CONTROL) -> None:
        """Take one-way messages of a kind, on one lane; the handler as for ``serve``.

        Raises:
            PluginError: the kind is taken or reserved.
        """
        self._services.add(kind, Service(lane=lane, on_message=handler))

    # -- peers ------------------------------------------------------------------------------------

    def add_peer(self, node_id: NodeId, address: str) -> None:
        """Keep links to a node; if there are some, move them to ``address``.

        The name in the address is resolved at each attempt to connect; while it cannot be, the
        links are down and everything else goes on.

        Raises:
            ConfigError: ``address`` is not ``host:port``.
            CallerError: ``node_id`` is this node.
        """
        self._peers.add(node_id, address)

    def remove_peer(self, node_id: NodeId) -> None:
        """Give up the links to a node; its calls fail ``Unavailable``."""
        self._peers.remove(node_id)

    def connect(self, address: str, *, deadline_ms: int = 10_000) -> asyncio.Future[NodeId]:
        """Say hello to whoever lives at an address, and keep links to it as to a peer.

        The future gives the node id once the control lane is up. It fails with ``Unavailable`` at
        the deadline, and at once with ``WrongCluster`` and the like when refused for what we are.

        Raises:
            ConfigError: ``address`` is not ``host:port``.
        """
        return self._peers.connect(address, deadline_ms)

    def on_peer_change(self, handler: PeerHandler) -> None:
        """Call ``handler`` whenever a lane to a peer comes up or goes down."""
        self._peers.on_change(handler)

    def connected(self, node_id: NodeId, lane: Lane = Lane.CONTROL) -> IncarnationId | None:
        """Return the run of a peer that a lane leads to, or ``None`` when it is down."""
        link = self._peers.link(node_id, lane)
        return link.peer_incarnation if link is not None and link.up else None

    # -- sending ----------------------------------------------------------------------------------

    def send(
        self,
        to: NodeId,
        kind: str,
        frames: Sequence[Buffer] = (),
        *,
        lane: Lane = Lane.CONTROL,
        fields: Fields | None = None,
    ) -> bool:
        """Send a one-way message at the end of this turn; say whether it will leave.

        It will not when the lane is down or its credit is used up: nothing is queued for a peer
        that is not connected. Frames must not change afterwards.

        Raises:
            TooLarge: a frame, or their number, is above the limit.
        """
        lengths = measure(frames, self._common.settings)
        link = self._peers.link(to, lane)
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

        With ``retry`` (for what is idempotent) it is repeated until ``deadline_ms`` from now, also
        over new connections and to a successor of the peer's process. Cancelling the future tells
        the peer. Frames must not change until the future is done. The future fails with

            Unavailable: not connected, or the connection was lost before an answer came.
            Overloaded: the link's credit is used up, or the peer said so.
            DeadlineExceeded: no answer in time. As with a lost connection, whether the request
                had its effect is unknown.
            the error with which the peer refused, see ``stelae.wire.refusals``.

        Raises:
            TooLarge: a frame, or their number, is above the limit.
            CallerError: the deadline is out of bounds.
        """
        common = self._common
        lengths = measure(frames, common.settings)
        if not 0 < deadline_ms <= common.settings.deadline_ms_max:
            raise CallerError(f"deadline_ms is from 1 to {common.settings.deadline_ms_max}")
        future = CallFuture(loop=self._edge.loop)
        link = self._peers.link(to, lane)
        if link is None:
            future.set_exception(Unavailable(f"node {to} is not a peer"))
            return future
        self._last_request_id += 1
        call = Call(
            request_id=self._last_request_id,
            kind=kind,
            frames=frames,
            lengths=lengths,
            fields=fields,
            trace_id=trace_id,
            deadline_us=common.now_us() + deadline_ms * 1000,
            retry=retry,
            future=future,
        )
        link.start(call)
        return future

    def close(self) -> None:
        """Stop: calls fail ``Unavailable``, open requests are abandoned, sockets are closed.

        What was not yet on the wire is lost. Closing twice is harmless.
        """
        if self._edge.closed:
            return
        self._peers.close(Unavailable("this process is closing its messenger"))
        if self._station is not None:
            self._station.close()
        self._edge.close()
