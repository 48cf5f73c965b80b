"""A node's listening socket with its station, as a party to the event loop."""

from __future__ import annotations

from functools import partial

from stelae.wire.common import Common
from stelae.wire.edge import Edge
from stelae.wire.services import Services
from stelae.wire.settings import Lane
from stelae.wire.sockets import RouterPort
from stelae.wire.station import Station


class Listener:
    """Listens from its construction on; ``address`` is the actual one."""

    def __init__(
        self, common: Common, edge: Edge, services: Services, host: str, port: int
    ) -> None:
        self._messages_max = common.settings.drain_messages_max
        self._edge = edge
        mark = common.settings.messages_max(Lane.CONTROL)
        self._port = RouterPort(edge.context, common.settings.frame_bytes_max, mark)
        try:
            actual = self._port.bind(host, port)
        except BaseException:
            self._port.close()
            raise
        self.address = f"[{host}]:{actual}" if ":" in host else f"{host}:{actual}"
        self._station = Station(
            common, services, self._port, dirty=partial(edge.dirty, self), wake_at=edge.wake_at
        )
        edge.join(self)
        edge.watch(self._port, self)
        edge.wake_at(self.next_due_us())

    def flush(self) -> None:
        """Write the answers of this turn."""
        self._station.flush()

    def drain(self) -> bool:
        """Take what arrived, up to a limit; say whether nothing is left."""
        return self._port.drain(self._station.arrived, self._messages_max)

    def readable(self) -> bool:
        """Whether messages wait."""
        return self._port.readable()

    def on_ready(self) -> None:
        """The socket's state changed."""
        if not self.drain():
            self._edge.dirty(self)

    def on_time(self, now_us: int) -> None:
        """Judge time-outs."""
        self._station.on_time(now_us)

    def next_due_us(self) -> int:
        """When ``on_time`` is wanted next."""
        return self._station.next_due_us()

    def close(self) -> None:
        """Abandon all requests and close the socket."""
        self._station.close()
        self._edge.leave(self)
        self._edge.unwatch(self._port)
        self._port.close()
