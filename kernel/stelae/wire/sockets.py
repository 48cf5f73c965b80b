"""The two kinds of ZeroMQ socket, each owned by one class that knows nothing of the protocol.

Facts behind the options: the file descriptor is edge-triggered, so readers drain until nothing is
left and look again after sending. A ROUTER at its mark drops in silence unless it is mandatory. A
DEALER would keep messages for a dead peer and hand them to its successor: ``IMMEDIATE``, no
linger, and no reconnecting behind our back, so that the loss of a connection shows at once as the
socket no longer being writable. ``MAXMSGSIZE`` bounds one frame, so frames are counted as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import zmq

from stelae.spi.errors import ConfigError
from stelae.spi.services import Buffer
from stelae.wire.parcels import frame_length
from stelae.wire.settings import FRAMES_MAX

COPY_BELOW: Final = 64 << 10
"""Frames from this many bytes on are handed to the library without copying."""

FRAME_SLACK_BYTES: Final = 1 << 20
"""A frame this much above its limit gets a typed refusal; a larger one ends the connection."""

Context: TypeAlias = "zmq.Context[zmq.Socket[bytes]]"


class Port:
    """What both kinds share: draining, and writing multipart messages.

    The first ``heads`` frames that arrive (ids, envelope, packed frame) are copied into bytes,
    since they are small and are cut up; later ones are views of the library's memory. ``mark`` is
    the socket's high-water mark in messages.
    """

    def __init__(
        self, context: Context, kind: int, heads: int, frame_bytes_max: int, mark: int
    ) -> None:
        self._socket = context.socket(kind)
        self._heads = heads
        self.closed = False
        for option, value in (
            (zmq.LINGER, 0),
            (zmq.SNDHWM, mark),
            (zmq.RCVHWM, mark),
            (zmq.MAXMSGSIZE, frame_bytes_max + FRAME_SLACK_BYTES),
        ):
            self._socket.setsockopt(option, value)
        self.fd = self._number(zmq.FD)

    def drain(self, handle: Callable[[list[Buffer]], None], messages_max: int) -> bool:
        """Hand over up to ``messages_max`` messages; say whether none is left."""
        for _ in range(messages_max):
            frames = None if self.closed else self._receive()
            if frames is None:
                return True
            handle(frames)
        return False

    def readable(self) -> bool:
        """Whether messages wait."""
        return not self.closed and bool(self._number(zmq.EVENTS) & zmq.POLLIN)

    def writable(self) -> bool:
        """Whether messages are taken; of a connection also: whether it stands."""
        return not self.closed and bool(self._number(zmq.EVENTS) & zmq.POLLOUT)

    def send(self, frames: Sequence[Buffer]) -> bool:
        """Send without blocking; say whether the message left.

        It did not if the other side does not read, or the connection is lost or unknown.
        """
        socket, last = self._socket, len(frames) - 1
        try:
            for position, frame in enumerate(frames):
                flags = zmq.NOBLOCK if position == last else zmq.NOBLOCK | zmq.SNDMORE
                socket.send(frame, flags, copy=frame_length(frame) < COPY_BELOW)
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

    def _number(self, option: int) -> int:
        return int(self._socket.getsockopt(option))

    def _endpoint(self, host: str, port: int | str) -> str:
        if ":" in host:
            self._socket.setsockopt(zmq.IPV6, 1)
            host = f"[{host}]"
        return f"tcp://{host}:{port}"


class RouterPort(Port):
    """The one socket a node listens on. A message's first frame is its connection's routing id."""

    def __init__(self, context: Context, frame_bytes_max: int, mark: int) -> None:
        super().__init__(context, zmq.ROUTER, 3, frame_bytes_max, mark)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)

    def bind(self, host: str, port: int) -> str:
        """Listen on a numeric address; return ``host:port``, a port that was drawn if it was 0.

        Raises:
            ConfigError: the address is taken or not one of this machine.
        """
        endpoint = self._endpoint(host, port or "*")
        try:
            self._socket.bind(endpoint)
        except zmq.ZMQError as error:
            raise ConfigError(
                f"cannot listen on {endpoint.removeprefix('tcp://')}: {error.strerror}",
                hint="is another node running there? choose a free port in [node] listen",
            ) from error
        return self._socket.getsockopt_string(zmq.LAST_ENDPOINT).removeprefix("tcp://")


class DealerPort(Port):
    """One connection to one address. It is never reconnected: a new one takes its place."""

    def __init__(self, context: Context, frame_bytes_max: int, mark: int) -> None:
        super().__init__(context, zmq.DEALER, 2, frame_bytes_max, mark)
        self._socket.setsockopt(zmq.IMMEDIATE, 1)
        self._socket.setsockopt(zmq.RECONNECT_IVL, -1)

    def connect(self, host: str, port: int) -> None:
        """Begin to connect to a numeric address; ``writable`` says when it has come about."""
        self._socket.connect(self._endpoint(host, port))
