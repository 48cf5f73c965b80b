"""Where messaging meets the event loop: watched sockets, flushing at the end of a turn, one timer.

The descriptors are edge-triggered, so three rules hold here: a reader that did not drain comes
again, whoever sent looks again, and sockets are drained before any time-out is judged (a process
that was paused finds its answers in the socket, not its time-outs in the past).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

import zmq

from stelae.spi.services import Clock
from stelae.wire.settings import Lane, WireSettings
from stelae.wire.sockets import DealerPort, Port, RouterPort

SOCKETS_MAX: Final = 8192
TIMER_SLACK_US: Final = 1000
"""A timer is not set anew to fire less than this much earlier."""


class Party(Protocol):
    """A user of sockets: the station, or a link.

    ``flush`` writes what the turn produced; ``drain`` takes what arrived, up to a limit, and says
    whether nothing is left; ``readable`` says whether something waits; ``on_ready`` drains and sees
    whether the socket's state changed; ``on_time`` judges time-outs, at or after ``next_due_us``.
    """

    def flush(self) -> None: ...
    def drain(self) -> bool: ...
    def readable(self) -> bool: ...
    def on_ready(self) -> None: ...
    def on_time(self, now_us: int) -> None: ...
    def next_due_us(self) -> int: ...


class Edge:
    """The loop, as the parts of one messenger use it."""

    def __init__(
        self,
        clock: Clock,
        defer: Callable[[Callable[[], None]], None],
        settings: WireSettings,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads=1)
        self._context.set(zmq.MAX_SOCKETS, SOCKETS_MAX)
        self.closed = False
        self._clock = clock
        self._defer = defer
        self._settings = settings
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

    def open_router(self, party: Party, host: str, port: int) -> tuple[RouterPort, int]:
        """Listen for a party; return the socket and the actual port.

        Raises:
            ConfigError: the address is taken or not one of this machine.
        """
        mark = self._settings.messages_max(Lane.CONTROL)
        router = RouterPort(self._context, self._settings.frame_bytes_max, mark)
        try:
            actual = router.bind(host, port)
        except BaseException:
            router.close()
            raise
        self.loop.add_reader(router.fd, party.on_ready)
        return router, actual

    def open_dealer(self, party: Party, lane: Lane) -> DealerPort:
        """Return a socket for a party that is going to connect."""
        mark = self._settings.messages_max(lane)
        dealer = DealerPort(self._context, self._settings.frame_bytes_max, mark)
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
        delay_us = max(TIMER_SLACK_US, due_us - self._clock.monotonic_us())
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
        left = [party for party in list(self._parties) if not party.drain()]
        if left:
            self.loop.call_soon(self._on_timer)
            return
        now_us = self._clock.monotonic_us()
        for party in list(self._parties):
            if party in self._parties and party.next_due_us() <= now_us:
                party.on_time(now_us)
        if self._parties:
            self.wake_at(min(party.next_due_us() for party in self._parties))
