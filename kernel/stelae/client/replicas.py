"""Shows and changes the replicas of one tablet: for operators, and for programs that place replicas themselves.

Every call goes to the leader of the tablet, with masters and without. Every call can be repeated: what holds already is
not asked for again. A change is made for the config that was read before it, so it never takes effect twice, and never
on top of the change of somebody else. A request with an unknown outcome is repeated only for the same config. Pass
``config_id`` to make the change for the config that you have seen yourself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from stelae.client.arguments import BadArgument, seconds, text
from stelae.client.connection import TRANSFER_MS, Connection
from stelae.client.leader_tracker import LeaderTracker
from stelae.client.member_goals import config_text, is_made, is_promoted, lag_text, no_successor_text
from stelae.client.write_methods import TIMEOUT_S
from stelae.protocol.codec import decode, encode
from stelae.protocol.master_messages import ServerList
from stelae.protocol.member_messages import (
    ABORT_CHANGE,
    CHANGE_MEMBERS,
    CONFIG,
    AbortChangeRequest,
    ChangeMembersRequest,
    ConfigRequest,
    ConfigView,
)
from stelae.protocol.node_messages import NODE, NodeInfo, NodeRequest
from stelae.protocol.tablet_messages import TRANSFER_LEADERSHIP, TransferRequest
from stelae.spi.errors import (
    BadIdentifier,
    CallerError,
    ChangeNotYet,
    ConfigError,
    DeadlineExceeded,
    MemberChangeRefused,
    NoChange,
    NotLeader,
    RetryableError,
    Unavailable,
    WrongConfigId,
)
from stelae.spi.ids import NodeId, OpId, TabletId, node_id
from stelae.spi.members import PROMOTED, AddServer, ChangeRole, MemberChange, MemberType, RemoveServer, change_text
from stelae.wire.addresses import split_address
from stelae.wire.messenger import Lane

OnProgress: TypeAlias = Callable[[ConfigView], None]
"""Called with the config of the tablet, again and again while a call waits."""

POLL_S = 0.1
"""Pause between two looks at the config while a call waits, in seconds."""

FIRST_REPORT_S = 3.0
"""How long the masters may not know a tablet server that has just started, in seconds."""

CHANGE_MS = 10_000
"""Deadline of one request for a change, in milliseconds. It is answered once the change is committed."""


class ReplicaGone(CallerError, code="REPLICA_GONE"):
    """A replica that a call waited for is no member of the tablet any more."""


class ChangeOvertaken(CallerError, code="CHANGE_OVERTAKEN"):
    """A request for a change had an unknown outcome, and somebody has changed the config since in another way.

    The change was perhaps made and undone. It was not asked for again, because that could undo the other change."""


class ChangeResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a change."""

    changed: bool  #: False if the tablet was as asked already.
    view: ConfigView  #: The config afterwards, as the leader knows it.


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
            return await self._view(asyncio.get_running_loop().time() + timeout_s)
        except Unavailable:
            if leader_only or (newest := await self._newest_view()) is None:
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
    ) -> ChangeResult:
        """Add a replica on the node at an address. For a member, change its address.

        A new member has no vote at first. The leader feeds it from its log, and makes a ``PRE_VOTER`` a voter once it
        has caught up. It does so by itself, even after the death of this client.

        Args:
            address: ``host:port`` of the node.
            node: its uuid; ``None``: the node at the address is asked. With masters, they must know this server.
            member_type: ``"PRE_VOTER"``; ``"NON_VOTER"`` for a replica that shall never vote; or ``"WITNESS"`` for one
                that votes as soon as it has the newest entries of the log, and serves nobody before it has the rows.
            wait: wait until the replica has its vote.
            config_id: op id of the committed config that the change is meant for.
            on_progress: called while the call waits.
            timeout_s: how long all this may take.

        Raises:
            WrongConfigId: another config is committed than ``config_id``. Nothing was done.
            MemberChangeRefused: the change is not possible; the message says why, and what to do.
            ChangeOvertaken: no answer came, and somebody has changed the config in another way since.
            ReplicaGone: the replica was removed again while the call waited, for example because it never answered.
            DeadlineExceeded: it is not done in time. The change may be made all the same; repeat the call to find out.
            Unavailable: no leader, or no node at the address, answered in time.
        """
        wanted = _type("member_type", member_type)
        if wanted is MemberType.WITNESS:
            wanted = MemberType.PRE_WITNESS  # It joins without a vote, as every member does.
        deadline = asyncio.get_running_loop().time() + seconds("timeout_s", timeout_s)
        _check_address(address)
        name = await self.node_at(address) if node is None else _node(node)
        await self._check_server(name, deadline)
        change = AddServer(node_id=name, address=address, member_type=wanted, pinned=True)
        made = await self._change(change, config_id, deadline, on_progress)
        if not wait or wanted not in PROMOTED:
            return made
        return await self._promoted(made, name, deadline, on_progress)

    async def remove(
        self,
        node: str,
        *,
        config_id: OpId | None = None,
        on_progress: OnProgress | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> ChangeResult:
        """Remove a replica from the tablet. A leader hands over its leadership first.

        The files of the removed replica stay on its node. Errors are those of :meth:`add`."""
        deadline = asyncio.get_running_loop().time() + seconds("timeout_s", timeout_s)
        return await self._change(RemoveServer(node_id=_node(node)), config_id, deadline, on_progress)

    async def move(
        self,
        node: str,
        address: str,
        *,
        to: str | None = None,
        on_progress: OnProgress | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> ChangeResult:
        """Move a replica: add one at an address, wait until it has its vote, then remove the one of ``node``.

        The tablet survives as many losses meanwhile as before. A call that was cut short can be repeated, and goes on
        where it was. Errors are those of :meth:`add`; ``to`` is the uuid of the node at the address, if it is known.

        Raises:
            MemberChangeRefused: neither node is a member.
        """
        clock, source = asyncio.get_running_loop().time, _node(node)
        deadline = clock() + seconds("timeout_s", timeout_s)
        target = await self.node_at(address) if to is None else _node(to)
        members = {member.node_id for member in (await self._view(deadline)).committed.members}
        if source == target:
            raise MemberChangeRefused(f"the replica is on node {source} already; choose another node to move it to")
        if not members & {source, target}:
            fact = f"node {source} has no replica of tablet {self.tablet_id}"
            raise MemberChangeRefused(f"{fact}; see its members: stelae tablet config {self.tablet_id}")
        left_s = max(0.1, deadline - clock())
        added = await self.add(address, node=target, wait=True, on_progress=on_progress, timeout_s=left_s)
        gone = await self._change(RemoveServer(node_id=source), None, deadline, on_progress)
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
    ) -> ChangeResult:
        """Change the type of a member: ``"VOTER"``, ``"NON_VOTER"``, ``"PRE_VOTER"``. Errors are those of :meth:`add`.

        A member gets a vote only once it has caught up. A ``PRE_VOTER`` gets it by itself; with ``wait``, the call
        returns once it has it."""
        wanted = _type("member_type", member_type)
        change = ChangeRole(node_id=_node(node), member_type=wanted)
        deadline = asyncio.get_running_loop().time() + seconds("timeout_s", timeout_s)
        made = await self._change(change, config_id, deadline, on_progress)
        if not wait or wanted not in PROMOTED:
            return made
        return await self._promoted(made, change.node_id, deadline, on_progress)

    async def transfer(
        self, to: str | None = None, *, config_id: OpId | None = None, timeout_s: float = TIMEOUT_S
    ) -> ChangeResult:
        """Hand over the leadership of the tablet. Writes wait for at most one election timeout.

        Args:
            to: uuid of the voter that shall lead; ``None``: the most up-to-date one.
            config_id: op id of the committed config that the transfer is meant for.
            timeout_s: how long it may take.

        Raises:
            WrongConfigId: another config is committed. Nothing was done.
            CallerError: ``to`` is not a voter of the tablet, or no other member could lead.
            Unavailable: nobody could take over in time.
        """
        target = None if to is None else _node(to)
        deadline = asyncio.get_running_loop().time() + seconds("timeout_s", timeout_s)
        before = view = await self._view(deadline)
        request = encode(TransferRequest(self.tablet_id, target, config_id))
        while not _leads(target, view, before):
            _check_successor(target, view)
            try:
                await self._connection.ask(
                    view.node_id, TRANSFER_LEADERSHIP, request, deadline_ms=_left_ms(deadline, TRANSFER_MS)
                )
            except NotLeader:
                pass  # Leadership has moved since the config was read.
            except RetryableError:
                if asyncio.get_running_loop().time() >= deadline:
                    raise
                await asyncio.sleep(POLL_S)
            view = await self._view(deadline)
        return ChangeResult(changed=view.term != before.term, view=view)

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
        return ChangeResult(changed=cancelled, view=await self._view(deadline))

    async def node_at(self, address: str) -> NodeId:
        """Return the uuid of the node at an address, which can get a replica.

        Raises:
            MemberChangeRefused: it is a master. Masters host no replicas of tables.
            Unavailable: no node at the address answered in time.
        """
        _check_address(address)
        name = await self._connection.reach(address)
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

    # -- the change ------------------------------------------------------------------------------

    async def _change(
        self, change: MemberChange, config_id: OpId | None, deadline: float, on_progress: OnProgress | None
    ) -> ChangeResult:
        """Ask until the committed config is as wanted, or the leader refuses the change for good."""
        asked, why, clock = False, "", asyncio.get_running_loop().time
        meant_for = config_id
        while True:
            late = bool(why) and clock() >= deadline  # Then this look is the last one.
            view = await self._view(deadline, why)
            if on_progress is not None:
                on_progress(view)
            if is_made(change, view.committed) and not view.change_pending:
                return ChangeResult(changed=asked, view=view)
            _check_meant_for(change, meant_for, view, asked=asked, why=why)
            if view.change_pending:
                why = f"config {view.config.op_id} is appended and not committed"
            if late:
                raise DeadlineExceeded(f"the change is not made in time: {why}; repeat the command to go on")
            if not view.change_pending:
                tried = meant_for or view.committed.op_id
                maybe_made, why = await self._ask_once(change, view.node_id, tried, deadline)
                if maybe_made:
                    asked, meant_for = True, tried
            await asyncio.sleep(POLL_S)

    async def _ask_once(
        self, change: MemberChange, leader: NodeId, meant_for: OpId, deadline: float
    ) -> tuple[bool, str]:
        """Ask the leader once. Return whether this request may have made the change, and the answer in words.

        Raises:
            MemberChangeRefused: the change is not possible.
        """
        request = encode(ChangeMembersRequest(self.tablet_id, change, meant_for))
        try:
            await self._connection.ask(leader, CHANGE_MEMBERS, request, deadline_ms=_left_ms(deadline, CHANGE_MS))
        except (NoChange, ChangeNotYet, WrongConfigId) as error:
            return False, str(error)  # The next look at the config tells more.
        except RetryableError as error:
            return True, str(error)
        return True, "the leader has made it, and its config does not show it"

    async def _promoted(
        self, made: ChangeResult, name: NodeId, deadline: float, on_progress: OnProgress | None
    ) -> ChangeResult:
        """Wait until a member has its vote, after a change that was made for that."""
        while True:
            view = await self._view(deadline)
            if on_progress is not None:
                on_progress(view)
            if is_promoted(name, view):
                return ChangeResult(changed=made.changed, view=view)
            if view.committed.member(name) is None and not view.change_pending:
                fact = f"node {name} is no member of tablet {self.tablet_id} any more"
                raise ReplicaGone(f"{fact}: it never answered the leader, or somebody removed it; start it and repeat")
            if asyncio.get_running_loop().time() >= deadline:
                fact = f"node {name} is not a voter yet: {lag_text(name, view)}"
                raise DeadlineExceeded(f"{fact}; the leader goes on by itself, and the command can be repeated")
            await asyncio.sleep(POLL_S)

    # -- asking ----------------------------------------------------------------------------------

    async def _view(self, deadline: float, why: str = "") -> ConfigView:
        request = encode(ConfigRequest(self.tablet_id))
        try:
            answer = await self._connection.ask_any(self._tracker, CONFIG, request, deadline, Lane.CONTROL)
        except Unavailable as error:
            if not why:
                raise
            raise Unavailable(f"{error}; before that: {why}") from error
        view = decode(answer.body[0], ConfigView)
        self._connection.member_lookup.learn(self._tracker, [(m.node_id, m.address) for m in view.config.members])
        return view

    async def _newest_view(self) -> ConfigView | None:
        """Return the newest config that any replica knows, or ``None`` if none answers."""
        request = encode(ConfigRequest(self.tablet_id, leader_only=False))
        calls = (self._connection.ask(node, CONFIG, request) for node in self._tracker.members)
        answers = await asyncio.gather(*calls, return_exceptions=True)
        views = [decode(a.body[0], ConfigView) for a in answers if not isinstance(a, BaseException)]
        return max(views, key=lambda view: (view.committed.op_id, view.config.op_id), default=None)


def _leads(target: NodeId | None, view: ConfigView, before: ConfigView) -> bool:
    """Return whether the node leads that shall lead, or without one, whether another one leads than before."""
    return view.node_id != before.node_id if target is None else view.node_id == target


def _check_meant_for(change: MemberChange, meant_for: OpId | None, view: ConfigView, *, asked: bool, why: str) -> None:
    """Refuse to ask for a change on top of another config than it is meant for.

    Args:
        asked: whether a request may have made the change.
        why: the answer to the last request.

    Raises:
        WrongConfigId: nothing was done.
        ChangeOvertaken: a request may have made the change, and it does not hold now.
    """
    found = view.committed.op_id
    if meant_for is None or found == meant_for:
        return
    if not asked:
        raise WrongConfigId(
            f"the committed config is {found}, the change is meant for {meant_for}; "
            "look at the config again, then decide"
        )
    if not view.change_pending:
        raise ChangeOvertaken(
            f"the change was asked for config {meant_for} ({change_text(change)}), and the answer was: {why}. Since "
            f"then, somebody has changed the config: it is {found} now, with {config_text(view.committed)}. Nothing "
            "more was asked; look at the config, and repeat the command if the change is still wanted"
        )


def _check_successor(target: NodeId | None, view: ConfigView) -> None:
    """Refuse a transfer that nobody can take over, unless a change is pending."""
    if view.change_pending:
        return
    if target is None:
        if reason := no_successor_text(view):
            raise CallerError(reason)
        return
    member = view.config.member(target)
    if member is not None and member.member_type is MemberType.VOTER:
        return
    fact = f"node {target} is {'not a member' if member is None else member.member_type}"
    voters = ", ".join(one.address for one in view.config.members if one.member_type is MemberType.VOTER)
    raise CallerError(f"{fact}; leadership can be handed over only to a voter of the tablet: {voters}")


def _check_address(address: str) -> None:
    text("address", address)
    try:
        split_address(address)
    except ConfigError as error:
        raise BadArgument("address", "host:port of a node", address) from error


def _node(given: str) -> NodeId:
    text("the uuid of a node", given)
    try:
        return node_id(given)
    except BadIdentifier as error:
        raise BadArgument("the uuid of a node", "32 lower-case hexadecimal digits", given) from error


def _type(name: str, given: str) -> MemberType:
    try:
        return MemberType(given)
    except ValueError as error:
        raise BadArgument(name, f"one of {', '.join(MemberType)}", given) from error


def _left_ms(deadline: float, most_ms: int) -> int:
    left_s = deadline - asyncio.get_running_loop().time()
    return max(1, min(most_ms, int(left_s * 1000)))
