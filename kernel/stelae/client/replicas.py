"""Shows and changes the replicas of one tablet: for operators, and for programs that place replicas themselves.

Every call goes to the leader of the tablet, with masters and without. Every call can be repeated: what holds already is
not asked for again. A change is made for the config that was read before it, so it never takes effect twice, and never
on top of the change of somebody else. A request with an unknown outcome is repeated only for the same config. Pass
``config_id`` to make the change for the config that you have seen yourself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from stelae.client.arguments import BadArgument, check_address, node_uuid, seconds
from stelae.client.connection import Connection
from stelae.client.leader_tracker import LeaderTracker
from stelae.client.member_changer import POLL_S, ChangeOvertaken, ChangeResult, MemberChanger, OnProgress, ReplicaGone
from stelae.client.member_goals import check_move, wrong_config_text
from stelae.client.write_methods import TIMEOUT_S
from stelae.protocol.codec import decode, encode
from stelae.protocol.master_messages import ServerList
from stelae.protocol.member_messages import ABORT_CHANGE, AbortChangeRequest, ConfigView
from stelae.protocol.node_messages import NODE, NodeInfo, NodeRequest
from stelae.spi.errors import MemberChangeRefused, NoChange, Unavailable, WrongConfigId
from stelae.spi.ids import NodeId, OpId, TabletId
from stelae.spi.members import PROMOTED, AddServer, ChangeRole, MemberType, RemoveServer
from stelae.wire.messenger import Lane

__all__ = ["AsyncReplicas", "ChangeOvertaken", "ChangeResult", "OnProgress", "ReplicaGone"]

FIRST_REPORT_S = 3.0
"""How long the masters may not know a tablet server that has just started, in seconds."""


class AsyncReplicas:
    """The replicas of one tablet. Made by ``AsyncClient.replicas``.

    Args:
        list_servers: lists the tablet servers that the masters know; ``None`` in a cluster without masters.
    """

    def __init__(
        self,
        connection: Connection,
        tablet_id: TabletId,
        tracker: LeaderTracker,
        list_servers: Callable[[], Awaitable[ServerList]] | None = None,
    ) -> None:
        self._connection = connection
        self._tracker = tracker
        self._tablet_id = tablet_id
        self._changer = MemberChanger(connection, tablet_id, tracker)
        self._list_servers = list_servers

    @property
    def tablet_id(self) -> TabletId:
        """Id of the tablet."""
        return self._tablet_id

    async def config(self, *, leader_only: bool = True, timeout_s: float = TIMEOUT_S) -> ConfigView:
        """Return the config of the tablet, and how far each member has caught up.

        Args:
            leader_only: ask the leader. False: without a leader, return the newest config that any replica knows. It
                may be old.
            timeout_s: how long to look for the leader.

        Raises:
            Unavailable: no leader, or with ``leader_only=False`` no replica, answered in time.
        """
        timeout_s = seconds("timeout_s", timeout_s)
        try:
            return await self._changer.view(asyncio.get_running_loop().time() + timeout_s)
        except Unavailable:
            if leader_only or (newest := await self._changer.newest_view()) is None:
                raise
            return newest

    async def add(
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
        """Add a replica on the node at an address. For a member, change its address.

        A new member has no vote at first. The leader feeds it from its log, and makes a ``PRE_VOTER`` a voter once it
        has caught up. It does so by itself, even after the death of this client.

        Args:
            address: ``host:port`` of the node.
            node: its uuid; ``None``: the node at the address is asked. With masters, they must know this server.
            member_type: ``"PRE_VOTER"``; ``"NON_VOTER"`` for a replica that shall never vote; or ``"WITNESS"`` for one
                that votes as soon as it has the newest entries of the log, and serves requests once it has the rows.
            wait: wait until the replica has its vote.
            config_id: op id of the committed config that the change is meant for.
            on_progress: called while the call waits.
            timeout_s: how long the change may take, and how long to look for a leader that does not answer.
            wait_s: how long to wait for the vote after the change. ``None``: what is left of ``timeout_s``.

        Raises:
            WrongConfigId: another config is committed than ``config_id``. Nothing was done.
            MemberChangeRefused: the change is not possible; the message says why, and what to do.
            ChangeOvertaken: no answer came, and somebody has changed the config in another way since.
            ReplicaGone: the replica was removed again while the call waited, for example because it did not answer.
            DeadlineExceeded: it is not done in time. The change may be made all the same; repeat the call to find out.
            Unavailable: no leader, or no node at the address, answered in time.
        """
        wanted = _type("member_type", member_type)
        if wanted is MemberType.WITNESS:
            wanted = MemberType.PRE_WITNESS  # It joins without a vote, as every member does.
        timeout_s, until = _times(timeout_s, wait_s)
        deadline = asyncio.get_running_loop().time() + timeout_s
        check_address(address)
        name = await self.node_at(address) if node is None else node_uuid(node)
        await self._check_server(name, deadline)
        change = AddServer(node_id=name, address=address, member_type=wanted, pinned=True)
        made = await self._changer.change(change, config_id, deadline, on_progress)
        if not wait or wanted not in PROMOTED:
            return made
        view = await self._changer.until_joined(name, until(), on_progress, look_s=timeout_s)
        return ChangeResult(changed=made.changed, view=view)

    async def remove(
        self,
        node: str,
        *,
        config_id: OpId | None = None,
        on_progress: OnProgress | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> ChangeResult:
        """Remove a replica from the tablet. A leader hands over its leadership first.

        With masters, the files of the removed replica go to the quarantine of its node, which is purged. Without
        masters, they stay where they are. Errors are those of :meth:`add`."""
        deadline = asyncio.get_running_loop().time() + seconds("timeout_s", timeout_s)
        return await self._changer.change(RemoveServer(node_id=node_uuid(node)), config_id, deadline, on_progress)

    async def move(
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
        """Move a replica: add one at an address, which takes the place of the one of ``node`` once it has its vote.

        With masters, this call only begins the move and waits for its end: the masters remove the old replica, also
        after the death of this client. Without masters, the call removes it. The tablet survives as many losses
        meanwhile as before. A call that was cut short can be repeated, and goes on where it was. Errors are those of
        :meth:`add`; ``to`` is the uuid of the node at the address, if it is known.

        Args:
            config_id: op id of the committed config that the move is meant for. Without masters, the old replica is
                removed only if the config is the same as when the new one got its vote.
            wait_s: how long to wait, once the new replica is a member. ``None``: what is left of ``timeout_s``.

        Raises:
            MemberChangeRefused: neither node is a member; or both have a vote, and nothing shows that a move has begun;
                or the old replica has no vote to give, or is moved to another node.
            WrongConfigId: another config is committed than ``config_id``, and nothing was done; or, without masters,
                somebody has changed the config after the new replica got its vote.
            ReplicaGone: the new replica was removed before it had its vote. The old one stays.
            DeadlineExceeded: the move is not complete in time. The message says what goes on by itself.
        """
        clock, source = asyncio.get_running_loop().time, node_uuid(node)
        timeout_s, until = _times(timeout_s, wait_s)
        deadline = clock() + timeout_s
        check_address(address)
        target = await self.node_at(address) if to is None else node_uuid(to)
        view = await self._changer.view(deadline)
        is_member = view.committed.member(source) is not None
        if config_id not in (None, view.committed.op_id) and is_member:
            raise WrongConfigId(wrong_config_text(view.committed.op_id, config_id))
        check_move(view.committed, self.tablet_id, source, target)
        await self._check_server(target, deadline)
        change = AddServer(node_id=target, address=address, replaces=source if is_member else None)
        added = await self._changer.change(change, config_id, deadline, on_progress)
        ends, by_masters = until(), self._list_servers is not None
        view = await self._changer.until_joined(
            target, ends, on_progress, replaced=source if by_masters else None, look_s=timeout_s
        )
        if by_masters:
            return ChangeResult(changed=added.changed, view=view)
        voting = None if config_id is None else view.committed.op_id
        ends = min(ends, clock() + timeout_s)
        gone = await self._changer.change(RemoveServer(node_id=source), voting, ends, on_progress)
        return ChangeResult(changed=added.changed or gone.changed, view=gone.view)

    async def change_role(
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
        """Change the type of a member: ``"VOTER"``, ``"NON_VOTER"``, ``"PRE_VOTER"``. Errors are those of :meth:`add`.

        A member gets a vote only once it has caught up. A ``PRE_VOTER`` gets it by itself; with ``wait``, the call
        returns once it has it."""
        wanted = _type("member_type", member_type)
        change = ChangeRole(node_id=node_uuid(node), member_type=wanted)
        timeout_s, until = _times(timeout_s, wait_s)
        deadline = asyncio.get_running_loop().time() + timeout_s
        made = await self._changer.change(change, config_id, deadline, on_progress)
        if not wait or wanted not in PROMOTED:
            return made
        view = await self._changer.until_joined(change.node_id, until(), on_progress, look_s=timeout_s)
        return ChangeResult(changed=made.changed, view=view)

    async def transfer(
        self, to: str | None = None, *, config_id: OpId | None = None, timeout_s: float = TIMEOUT_S
    ) -> ChangeResult:
        """Hand over the leadership of the tablet. Writes wait for at most one election timeout.

        While the leader does not hear ``to``, it does not begin, and the call asks again until its timeout.

        Args:
            to: uuid of the voter that shall lead; ``None``: the most up-to-date one.
            config_id: op id of the committed config that the transfer is meant for.
            timeout_s: how long it may take.

        Raises:
            WrongConfigId: another config is committed. Nothing was done.
            CallerError: ``to`` is not a voter of the tablet, or no other member could lead.
            NotTakenOver: the other member did not take over within an election timeout. The leader still leads.
            Unavailable: no other member that could take over was heard in time.
        """
        target = None if to is None else node_uuid(to)
        deadline = asyncio.get_running_loop().time() + seconds("timeout_s", timeout_s)
        return await self._changer.transfer(target, config_id, deadline)

    async def abort_change(self, *, config_id: OpId | None = None, timeout_s: float = TIMEOUT_S) -> ChangeResult:
        """Cancel a change that is asked for and not appended to the log yet.

        ``changed`` is False if no change is in progress. After a lost answer that may be because this call has
        cancelled it.

        Raises:
            CannotAbort: the change is appended, and a leader never truncates its own log, or the successor was asked to
                lead already. Once the change is committed, another one can undo it.
            WrongConfigId: another config is committed than ``config_id``.
            Unavailable: no leader answered in time.
        """
        deadline = asyncio.get_running_loop().time() + seconds("timeout_s", timeout_s)
        request = encode(AbortChangeRequest(self.tablet_id, config_id))
        cancelled = True
        try:
            await self._connection.ask_any(self._tracker, ABORT_CHANGE, request, deadline, Lane.CONTROL)
        except NoChange:
            cancelled = False
        return ChangeResult(changed=cancelled, view=await self._changer.view(deadline))

    async def node_at(self, address: str) -> NodeId:
        """Return the uuid of the node at an address, which can get a replica.

        Raises:
            MemberChangeRefused: it is a master. Masters host no replicas of tables.
            Unavailable: no node at the address answered in time.
        """
        check_address(address)
        try:
            name = await self._connection.reach(address)
        except Unavailable as error:
            start = "start the server first, with: stelae tserver run --config FILE, or correct the address"
            raise Unavailable(f"{error}; {start}") from error
        answer = await self._connection.ask(name, NODE, encode(NodeRequest()))
        if decode(answer.body[0], NodeInfo).role == "master":
            fact = f"node {name} at {address} is a master, and masters host no replicas of tables"
            raise MemberChangeRefused(f"{fact}; choose a tablet server: stelae tserver list")
        return name

    async def _check_server(self, name: NodeId, deadline: float) -> None:
        """Refuse a node that the masters do not know as a tablet server. Does nothing without masters.

        A server that has just started may not have reported yet, so the masters are asked again for a while."""
        if self._list_servers is None:
            return
        clock = asyncio.get_running_loop().time
        until = min(deadline, clock() + FIRST_REPORT_S)
        while name not in {line.node_id for line in (await self._list_servers()).servers}:
            if clock() >= until:
                fact = f"the masters know no tablet server {name}"
                raise MemberChangeRefused(f"{fact}; choose one of: stelae tserver list, or start it so that it reports")
            await asyncio.sleep(POLL_S)


def _times(timeout_s: float, wait_s: float | None) -> tuple[float, Callable[[], float]]:
    """Return the timeout, and what returns the end of a wait that begins when it is called."""
    timeout_s, clock = seconds("timeout_s", timeout_s), asyncio.get_running_loop().time
    deadline = clock() + timeout_s
    if wait_s is None:
        return timeout_s, lambda: deadline
    wait_s = seconds("wait_s", wait_s)
    return timeout_s, lambda: clock() + wait_s


def _type(name: str, given: str) -> MemberType:
    try:
        return MemberType(given)
    except ValueError as error:
        raise BadArgument(name, f"one of {', '.join(MemberType)}", given) from error
