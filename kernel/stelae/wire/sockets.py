"""ZeroMQ sockets, their registration with the event loop, and one timer. No other module touches them.

Reasons for the socket options:

- A ROUTER socket at its high-water mark drops packets silently unless ``ROUTER_MANDATORY`` is set.
- A DEALER socket would keep packets for a dead peer and deliver them to its successor. ``IMMEDIATE``, no linger and no
  automatic reconnection prevent that. A lost connection then shows at once: the socket is not writable.
- ``MAXMSGSIZE`` limits one frame only, so the number of frames is limited here.

The descriptors of ZeroMQ are edge-triggered: every call of a socket consumes the signal of all changes up to then. A
reader that left packets in a socket therefore schedules itself again. After a call of a socket, its owner asks for
all that can have changed, at once (``events``): a packet that arrived, and the connection that came or was lost.

All sockets are drained before a timeout is judged: a process that was paused then finds the answers that arrived,
instead of timeouts. A flood of packets delays that for ``DRAINS_MAX`` turns at most."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Final, TypeAlias, TypeVar

import zmq

from stelae.spi.errors import ConfigError
from stelae.spi.services import Buffer
from stelae.wire.context import MessengerContext
from stelae.wire.deadlines import Deadlines
from stelae.wire.packets import frame_length
from stelae.wire.settings import FRAMES_MAX, Lane

ZmqContext: TypeAlias = "zmq.Context[zmq.Socket[bytes]]"

#: Frames of at least this many bytes are passed to ZeroMQ without copying them.
COPY_BELOW: Final = 256 << 10
#: A frame above the limit by up to this much is received and refused. On a longer one ZeroMQ closes the connection.
FRAME_SLACK_BYTES: Final = 1 << 20
SOCKETS_MAX: Final = 8192
#: How many more times the sockets are drained while packets are left, before timeouts are judged all the same. Without
#: this bound, a flood of packets would prevent all timeouts and all reconnections.
DRAINS_MAX: Final = 16
# Plain integers: pyzmq's flags are enums, and each combination of them costs as much as a system call.
NOW, NOW_MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK) | int(zmq.SNDMORE)
READABLE, WRITABLE = int(zmq.POLLIN), int(zmq.POLLOUT)
#: The timer is not moved if it would fire less than this much earlier.
TIMER_SLACK_US: Final = 1000


class Socket:
    """A ZeroMQ socket that sends and receives packets without blocking.

    The first ``heads`` frames of a received packet (routing id, envelope, packed frame) are copied into bytes, because
    they are short and are sliced. Later frames are views of ZeroMQ's memory. ``mark`` is the socket's high-water mark
    in packets."""

    kind: ClassVar[int]
    heads: ClassVar[int]
    options: ClassVar[tuple[tuple[int, int], ...]]

    def __init__(self, context: ZmqContext, frame_bytes_max: int, mark: int) -> None:
        self._socket = context.socket(self.kind)
        self.closed = False
        limits = ((zmq.SNDHWM, mark), (zmq.RCVHWM, mark), (zmq.MAXMSGSIZE, frame_bytes_max + FRAME_SLACK_BYTES))
        for option, value in ((zmq.LINGER, 0), *limits, *self.options):
            self._socket.setsockopt(option, value)
        self.fd = int(self._socket.getsockopt(zmq.FD))

    def drain(self, handle: Callable[[list[Buffer]], None], packets_max: int) -> bool:
        """Pass up to ``packets_max`` received packets to ``handle``. Return whether none is left.

        After each packet the socket is asked whether there is another: trying to receive in vain costs three times as
        much."""
        for _ in range(packets_max):
            if self.closed or (frames := self._receive()) is None:
                return True
            handle(frames)
            if not self.events()[0]:
                return True
        return False

    def events(self) -> tuple[bool, bool]:
        """Return whether a packet can be received, and whether packets can be sent, both as of the same moment.

        That packets can be sent means on a ``DealerSocket`` that it is connected."""
        events = 0 if self.closed else int(self._socket.getsockopt(zmq.EVENTS))
        return bool(events & READABLE), bool(events & WRITABLE)

    def send(self, frames: Sequence[Buffer]) -> bool:
        """Send a packet without blocking. Return False if the peer does not read, or is not connected."""
        socket, last = self._socket, len(frames) - 1
        try:
            for position, frame in enumerate(frames):
                socket.send(frame, NOW if position == last else NOW_MORE, copy=frame_length(frame) < COPY_BELOW)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return False
        return True

    def close(self) -> None:
        """Close at once. Packets that ZeroMQ has not yet written are lost. Closing twice is harmless."""
        self.closed = True
        self._socket.close(linger=0)

    def _receive(self) -> list[Buffer] | None:
        """Receive one packet. The frames beyond ``FRAMES_MAX`` are read and dropped."""
        receive = self._socket.recv
        try:
            frame = receive(NOW, copy=False)
        except zmq.Again:
            return None
        frames: list[Buffer] = [frame.bytes]
        while frame.more:
            frame = receive(copy=False)
            if len(frames) < self.heads:
                frames.append(frame.bytes)
            elif len(frames) <= FRAMES_MAX + self.heads:
                frames.append(frame.buffer)
        return frames

    def _endpoint(self, host: str, port: int | str) -> str:
        if ":" in host:
            self._socket.setsockopt(zmq.IPV6, 1)
            host = f"[{host}]"
        return f"tcp://{host}:{port}"


class RouterSocket(Socket):
    """The socket on which a node listens. The first frame of each packet is the routing id of its connection."""

    kind, heads, options = zmq.ROUTER, 3, ((zmq.ROUTER_MANDATORY, 1),)

    def bind(self, host: str, port: int) -> str:
        """Listen, and return the actual address. Port 0 means any free port.

        Raises ``ConfigError`` if the address is in use or does not belong to this machine."""
        endpoint = self._endpoint(host, port or "*")
        try:
            self._socket.bind(endpoint)
        except zmq.ZMQError as error:
            fact = f"cannot listen on {endpoint.removeprefix('tcp://')}: {error.strerror}"
            hint = "is another node running there? choose a free port in [node] listen"
            raise ConfigError(fact, hint=hint) from error
        return self._socket.getsockopt_string(zmq.LAST_ENDPOINT).removeprefix("tcp://")


class DealerSocket(Socket):
    """One connection to one address. It never reconnects: a link opens a new socket instead."""

    kind, heads, options = zmq.DEALER, 2, ((zmq.IMMEDIATE, 1), (zmq.RECONNECT_IVL, -1))

    def connect(self, host: str, port: int) -> None:
        """Begin to connect to a numeric address. Packets can be sent once it is connected."""
        self._socket.connect(self._endpoint(host, port))


AnySocket = TypeVar("AnySocket", RouterSocket, DealerSocket)


class SocketOwner(ABC):
    """The owner of a socket: the listener, or a link. A link has a socket only while it connects or is connected."""

    def __init__(self, context: MessengerContext, socket_loop: "SocketLoop") -> None:
        self._context = context
        self._socket_loop = socket_loop
        self.socket: Socket | None = None
        self.bucket = 0
        socket_loop.join(self)

    @abstractmethod
    def on_packet(self, frames: list[Buffer]) -> None:
        """Handle one received packet."""

    @abstractmethod
    def flush(self) -> None:
        """Send the packets that this turn produced."""

    @abstractmethod
    def on_due(self, now_us: int) -> None:
        """Judge timeouts. All sockets have been drained just before, unless packets came faster than they are read."""

    def on_ready(self) -> None:
        """Handle a change of the socket's state."""
        if not self.drain():
            self._socket_loop.flush_later(self)

    def is_ready(self) -> bool:
        """Return whether ``on_ready`` has something to do: a packet to read, or a change of the connection."""
        return self.socket is not None and self.socket.events()[0]

    def drain(self) -> bool:
        """Handle received packets, up to a limit. Return whether none is left."""
        return self.socket is None or self.socket.drain(self._take, self._context.settings.packets_per_turn_max)

    def _take(self, frames: list[Buffer]) -> None:
        """Handle one packet. An unexpected error drops this packet; later packets and the event loop go on."""
        try:
            self.on_packet(frames)
        except Exception:
            self._context.unexpected("the handling of a packet")


