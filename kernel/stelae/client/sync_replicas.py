"""The synchronous form of ``stelae.client.replicas``."""

from __future__ import annotations

from stelae.client.loop_thread import LoopThread
from stelae.client.replicas import AsyncReplicas, ChangeResult, OnProgress
from stelae.client.write_methods import TIMEOUT_S
from stelae.protocol.member_messages import ConfigView
from stelae.spi.ids import NodeId, OpId, TabletId
from stelae.spi.members import MemberType


class Replicas:
    """The replicas of one tablet. Each method blocks until the method of ``AsyncReplicas`` with its name is done."""

    def __init__(self, loop_thread: LoopThread, replicas: AsyncReplicas) -> None:
        self._loop_thread = loop_thread
        self._replicas = replicas

    @property
    def tablet_id(self) -> TabletId:
        """Id of the tablet."""
        return self._replicas.tablet_id

    def config(self, *, leader_only: bool = True, timeout_s: float = TIMEOUT_S) -> ConfigView:
        """Return the config of the tablet; see ``AsyncReplicas.config``."""
        return self._loop_thread.run(self._replicas.config(leader_only=leader_only, timeout_s=timeout_s))

    def add(
        self,
        address: str,
        *,
        node: str | None = None,
        member_type: str = MemberType.PRE_VOTER,
        wait: bool = False,
        config_id: OpId | None = None,
        on_progress: OnProgress | None = None,
        timeout_s: float = TIMEOUT_S,
        wait_s: float | None = None,
    ) -> ChangeResult:
        """Add a replica; see ``AsyncReplicas.add``. ``on_progress`` is called on the thread of the client."""
        added = self._replicas.add(
            address,
            node=node,
            member_type=member_type,
            wait=wait,
            config_id=config_id,
            on_progress=on_progress,
            timeout_s=timeout_s,
            wait_s=wait_s,
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
        """Remove a replica; see ``AsyncReplicas.remove``."""
        return self._loop_thread.run(
            self._replicas.remove(node, config_id=config_id, on_progress=on_progress, timeout_s=timeout_s)
        )

    def move(
        self,
        node: str,
        address: str,
        *,
        to: str | None = None,
        config_id: OpId | None = None,
        on_progress: OnProgress | None = None,
        timeout_s: float = TIMEOUT_S,
        wait_s: float | None = None,
    ) -> ChangeResult:
        """Move a replica; see ``AsyncReplicas.move``."""
        moved = self._replicas.move(
            node, address, to=to, config_id=config_id, on_progress=on_progress, timeout_s=timeout_s, wait_s=wait_s
        )
        return self._loop_thread.run(moved)

    def change_role(
        self,
        node: str,
        member_type: str,
        *,
        wait: bool = False,
        config_id: OpId | None = None,
        on_progress: OnProgress | None = None,
        timeout_s: float = TIMEOUT_S,
        wait_s: float | None = None,
    ) -> ChangeResult:
        """Change the type of a member; see ``AsyncReplicas.change_role``."""
        return self._loop_thread.run(
            self._replicas.change_role(
                node,
                member_type,
                wait=wait,
                config_id=config_id,
                on_progress=on_progress,
                timeout_s=timeout_s,
                wait_s=wait_s,
            )
        )

    def transfer(
        self, to: str | None = None, *, config_id: OpId | None = None, timeout_s: float = TIMEOUT_S
    ) -> ChangeResult:
        """Hand over the leadership; see ``AsyncReplicas.transfer``."""
        return self._loop_thread.run(self._replicas.transfer(to, config_id=config_id, timeout_s=timeout_s))

    def node_at(self, address: str) -> NodeId:
        """Return the uuid of the node at an address; see ``AsyncReplicas.node_at``."""
        return self._loop_thread.run(self._replicas.node_at(address))

    def abort_change(self, *, config_id: OpId | None = None, timeout_s: float = TIMEOUT_S) -> ChangeResult:
        """Cancel a change; see ``AsyncReplicas.abort_change``."""
        return self._loop_thread.run(self._replicas.abort_change(config_id=config_id, timeout_s=timeout_s))
