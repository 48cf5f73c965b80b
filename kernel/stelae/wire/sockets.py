"""The two kinds of ZeroMQ socket, each owned by one class that knows nothing of the protocol.

Facts behind the options: the file descriptor is edge-triggered, so readers drain until nothing is
left and look again after sending. A ROUTER at its mark drops in silence unless it is mandatory. A
DEALER would keep messages for a dead peer and hand them to its successor: ``IMMEDIATE``, no
linger, and no reconnecting behind our back, so that the loss of a connection shows at once as the
socket no longer being writable. ``MAXMSGSIZE`` bounds one frame, so frames are counted as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final

import zmq

from stelae.spi.errors import ConfigError
from stelae.spi.services import Buffer
from stelae.wire.parcels import frame_length
from stelae.wire.settings import FRAMES_MAX

COPY_BELOW: Final = 64 << 10
"""Frames from this many bytes on are handed to the library without copying."""

FRAME_SLACK_BYTES: Final = 1 << 20
"""A frame this much above its limit gets a typed refusal; a larger one ends the connection."""

Handle = Callable[[list[Buffer]], None]


class SendResult(Enum):
    """What became of a message."""

    SENT = 0
    FULL = 1
    """The mark is reached: the other side does not read."""
    GONE = 2
    """There is no such connection (any more)."""


class Port:
    """What both kinds share: draining, and writing multipart messages."""

    def __init__(self, socket: zmq.Socket[bytes], heads: int) -> None:
        self._socket = socket
        self._heads = heads
        self.fd = _number(socket, zmq.FD)
        self.closed = False

    def drain(self, handle: Handle, messages_max: int) -> bool:
        """Hand over up to ``messages_max`` messages; say whether none is left."""
        for _ in range(messages_max):
            if self.closed:
                return True
            frames = self._receive()
            if frames is None:
                return True
            handle(frames)
        return False

    def readable(self) -> bool:
        """Whether messages wait."""
        return not self.closed and bool(_number(self._socket, zmq.EVENTS) & zmq.POLLIN)

    def close(self) -> None:
        """Close at once; what was not yet on the wire is lost. Closing twice is harmless."""
        if not self.closed:
            self.closed = True
            self._socket.close(linger=0)

    def _receive(self) -> list[Buffer] | None:
        """Take one message; beyond ``FRAMES_MAX`` frames the rest is read and thrown away.

        The first frames (ids, envelope, packed frame) are copied into bytes, since they are small
        and are cut up; later ones are views of the library's memory.
        """
        socket = self._socket
        try:
            frames: list[Buffer] = [socket.recv(zmq.NOBLOCK)]
        except zmq.Again:
            return None
        while socket.getsockopt(zmq.RCVMORE):
            if len(frames) < self._heads:
                frames.append(socket.recv())
            elif len(frames) <= FRAMES_MAX + self._heads:
                frames.append(socket.recv(copy=False).buffer)
            else:
                socket.recv(copy=False)
        return frames

    def _send(self, frames: Sequence[Buffer]) -> SendResult:
        socket = self._socket
        last = len(frames) - 1
        try:
            for position, frame in enumerate(frames):
                flags = zmq.NOBLOCK if position == last else zmq.NOBLOCK | zmq.SNDMORE
                socket.send(frame, flags, copy=frame_length(frame) < COPY_BELOW)
        except zmq.Again:
            return SendResult.FULL
        except zmq.ZMQError as error:
            if error.errno == zmq.EHOSTUNREACH:
                return SendResult.GONE
            raise
        return SendResult.SENT


class RouterPort(Port):
    """The one socket a node listens on. A message's first frame is its connection's routing id."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], frame_bytes_max: int, mark: int
    ) -> None:
        socket = _socket(context, zmq.ROUTER, frame_bytes_max, mark)
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        super().__init__(socket, heads=3)

    def bind(self, host: str, port: int) -> int:
        """Listen on a numeric address; return the port, which is drawn when ``port`` is 0.

        Raises:
            ConfigError: the address is taken or not one of this machine.
        """
        shown = f"[{host}]" if ":" in host else host
        try:
            if ":" in host:
                self._socket.setsockopt(zmq.IPV6, 1)
            self._socket.bind(f"tcp://{shown}:{port or '*'}")
        except zmq.ZMQError as error:
            raise ConfigError(
                f"cannot listen on {shown}:{port}: {error.strerror}",
                hint="is another node running there? choose a free port in [node] listen",
            ) from error
        return int(self._socket.getsockopt_string(zmq.LAST_ENDPOINT).rsplit(":", 1)[1])

    def send(self, routing_id: bytes, frames: Sequence[Buffer]) -> SendResult:
        """Send to one connection without blocking."""
        return self._send([routing_id, *frames])


class DealerPort(Port):
    """One connection to one address. It is never reconnected: a new one takes its place."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], frame_bytes_max: int, mark: int
    ) -> None:
        socket = _socket(context, zmq.DEALER, frame_bytes_max, mark)
        socket.setsockopt(zmq.IMMEDIATE, 1)
        socket.setsockopt(zmq.RECONNECT_IVL, -1)
        super().__init__(socket, heads=2)

    def connect(self, host: str, port: int) -> None:
        """Begin to connect to a numeric address; ``writable`` says when it has come about."""
        if ":" in host:
            self._socket.setsockopt(zmq.IPV6, 1)
            host = f"[{host}]"
        self._socket.connect(f"tcp://{host}:{port}")

    def writable(self) -> bool:
        """Whether the connection stands and takes messages."""
        return not self.closed and bool(_number(self._socket, zmq.EVENTS) & zmq.POLLOUT)

    def send(self, frames: Sequence[Buffer]) -> SendResult:
        """Send without blocking. ``FULL`` also means that the connection is lost."""
        return self._send(frames)


def _socket(
    context: zmq.Context[zmq.Socket[bytes]], kind: int, frame_bytes_max: int, mark: int
) -> zmq.Socket[bytes]:
    socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SNDHWM, mark)
    socket.setsockopt(zmq.RCVHWM, mark)
    socket.setsockopt(zmq.MAXMSGSIZE, frame_bytes_max + FRAME_SLACK_BYTES)
    return socket


def _number(socket: zmq.Socket[bytes], option: int) -> int:
    return int(socket.getsockopt(option))
