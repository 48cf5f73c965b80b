"""Changes the members of one tablet through its leader, until the committed config is as wanted.

What holds already is not asked for again. A change is made for the config that was read before it, so it never takes
effect twice, and never on top of the change of somebody else. A request with an unknown outcome is repeated only for
the same config."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from stelae.client.call_times import TRANSFER_MS
from stelae.client.connection import Connection
from stelae.client.leader_tracker import LeaderTracker
from stelae.client.member_goals import (
    config_text,
    is_made,
    is_promoted,
    no_successor_text,
    unfinished_text,
    wrong_config_text,
)
from stelae.protocol.codec import decode, encode
from stelae.protocol.member_messages import CHANGE_MEMBERS, CONFIG, ChangeMembersRequest, ConfigRequest, ConfigView
from stelae.protocol.tablet_messages import TRANSFER_LEADERSHIP, TransferRequest
from stelae.spi.errors import (
    CallerError,
    ChangeNotYet,
    DeadlineExceeded,
    NoChange,
    NotLeader,
    NotTakenOver,
    RetryableError,
    Unavailable,
    WrongConfigId,
)
from stelae.spi.ids import NodeId, OpId, TabletId
from stelae.spi.members import MemberChange, MemberType, change_text
from stelae.wire.messenger import Lane

OnProgress: TypeAlias = Callable[[ConfigView], None]
"""Called with the config of the tablet, again and again while a call waits."""

POLL_S = 0.1
"""Pause between two looks at the config while a call waits, in seconds."""

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


class MemberChanger:
    """Reads and changes the config of one tablet.

    Args:
        tracker: chooses the nodes to ask, and learns the members.
        kind: of the request for a change.
        request: makes its body from the change and the op id of the committed config that it is meant for.
    """

    def __init__(
        self,
        connection: Connection,
        tablet_id: TabletId,
        tracker: LeaderTracker,
        kind: str = CHANGE_MEMBERS,
        request: Callable[[MemberChange, OpId], msgspec.Struct] | None = None,
    ) -> None:
        self._connection = connection
        self._tablet_id = tablet_id
        self._tracker = tracker
        self._kind = kind
        self._request = request or (lambda change, meant_for: ChangeMembersRequest(tablet_id, change, meant_for))

    async def transfer(self, target: NodeId | None, config_id: OpId | None, deadline: float) -> ChangeResult:
        """Hand over the leadership, to ``target`` or else to the most up-to-date voter.

        Errors are those of ``AsyncReplicas.transfer``."""
        before = view = await self.view(deadline)
        request = encode(TransferRequest(self._tablet_id, target, config_id))
        while not _leads(target, view, before):
            _check_successor(target, view)
            try:
                await self._connection.ask(
                    view.node_id, TRANSFER_LEADERSHIP, request, deadline_ms=_left_ms(deadline, TRANSFER_MS)
                )
            except NotLeader:
                pass  # Leadership has moved since the config was read.
            except NotTakenOver:
                raise  # Each attempt stops writes for an election timeout.
            except RetryableError:
                if asyncio.get_running_loop().time() >= deadline:
                    raise
                await asyncio.sleep(POLL_S)
            view = await self.view(deadline)
        return ChangeResult(changed=view.term != before.term, view=view)

    async def change(
        self, change: MemberChange, config_id: OpId | None, deadline: float, on_progress: OnProgress | None
    ) -> ChangeResult:
        """Ask until the committed config is as wanted, or the leader refuses the change for good."""
        asked, why, clock = False, "", asyncio.get_running_loop().time
        meant_for = config_id
        while True:
            late = bool(why) and clock() >= deadline  # Then this look is the last one.
            view = await self.view(deadline, why)
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
            NotTakenOver: the leader was to be removed or demoted, and could not hand over.
        """
        request = encode(self._request(change, meant_for))
        try:
            await self._connection.ask(leader, self._kind, request, deadline_ms=_left_ms(deadline, CHANGE_MS))
        except (NoChange, ChangeNotYet, WrongConfigId) as error:
            return False, str(error)  # The next look at the config tells more.
        except NotTakenOver:
            raise  # Each attempt to remove or demote a leader stops writes for an election timeout.
        except RetryableError as error:
            return True, str(error)
        return True, "the leader has made it, and its config does not show it"

    async def until_joined(
        self,
        name: NodeId,
        deadline: float,
        on_progress: OnProgress | None,
        *,
        replaced: NodeId | None = None,
        look_s: float = math.inf,
    ) -> ConfigView:
        """Wait until a member has its vote, and until the masters have removed the one that it replaces, if any.

        Args:
            look_s: how long to look for the leader each time, in seconds.

        Raises:
            ReplicaGone: it is no member any more.
            ChangeOvertaken: it is not to replace the other member any more, which is still there.
            DeadlineExceeded: it waits for that after the deadline.
            Unavailable: no leader answered for ``look_s``.
        """
        clock, why = asyncio.get_running_loop().time, ""
        while True:
            view = await self.view(min(deadline, clock() + look_s), why)
            if on_progress is not None:
                on_progress(view)
            if is_promoted(name, view) and (replaced is None or view.committed.member(replaced) is None):
                return view
            if not view.change_pending:
                self._check_joins(name, replaced, view)
            why = unfinished_text(name, replaced, view)
            if clock() >= deadline:
                raise DeadlineExceeded(why)
            await asyncio.sleep(POLL_S)

    def _check_joins(self, name: NodeId, replaced: NodeId | None, view: ConfigView) -> None:
        member = view.committed.member(name)
        if member is None:
            fact = f"node {name} is no member of tablet {self._tablet_id} any more"
            raise ReplicaGone(f"{fact}: it did not answer the leader, or somebody removed it; start it and repeat")
        if replaced is not None and view.committed.member(replaced) is not None and member.replaces != replaced:
            fact = f"node {name} is not to replace node {replaced} any more: somebody has changed the config since"
            raise ChangeOvertaken(f"{fact}; look at it, and repeat the command if the move is still wanted")

    # -- asking ----------------------------------------------------------------------------------

    async def view(self, deadline: float, why: str = "") -> ConfigView:
        """Return the config as the leader knows it. Raises ``Unavailable``, with ``why`` as what was before."""
        request = encode(ConfigRequest(self._tablet_id))
        try:
            answer = await self._connection.ask_any(self._tracker, CONFIG, request, deadline, Lane.CONTROL)
        except Unavailable as error:
            if not why:
                raise
            raise Unavailable(f"{error}; before that: {why}") from error
        view = decode(answer.body[0], ConfigView)
        self._connection.member_lookup.learn(self._tracker, [(m.node_id, m.address) for m in view.config.members])
        return view

    async def newest_view(self) -> ConfigView | None:
        """Return the newest config that any replica knows, or ``None`` if none answers."""
        request = encode(ConfigRequest(self._tablet_id, leader_only=False))
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
        raise WrongConfigId(wrong_config_text(found, meant_for))
    if not view.change_pending:
        raise ChangeOvertaken(
            f"the change was asked for config {meant_for} ({change_text(change)}), and the answer was: {why}. Since "
            f"then, somebody has changed the config: it is {found} now, with {config_text(view.committed)}. Nothing "
            "more was asked; look at the config, and repeat the command if the change is still wanted"
        )


def _check_successor(target: NodeId | None, view: ConfigView) -> None:
    """Refuse a transfer that no member can take over, unless a change is pending."""
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


def _left_ms(deadline: float, most_ms: int) -> int:
    left_s = deadline - asyncio.get_running_loop().time()
    return max(1, min(most_ms, int(left_s * 1000)))
