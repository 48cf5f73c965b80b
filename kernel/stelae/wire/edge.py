"""Where messaging meets the operating system: ZeroMQ sockets, the event loop, one timer.

Facts behind the options: a ROUTER at its mark drops in silence unless mandatory. A DEALER would keep messages for a
dead peer and hand them to its successor: ``IMMEDIATE``, no linger, and no reconnecting behind our back, so that a lost
connection shows at once as a socket that is not writable. ``MAXMSGSIZE`` bounds one frame: frames are counted as well.

The descriptors are edge-triggered: a reader that did not drain comes again, whoever sent looks again, and sockets are
drained before any time-out is judged (a process that was paused finds its answers there, not time-outs in the past)."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Final, TypeAlias, TypeVar

import zmq

from stelae.spi.errors import ConfigError
from stelae.spi.services import Buffer
from stelae.wire.common import Common
from stelae.wire.deadlines import Deadlines
from stelae.wire.parcels import frame_length
from stelae.wire.settings import FRAMES_MAX, Lane

Context: TypeAlias = "zmq.Context[zmq.Socket[bytes]]"

COPY_BELOW: Final = 64 << 10  # longer frames are handed to the library without copying
FRAME_SLACK_BYTES: Final = 1 << 20  # so far above its limit a frame is refused, beyond cut off
SOCKETS_MAX: Final = 8192
# As plain numbers: the library's own flags are enums, whose every combination costs as much as a system call.
NOW, NOW_MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK) | int(zmq.SNDMORE)
READABLE, WRITABLE = int(zmq.POLLIN), int(zmq.POLLOUT)
TIMER_SLACK_US: Final = 1000  # a timer is not set anew to fire less than this much earlier


class Port:
    """What both kinds share: draining, and writing multipart messages.

    The first ``heads`` frames that arrive (ids, envelope, packed frame) are copied into bytes, since they are small and
    are cut up; later ones are views of the library's memory. ``mark`` is the socket's high-water mark in messages."""

    kind: ClassVar[int]
    heads: ClassVar[int]
    options: ClassVar[tuple[tuple[int, int], ...]]

    def __init__(self, context: Context, frame_bytes_max: int, mark: int) -> None:
        self._socket = context.socket(self.kind)
        self.closed = False
        limits = ((zmq.SNDHWM, mark), (zmq.RCVHWM, mark), (zmq.MAXMSGSIZE, frame_bytes_max + FRAME_SLACK_BYTES))
        for option, value in ((zmq.LINGER, 0), *limits, *self.options):
            self._socket.setsockopt(option, value)
        self.fd = int(self._socket.getsockopt(zmq.FD))

    def drain(self, handle: Callable[[list[Buffer]], None], messages_max: int) -> bool:
        """Hand over up to ``messages_max`` messages; say whether none is left (asked: a try in vain costs thrice)."""
        for _ in range(messages_max):
            if self.closed or (frames := self._receive()) is None:
                return True
            handle(frames)
            if not self.readable():
                return True
        return False

    def readable(self) -> bool:
        return bool(self._events() & READABLE)

    def writable(self) -> bool:
        """Whether messages are taken; of a connection also: whether it stands."""
        return bool(self._events() & WRITABLE)

    def send(self, frames: Sequence[Buffer]) -> bool:
        """Send without blocking; False: the other side does not read, or is lost or unknown."""
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
        """Close at once; what was not yet on the wire is lost. Closing twice is harmless."""
        self.closed = True
        self._socket.close(linger=0)

    def _receive(self) -> list[Buffer] | None:
        """Take one message; beyond ``FRAMES_MAX`` frames the rest is read and thrown away."""
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

    def _events(self) -> int:
        return 0 if self.closed else int(self._socket.getsockopt(zmq.EVENTS))

    def _endpoint(self, host: str, port: int | str) -> str:
        if ":" in host:
            self._socket.setsockopt(zmq.IPV6, 1)
            host = f"[{host}]"
        return f"tcp://{host}:{port}"


class RouterPort(Port):
    """The one socket a node listens on. A message's first frame is its connection's routing id."""

    kind, heads, options = zmq.ROUTER, 3, ((zmq.ROUTER_MANDATORY, 1),)

    def bind(self, host: str, port: int) -> str:
        """Listen and return the actual address (port 0: any); ``ConfigError``: it is taken, or not of this machine."""
        endpoint = self._endpoint(host, port or "*")
        try:
            self._socket.bind(endpoint)
        except zmq.ZMQError as error:
            fact = f"cannot listen on {endpoint.removeprefix('tcp://')}: {error.strerror}"
            hint = "is another node running there? choose a free port in [node] listen"
            raise ConfigError(fact, hint=hint) from error
        return self._socket.getsockopt_string(zmq.LAST_ENDPOINT).removeprefix("tcp://")


class DealerPort(Port):
    """One connection to one address. It is never reconnected: a new one takes its place."""

    kind, heads, options = zmq.DEALER, 2, ((zmq.IMMEDIATE, 1), (zmq.RECONNECT_IVL, -1))

    def connect(self, host: str, port: int) -> None:
        """Begin to connect to a numeric address; ``writable`` says when it has come about."""
        self._socket.connect(self._endpoint(host, port))


AnyPort = TypeVar("AnyPort", RouterPort, DealerPort)


class Party(ABC):
    """A user of a socket: the station, or a link while it has one. ``arrived`` takes one message, ``flush`` writes what
    the turn produced, ``on_due`` judges time-outs, for which the sockets have just been drained."""

    def __init__(self, common: Common, edge: "Edge") -> None:
        self._common = common
        self._edge = edge
        self.port: Port | None = None
        self.bucket = 0
        edge.join(self)

    @abstractmethod
    def arrived(self, frames: list[Buffer]) -> None: ...

    @abstractmethod
    def flush(self) -> None: ...

    @abstractmethod
    def on_due(self, now_us: int) -> None: ...

    def on_ready(self) -> None:
        if not self.drain():
            self._edge.dirty(self)

    def drain(self) -> bool:
        """Take what arrived, up to a limit; say whether nothing is left."""
        return self.port is None or self.port.drain(self._take, self._common.settings.drain_messages_max)

    def _take(self, frames: list[Buffer]) -> None:
        """Whatever one message raises ends that message: the others, and the loop, go on."""
        try:
            self.arrived(frames)
        except Exception:
            self._common.unexpected("taking a message in")


class Edge:
    """The loop, as the parties of one messenger use it."""

    def __init__(self, common: Common, defer: Callable[[Callable[[], None]], None]) -> None:
        self.loop = asyncio.get_running_loop()
        self.closed = False
        self.deadlines = Deadlines(self._wake_at)
        self._context: Context = zmq.Context(io_threads=1)
        self._context.set(zmq.MAX_SOCKETS, SOCKETS_MAX)
        self._common = common
        self._defer = defer
        self._parties: dict[Party, None] = {}
        self._dirty: dict[Party, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_us = 0

    def join(self, party: Party) -> None:
        self._parties[party] = None

    def leave(self, party: Party) -> None:
        self._parties.pop(party, None)
        self.deadlines.drop(party)

    def open(self, party: Party, kind: type[AnyPort], lane: Lane) -> AnyPort:
        """Return a socket that is watched for a party."""
        settings = self._common.settings
        port = kind(self._context, settings.frame_bytes_max, settings.messages_max(lane))
        self.loop.add_reader(port.fd, party.on_ready)
        return port

    def close_port(self, port: Port) -> None:
        """Stop watching, before the descriptor can be used again, and close."""
        self.loop.remove_reader(port.fd)
        port.close()

    def dirty(self, party: Party) -> None:
        """Flush a party at the end of this turn, and look whether it has something to read."""
        if not self._dirty:
            self._defer(self._flush)
        self._dirty[party] = None

    def _wake_at(self, due_us: int) -> None:
        if self.closed:
            return
        if self._timer is not None:
            if due_us >= self._timer_due_us - TIMER_SLACK_US:
                return
            self._timer.cancel()
        self._timer_due_us = due_us
        delay_us = max(TIMER_SLACK_US, due_us - self._common.now_us())
        self._timer = self.loop.call_later(delay_us / 1e6, self._on_timer)

    def close(self) -> None:
        """Stop; the owners of sockets have closed them before."""
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._context.destroy(linger=0)

    def _flush(self) -> None:
        dirty, self._dirty = self._dirty, {}
        for party in dirty:
            party.flush()
            if party.port is not None and party.port.readable():
                self.loop.call_soon(party.on_ready)

    def _on_timer(self) -> None:
        self._timer = None
        if self.closed:
            return
        if [party for party in list(self._parties) if not party.drain()]:
            self.loop.call_soon(self._on_timer)
            return
        self.deadlines.expire(self._common.now_us())
        if (due_us := self.deadlines.next_due_us()) is not None:
            self._wake_at(due_us)
