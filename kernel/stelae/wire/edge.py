"""Where messaging meets the event loop: watched sockets, flushing at the end of a turn, one timer.

The descriptors are edge-triggered, so three rules hold here: a reader that did not drain comes
again, whoever sent looks again, and sockets are drained before any time-out is judged (a process
that was paused finds its answers in the socket, not its time-outs in the past).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

import zmq

from stelae.spi.services import Buffer
from stelae.wire.common import Common
from stelae.wire.settings import Lane
from stelae.wire.sockets import Context, DealerPort, Port, RouterPort

SOCKETS_MAX: Final = 8192
TIMER_SLACK_US: Final = 1000
"""A timer is not set anew to fire less than this much earlier."""


class Party(ABC):
    """A user of a socket: the station, or a link at a time when it has one."""

    def __init__(self, common: Common, edge: Edge) -> None:
        self._common = common
        self._edge = edge
        self._port: Port | None = None

    @abstractmethod
    def arrived(self, frames: list[Buffer]) -> None:
        """Take one message from the socket."""

    @abstractmethod
    def flush(self) -> None:
        """Write what the turn produced."""

    @abstractmethod
    def on_time(self, now_us: int) -> None:
        """Judge time-outs, at or after ``next_due_us``; the sockets have just been drained."""

    @abstractmethod
    def next_due_us(self) -> int:
        """When ``on_time`` is wanted."""

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
        self._context: Context = zmq.Context(io_threads=1)
        self._context.set(zmq.MAX_SOCKETS, SOCKETS_MAX)
        self._common = common
        self._defer = defer
        self._parties: dict[Party, None] = {}
        self._dirty: dict[Party, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_us = 0

    def join(self, party: Party) -> None:
        """Begin to serve a party."""
        self._parties[party] = None

    def leave(self, party: Party) -> None:
        """Serve a party no longer."""
        self._parties.pop(party, None)
        self._dirty.pop(party, None)

    def listen(self, party: Party, host: str, port: int) -> tuple[RouterPort, str]:
        """Listen for a party; return the socket and the actual address.

        Raises:
            ConfigError: the address is taken or not one of this machine.
        """
        settings = self._common.settings
        mark = settings.messages_max(Lane.CONTROL)
        router = RouterPort(self._context, settings.frame_bytes_max, mark)
        try:
            address = router.bind(host, port)
        except BaseException:
            router.close()
            raise
        self.loop.add_reader(router.fd, party.on_ready)
        return router, address

    def dial(self, party: Party, lane: Lane) -> DealerPort:
        """Return a socket for a party that is going to connect."""
        settings = self._common.settings
        mark = settings.messages_max(lane)
        dealer = DealerPort(self._context, settings.frame_bytes_max, mark)
        self.loop.add_reader(dealer.fd, party.on_ready)
        return dealer

    def close_port(self, port: Port) -> None:
        """Stop watching, before the descriptor can be used again, and close."""
        self.loop.remove_reader(port.fd)
        port.close()

    def dirty(self, party: Party) -> None:
        """Flush a party at the end of this turn, and look whether it has something to read."""
        if not self._dirty:
            self._defer(self._flush)
        self._dirty[party] = None

    def wake_at(self, due_us: int) -> None:
        """Judge time-outs at or soon after ``due_us``."""
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
        self._dirty.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._context.destroy(linger=0)

    def _flush(self) -> None:
        dirty, self._dirty = self._dirty, {}
        for party in dirty:
            if party in self._parties:
                party.flush()
                if party.readable():
                    self.loop.call_soon(self._again, party)

    def _again(self, party: Party) -> None:
        if party in self._parties:
            party.on_ready()

    def _on_timer(self) -> None:
        self._timer = None
        if self.closed:
            return
        drained = [party.drain() for party in list(self._parties)]
        if not all(drained):
            self.loop.call_soon(self._on_timer)
            return
        now_us = self._common.now_us()
        for party in list(self._parties):
            if party in self._parties and party.next_due_us() <= now_us:
                party.on_time(now_us)
        if self._parties:
            self.wake_at(min(party.next_due_us() for party in self._parties))
