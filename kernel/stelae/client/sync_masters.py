"""The synchronous form of ``stelae.client.masters``."""

from __future__ import annotations

from stelae.client.loop_thread import LoopThread
from stelae.client.masters import REACH_S, AsyncMasters
from stelae.client.member_changer import ChangeResult, OnProgress
from stelae.client.write_methods import TIMEOUT_S
from stelae.protocol.masters_messages import MastersView
from stelae.protocol.member_messages import ConfigView
from stelae.spi.ids import NodeId, OpId


class Masters:
    """The masters of one cluster. Each method blocks until the method of ``AsyncMasters`` with its name is done."""

    def __init__(self, loop_thread: LoopThread, masters: AsyncMasters) -> None:
        self._loop_thread = loop_thread
        self._masters = masters

    def view(self, *, timeout_s: float = TIMEOUT_S) -> MastersView:
        """Return which masters there are; see ``AsyncMasters.view``."""
        return self._loop_thread.run(self._masters.view(timeout_s=timeout_s))

    def config(self, *, leader_only: bool = True, timeout_s: float = TIMEOUT_S) -> ConfigView:
        """Return the config of the system tablet; see ``AsyncMasters.config``."""
        return self._loop_thread.run(self._masters.config(leader_only=leader_only, timeout_s=timeout_s))

    def add(
        self,
        address: str,
        *,
        node: str | None = None,
        wait: bool = False,
        config_id: OpId | None = None,
        on_progress: OnProgress | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> ChangeResult:
        """Add a master; see ``AsyncMasters.add``. ``on_progress`` is called on the thread of the client."""
        added = self._masters.add(
            address, node=node, wait=wait, config_id=config_id, on_progress=on_progress, timeout_s=timeout_s
        )
        return self._loop_thread.run(added)

    def remove(
        self,
        node: str,
        *,
        config_id: OpId | None = None,
        on_progress: OnProgress | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> ChangeResult:
        """Remove a master; see ``AsyncMasters.remove``."""
        return self._loop_thread.run(
            self._masters.remove(node, config_id=config_id, on_progress=on_progress, timeout_s=timeout_s)
        )

    def replace(
        self,
        node: str,
        address: str,
        *,
        to: str | None = None,
        on_progress: OnProgress | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> ChangeResult:
        """Replace a master; see ``AsyncMasters.replace``."""
        return self._loop_thread.run(
            self._masters.replace(node, address, to=to, on_progress=on_progress, timeout_s=timeout_s)
        )

    def transfer(
        self, to: str | None = None, *, config_id: OpId | None = None, timeout_s: float = TIMEOUT_S
    ) -> ChangeResult:
        """Hand over the leadership; see ``AsyncMasters.transfer``."""
        return self._loop_thread.run(self._masters.transfer(to, config_id=config_id, timeout_s=timeout_s))

    def node_at(self, address: str, *, timeout_s: float = REACH_S) -> NodeId:
        """Return the uuid of the master at an address; see ``AsyncMasters.node_at``."""
        return self._loop_thread.run(self._masters.node_at(address, timeout_s=timeout_s))
