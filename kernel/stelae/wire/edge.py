"""Where messaging meets the event loop: watched sockets, flushing at the end of a turn, one timer.

The descriptors are edge-triggered, so three rules hold here: a reader that did not drain comes
again, whoever sent looks again, and sockets are drained before any time-out is judged (a process
that was paused finds its answers in the socket, not its time-outs in the past).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, TypeVar

import zmq

from stelae.spi.services import Buffer
from stelae.wire.common import Common
from stelae.wire.deadlines import Deadlines
from stelae.wire.settings import Lane
from stelae.wire.sockets import Context, DealerPort, Port, RouterPort

AnyPort = TypeVar("AnyPort", RouterPort, DealerPort)

SOCKETS_MAX: Final = 8192
TIMER_SLACK_US: Final = 1000
"""A timer is not set anew to fire less than this much earlier."""


class Party(ABC):
    """A user of a socket: the station, or a link at a time when it has one."""

    def __init__(self, common: Common, edge: Edge) -> None:
        self._common = common
        self._edge = edge
        self._port: Port | None = None
        self.bucket = 0
        edge.join(self)

    @abstractmethod
    def arrived(self, frames: list[Buffer]) -> None:
        """Take one message from the socket."""

    @abstractmethod
    def flush(self) -> None:
        """Write what the turn produced."""

    @abstractmethod
    def on_due(self, now_us: int) -> None:
        """Judge time-outs; the sockets have just been drained."""

    def on_ready(self) -> None:
        """The socket's state changed."""
        if not self.drain():
            self._edge.dirty(self)

    def drain(self) -> bool:
        """Take what arrived, up to a limit; say whether nothing is left."""
        port = self._port
        return port is None or port.drain(self.arrived, self._common.settings.drain_messages_max)

    def readable(self) -> bool:
        """Whether messages wait: to be asked after sending, for the descriptor will not tell."""
        return self._port is not None and self._port.readable()


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
        """Stop. The sockets are closed by their owners before."""
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._context.destroy(linger=0)

    def _flush(self) -> None:
        dirty, self._dirty = self._dirty, {}
        for party in dirty:
            party.flush()
            if party.readable():
                self.loop.call_soon(party.on_ready)

    def _on_timer(self) -> None:
        self._timer = None
        if self.closed:
            return
        drained = [party.drain() for party in list(self._parties)]
        if not all(drained):
            self.loop.call_soon(self._on_timer)
            return
        self.deadlines.expire(self._common.now_us())
        if (due_us := self.deadlines.next_due_us()) is not None:
            self._wake_at(due_us)