class SocketLoop:
    """Connects the sockets of one messenger with the event loop: watches, timer, and flushing at the end of a turn."""

    def __init__(self, context: MessengerContext, defer: Callable[[Callable[[], None]], None]) -> None:
        self.loop = asyncio.get_running_loop()
        self.closed = False
        self.deadlines = Deadlines(self._wake_at)
        self._zmq_context: ZmqContext = zmq.Context(io_threads=1)
        self._zmq_context.set(zmq.MAX_SOCKETS, SOCKETS_MAX)
        self._context, self._defer = context, defer
        self._owners: dict[SocketOwner, None] = {}
        self._dirty: dict[SocketOwner, None] = {}
        self._timer: asyncio.Handle | None = None  # The only one: each call of ``_on_timer`` may set another.
        self._timer_due_us = self._drains = 0

    def join(self, owner: SocketOwner) -> None:
        """Add an owner: its socket is drained before timeouts are judged."""
        self._owners[owner] = None

    def leave(self, owner: SocketOwner) -> None:
        """Remove an owner and its deadline."""
        self._owners.pop(owner, None)
        self.deadlines.drop(owner)

    def open(self, owner: SocketOwner, kind: type[AnySocket], lane: Lane) -> AnySocket:
        """Create a socket and watch it for ``owner``."""
        settings = self._context.settings
        socket = kind(self._zmq_context, settings.frame_bytes_max, settings.messages_max(lane))
        self.loop.add_reader(socket.fd, owner.on_ready)
        return socket

    def close_socket(self, socket: Socket) -> None:
        """Stop watching a socket, then close it: once it is closed, its descriptor can be reused."""
        self.loop.remove_reader(socket.fd)
        socket.close()

    def flush_later(self, owner: SocketOwner) -> None:
        """Flush ``owner`` at the end of this turn, and test its socket afterwards."""
        if not self._dirty:
            self._defer(self._flush)
        self._dirty[owner] = None

    def _wake_at(self, due_us: int) -> None:
        if self.closed:
            return
        if self._timer is not None:
            if due_us >= self._timer_due_us - TIMER_SLACK_US:
                return
            self._timer.cancel()
        self._timer_due_us = due_us
        delay_us = max(TIMER_SLACK_US, due_us - self._context.now_us())
        self._timer = self.loop.call_later(delay_us / 1e6, self._on_timer)

    def close(self) -> None:
        """Stop. The owners must have closed their sockets before."""
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._zmq_context.destroy(linger=0)

    def _flush(self) -> None:
        dirty, self._dirty = self._dirty, {}
        for owner in dirty:
            owner.flush()
            self._hear(owner)

    def _hear(self, owner: SocketOwner) -> None:
        """Let an owner whose socket was just called handle what came meanwhile: the loop may get no signal of it."""
        if owner.is_ready():
            self.loop.call_soon(owner.on_ready)

    def _on_timer(self) -> None:
        self._timer = None
        if self.closed:
            return
        self._drains += 1
        if [owner for owner in list(self._owners) if not owner.drain()] and self._drains <= DRAINS_MAX:
            if self._timer is not None:
                self._timer.cancel()  # A request that was just read has set it.
            self._timer, self._timer_due_us = self.loop.call_soon(self._on_timer), 0
            return
        self._drains = 0
        for owner in self._owners:
            self._hear(owner)
        self.deadlines.expire(self._context.now_us())
        if (due_us := self.deadlines.next_due_us()) is not None:
            self._wake_at(due_us)
