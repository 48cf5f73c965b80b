"""The links of a master to the tablet servers.

Every master keeps links to every server that it hears, so that a new leader can act at once. The links to a server that
was not heard for a while are closed: it may be gone for good, and each link would try to connect for ever."""

from __future__ import annotations

from typing import Final

from stelae.server.master.driver.ports import MasterNode
from stelae.spi.ids import NodeId

SILENT_US: Final = 600_000_000
"""How long a server must be silent until its links are closed, in microseconds. It is longer than any call to one."""


class ServerLinks:
    """The links of one master."""

    def __init__(self, node: MasterNode) -> None:
        self._node = node
        self._used_us: dict[NodeId, int] = {}  #: When each server was heard or asked last.

    def use(self, server: NodeId, address: str) -> None:
        """Keep links to a server that was heard, or that is about to be asked. Raises as ``Messenger.add_peer``."""
        self._node.messenger.add_peer(server, address)
        self._used_us[server] = self._node.turns.now_us()

    def close_silent(self) -> None:
        """Close the links that were not used for a long time. A later use opens them again."""
        before_us = self._node.turns.now_us() - SILENT_US
        for server in [server for server, used_us in self._used_us.items() if used_us < before_us]:
            del self._used_us[server]
            self._node.messenger.remove_peer(server)
