"""Shows and changes the masters of a cluster. The masters are the members of the system tablet (ADR 80).

Every call can be repeated: what holds already is not asked for again. No process has to be restarted for a change."""

from __future__ import annotations

import asyncio

import msgspec

from stelae.client.arguments import check_address, node_uuid, seconds
from stelae.client.catalog import CatalogClient
from stelae.client.connection import Connection
from stelae.client.member_changer import POLL_S, ChangeResult, MemberChanger, OnProgress
from stelae.client.write_methods import TIMEOUT_S
from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.protocol.codec import decode, encode
from stelae.protocol.masters_messages import CHANGE_MASTERS, ChangeMastersRequest, MastersView
from stelae.protocol.member_messages import ConfigView
from stelae.protocol.node_messages import NODE, NodeInfo, NodeRequest
from stelae.spi.errors import MemberChangeRefused, RetryableError, Unavailable
from stelae.spi.ids import NodeId, OpId
from stelae.spi.members import AddServer, MemberChange, RemoveServer

REACH_S = 30.0
"""How long a new master may take to start, in seconds."""


class AsyncMasters:
    """The masters of one cluster. Made by ``AsyncClient.masters``."""

    def __init__(self, connection: Connection, catalog: CatalogClient) -> None:
        self._connection = connection
        self._catalog = catalog
        self._changer = MemberChanger(connection, SYSTEM_TABLET, catalog.masters, CHANGE_MASTERS, _request)

    async def view(self, *, timeout_s: float = TIMEOUT_S) -> MastersView:
        """Return which masters there are, and which one leads. Any node that knows them answers.

        The newest config wins. It works without a leader, and through a master that was removed. ``Unavailable``: no
        node answers."""
        return await self._catalog.masters_view(timeout_s=seconds("timeout_s", timeout_s))

    async def config(self, *, leader_only: bool = True, timeout_s: float = TIMEOUT_S) -> ConfigView:
        """Return the config of the system tablet as the leader knows it, and how far each master has caught up.

        Raises:
            Unavailable: no leader, or with ``leader_only=False`` no master, answered in time.
        """
        try:
            return await self._changer.view(_deadline(timeout_s))
        except Unavailable:
            if leader_only or (newest := await self._changer.newest_view()) is None:
                raise
            return newest

    async def add(
        self,
        address: str,
        *,
        node: str | None = None,
        wait: bool = False,
        config_id: OpId | None = None,
        on_progress: OnProgress | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> ChangeResult:
        """Add the master that runs at an address, with an empty directory. For a present master, change its address.

        It has no vote at first. The leader sends it the log, or has it copy the catalog, and makes it a voter once it
        has caught up. That goes on by itself. A master that stops answering before is removed again.

        Args:
            address: ``host:port`` at which all nodes reach it. A name is resolved again at each connection.
            node: its uuid; ``None``: the node at the address is asked.
            wait: wait until the master has its vote.
            config_id: op id of the committed config that the change is meant for.
            on_progress: called while the call waits.
            timeout_s: how long all this may take.

        Raises:
            MemberChangeRefused: nothing was changed; the message says why, and what to do.
            WrongConfigId: another config is committed than ``config_id``. Nothing was done.
            ChangeOvertaken: no answer came, and somebody has changed the config in another way since.
            ReplicaGone: the master was removed again while the call waited, for example because it did not answer.
            DeadlineExceeded: it is not done in time. The change may be made all the same; repeat the call to find out.
            Unavailable: no leader, or no node at the address, answered in time.
        """
        deadline = _deadline(timeout_s)
        check_address(address)
        name = await self.node_at(address) if node is None else node_uuid(node)
        made = await self._changer.change(AddServer(node_id=name, address=address), config_id, deadline, on_progress)
        if not wait:
            return made
        view = await self._changer.until_joined(name, deadline, on_progress)
        return ChangeResult(changed=made.changed, view=view)

    async def remove(
        self,
        node: str,
        *,
        config_id: OpId | None = None,
        on_progress: OnProgress | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> ChangeResult:
        """Remove a master, given by its uuid. A leader hands over its leadership first. Errors: those of :meth:`add`.

        The master may be down. If it runs, it serves no requests then, and says so. Its files stay on its node."""
        change = RemoveServer(node_id=node_uuid(node))
        return await self._changer.change(change, config_id, _deadline(timeout_s), on_progress)

    async def replace(
        self,
        node: str,
        address: str,
        *,
        to: str | None = None,
        on_progress: OnProgress | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> ChangeResult:
        """Replace a master by the one at an address: add that, wait until it has its vote, then remove the old one.

        The old one may be lost. A call that was cut short can be repeated, and goes on where it was. ``to`` is the uuid
        of the node at the address, if it is known. Errors are those of :meth:`add`.

        Raises:
            MemberChangeRefused: neither node is a master of the cluster, or both are the same.
        """
        deadline, source = _deadline(timeout_s), node_uuid(node)
        target = await self.node_at(address) if to is None else node_uuid(to)
        members = {member.node_id for member in (await self._changer.view(deadline)).committed.members}
        if source == target:
            raise MemberChangeRefused(f"the master at {address} is node {source} itself; start another one")
        if not members & {source, target}:
            raise MemberChangeRefused(f"node {source} is no master of this cluster; see: stelae master list")
        left_s = max(0.1, deadline - asyncio.get_running_loop().time())
        added = await self.add(address, node=target, wait=True, on_progress=on_progress, timeout_s=left_s)
        gone = await self._changer.change(RemoveServer(node_id=source), None, deadline, on_progress)
        return ChangeResult(changed=added.changed or gone.changed, view=gone.view)

    async def transfer(
        self, to: str | None = None, *, config_id: OpId | None = None, timeout_s: float = TIMEOUT_S
    ) -> ChangeResult:
        """Hand over the leadership of the masters. Changes of tables wait for at most one election timeout.

        ``to`` is the uuid of the master that shall lead; ``None``: the most up-to-date one. Errors are those of
        ``AsyncReplicas.transfer``."""
        target = None if to is None else node_uuid(to)
        return await self._changer.transfer(target, config_id, _deadline(timeout_s))

    async def node_at(self, address: str, *, timeout_s: float = REACH_S) -> NodeId:
        """Return the uuid of the master at an address. One that is just starting is waited for.

        Raises:
            MemberChangeRefused: the node at the address is no master.
            Unavailable: no node at the address answered in time.
        """
        check_address(address)
        deadline_ms = max(1, int(seconds("timeout_s", timeout_s) * 1_000))
        try:
            name = await self._connection.reach(address, deadline_ms=deadline_ms)
        except Unavailable as error:
            start = "start the new master first, with: stelae master run --config FILE, or correct the address"
            raise Unavailable(f"no node answers at {address}: {error}; {start}") from error
        if (info := await self._describe(name, deadline_ms)).role != "master":
            fact = f"node {name} at {address} runs as a {info.role}"
            raise MemberChangeRefused(f"{fact}; start a master with: stelae master run --config FILE")
        return name

    async def _describe(self, name: NodeId, deadline_ms: int) -> NodeInfo:
        """Ask a node for its role. If it was known under another address, its links are being opened again."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + deadline_ms / 1_000
        while True:
            try:
                return decode((await self._connection.ask(name, NODE, encode(NodeRequest()))).body[0], NodeInfo)
            except RetryableError:
                self._connection.check_open()
                if clock() >= deadline:
                    raise
            await asyncio.sleep(POLL_S)


def _request(change: MemberChange, meant_for: OpId) -> msgspec.Struct:
    return ChangeMastersRequest(change, meant_for)


def _deadline(timeout_s: float) -> float:
    return asyncio.get_running_loop().time() + seconds("timeout_s", timeout_s)
