"""The calls that change the replicas of a tablet, against a leader that answers what the test says."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, TypeVar

import msgspec
import pytest

from stelae.client import replicas as replicas_module
from stelae.client.leader_tracker import LeaderTracker
from stelae.client.replicas import AsyncReplicas, ChangeOvertaken, ReplicaGone
from stelae.protocol.codec import decode, encode
from stelae.protocol.master_messages import ServerLine, ServerList, ServerMode
from stelae.protocol.member_messages import (
    ABORT_CHANGE,
    CHANGE_MEMBERS,
    ChangeMembersReply,
    ChangeMembersRequest,
    ConfigView,
)
from stelae.protocol.node_messages import NODE, NodeInfo
from stelae.protocol.tablet_messages import TRANSFER_LEADERSHIP
from stelae.spi.errors import (
    CallerError,
    CannotAbort,
    ChangeNotYet,
    DeadlineExceeded,
    MemberChangeRefused,
    NoChange,
    NotTakenOver,
    StelaeError,
    Unavailable,
    WrongConfigId,
)
from stelae.spi.ids import NodeId, OpId
from stelae.spi.members import MemberType
from tests.unit.check.test_health import facts
from tests.unit.client.member_views import LEADER, NEW, OTHER, T, config, view

V, P, N = MemberType.VOTER, MemberType.PRE_VOTER, MemberType.NON_VOTER

Answer = StelaeError | None
_Result = TypeVar("_Result")


class _Loop(asyncio.SelectorEventLoop):
    """A loop whose clock the test moves on."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s


class Leader:
    """A connection to a leader. It shows ``views`` in turn, the last one for ever, and answers requests in turn.

    An answer is ``None`` for success or an error. Each request takes ``takes_s`` by the clock of the loop."""

    def __init__(self, *views: ConfigView, answers: tuple[Answer, ...] = (), takes_s: float = 0.0) -> None:
        self.views, self.answers, self.takes_s = list(views), list(answers), takes_s
        self.asked: list[ChangeMembersRequest] = []
        self.transfers = self.aborts = 0
        self.role = "tserver"
        self.servers: tuple[NodeId, ...] | None = None
        self.servers_later: tuple[NodeId, ...] = ()  # Those that the masters know from the second look on.
        self.member_lookup: Any = SimpleNamespace(learn=lambda *_: None)

    async def ask_any(self, _tracker: object, kind: str, *_: object) -> Any:
        if kind == ABORT_CHANGE:
            self.aborts += 1
            if (answer := self.answers.pop(0)) is not None:
                raise answer
            return SimpleNamespace(body=[])
        shown = self.views.pop(0) if len(self.views) > 1 else self.views[0]
        return SimpleNamespace(body=[encode(shown)])

    async def ask(self, node: NodeId, kind: str, body: bytes, *, deadline_ms: int = 0) -> Any:
        if kind == NODE:
            return SimpleNamespace(body=[encode(_info(self.role))])
        loop = asyncio.get_running_loop()
        assert isinstance(loop, _Loop)
        loop.ahead_s += self.takes_s
        if kind == CHANGE_MEMBERS:
            self.asked.append(decode(body, ChangeMembersRequest))
        else:
            assert kind == TRANSFER_LEADERSHIP
            self.transfers += 1
        answer = self.answers.pop(0)
        if answer is not None:
            raise answer
        return SimpleNamespace(body=[encode(ChangeMembersReply(config(OpId(1, 2))))])

    async def reach(self, address: str) -> NodeId:
        return NEW

    @property
    def replicas(self) -> AsyncReplicas:
        connection: Any = self
        list_servers = None if self.servers is None else self.list_servers
        return AsyncReplicas(connection, T, LeaderTracker([LEADER, OTHER]), list_servers)

    async def list_servers(self) -> ServerList:
        lines = [
            ServerLine(node_id=node, address="any:1", location="", mode=ServerMode.NORMAL, silent_ms=0)
            for node in self.servers or ()
        ]
        self.servers = self.servers_later or self.servers
        return ServerList(servers=tuple(lines))


def _info(role: str) -> NodeInfo:
    return msgspec.structs.replace(facts(NEW, 1), role=role)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas_module, "POLL_S", 0.0)


def run(call: Coroutine[Any, Any, _Result]) -> _Result:
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(call)


def added(leader: Leader, **options: Any) -> Any:
    return run(leader.replicas.add("new:1", **options))


def test_a_change_is_asked_for_the_config_that_was_read_and_the_new_config_is_returned() -> None:
    leader = Leader(view(), view(P, index=2), answers=(None,))
    result = added(leader)
    assert result.changed and result.view.committed.op_id == OpId(1, 2)
    assert [request.committed_config_id for request in leader.asked] == [OpId(1, 1)]


def test_what_holds_already_is_not_asked_for() -> None:
    leader = Leader(view(V))
    assert not added(leader).changed and leader.asked == []
    assert not run(Leader(view()).replicas.remove(NEW)).changed


def test_a_change_with_an_unknown_outcome_is_asked_for_again_unless_the_config_shows_it() -> None:
    lost = Unavailable("no answer")
    leader = Leader(view(), view(P, index=2), answers=(lost,))
    assert added(leader).changed and len(leader.asked) == 1
    leader = Leader(view(), view(), view(P, index=2), answers=(lost, None))
    assert added(leader).changed and len(leader.asked) == 2


@pytest.mark.parametrize("answer", [NoChange("a member already"), ChangeNotYet("another change is pending")])
def test_a_change_that_somebody_else_made_meanwhile_is_not_reported_as_made_here(answer: StelaeError) -> None:
    result = added(Leader(view(), view(P, index=2), answers=(answer,)))
    assert not result.changed and result.view.committed.member(NEW) is not None


def test_a_pending_change_is_waited_for() -> None:
    leader = Leader(view(pending=N), view(N, index=2), view(V, index=3), answers=(None,))
    assert run(leader.replicas.change_role(NEW, "VOTER")).changed
    assert [request.committed_config_id for request in leader.asked] == [OpId(1, 2)]


def test_another_config_than_the_one_that_was_seen_is_refused_before_the_leader_is_asked() -> None:
    leader = Leader(view(index=5))
    with pytest.raises(WrongConfigId, match=r"is 1\.5, the change is meant for 1\.1; look at the config again"):
        added(leader, config_id=OpId(1, 1))
    assert leader.asked == []


def test_after_an_unknown_outcome_a_wrong_config_id_is_an_error_only_if_the_change_is_not_made() -> None:
    answers = (Unavailable("no answer"), WrongConfigId("the committed config is 1.2"))
    made = Leader(view(), view(), view(P, index=2), answers=answers)
    assert added(made, config_id=OpId(1, 1)).changed
    with pytest.raises(ChangeOvertaken):
        added(Leader(view(), view(), view(index=2), answers=answers), config_id=OpId(1, 1))


def test_what_somebody_has_changed_since_an_unknown_outcome_is_not_undone() -> None:
    """An addition without an answer was made, and somebody removed the member. The client added it again."""
    leader = Leader(view(), view(index=3), answers=(Unavailable("no answer in 10 s"),))
    with pytest.raises(ChangeOvertaken) as refused:
        added(leader)
    assert len(leader.asked) == 1
    said = str(refused.value)
    for part in ("config 1.1", "add new:1", "no answer in 10 s", "it is 1.3 now", "leader:1 as VOTER", "look at the"):
        assert part in said


def test_every_request_after_an_unknown_outcome_is_for_the_config_of_the_first() -> None:
    lost = Unavailable("no answer")
    leader = Leader(view(), view(), view(), view(P, index=2), answers=(lost, ChangeNotYet("busy"), None))
    assert added(leader).changed
    assert [request.committed_config_id for request in leader.asked] == [OpId(1, 1)] * 3


def test_a_change_that_is_pending_after_an_unknown_outcome_may_be_this_one_and_is_waited_for() -> None:
    leader = Leader(view(), view(pending=P), view(P, index=2), answers=(Unavailable("no answer"),))
    assert added(leader).changed and len(leader.asked) == 1
    leader = Leader(view(), view(pending=N), view(N, index=2), answers=(Unavailable("no answer"),))
    with pytest.raises(ChangeOvertaken, match="new:1 as NON_VOTER"):
        added(leader)


def test_with_masters_a_server_that_they_do_not_know_is_refused_before_the_leader_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replicas_module, "FIRST_REPORT_S", 0.0)
    leader = Leader(view(), answers=(None,))
    leader.servers = (LEADER, OTHER)
    with pytest.raises(MemberChangeRefused, match=f"the masters know no tablet server {NEW}; .* stelae tserver list"):
        added(leader, node=NEW)
    assert leader.asked == []
    known = Leader(view(), view(P, index=2), answers=(None,))
    known.servers = (NEW,)
    assert added(known, node=NEW).changed


def test_a_server_that_has_just_started_is_waited_for_until_the_masters_have_its_first_report() -> None:
    leader = Leader(view(), view(P, index=2), answers=(None,))
    leader.servers, leader.servers_later = (LEADER,), (LEADER, NEW)
    assert added(leader, node=NEW).changed


def test_without_a_config_id_a_change_that_came_in_between_is_no_error() -> None:
    leader = Leader(
        view(), view(index=2), view(P, index=3), answers=(WrongConfigId("the committed config is 1.2"), None)
    )
    assert added(leader).changed
    assert [request.committed_config_id for request in leader.asked] == [OpId(1, 1), OpId(1, 2)]


def test_a_refusal_for_good_is_raised_at_once() -> None:
    leader = Leader(view(), answers=(MemberChangeRefused("a new member has no vote"),))
    with pytest.raises(MemberChangeRefused, match="a new member has no vote"):
        added(leader)


def test_a_node_that_does_not_answer_is_named_with_what_to_do() -> None:
    """The error was "no answer to hello within 500 ms"."""
    leader = Leader(view())

    async def reach(address: str) -> NodeId:
        raise Unavailable(f"no answer from {address}: no answer to hello within 500 ms")

    leader.reach = reach  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match=r"no answer from new:1.*; start the server first"):
        added(leader, node=None)


def test_a_change_that_is_not_made_in_time_is_an_error_with_the_last_reason() -> None:
    with pytest.raises(DeadlineExceeded, match=r"in time: node c does not answer; repeat the command"):
        added(Leader(view(), answers=(ChangeNotYet("node c does not answer"),), takes_s=60.0))
    with pytest.raises(DeadlineExceeded, match=r"config 1\.2 is appended and not committed"):
        run(_until_late(Leader(view(pending=N))))


async def _until_late(leader: Leader) -> object:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, _Loop)

    def later(_: ConfigView) -> None:
        loop.ahead_s += 20.0

    return await leader.replicas.add("new:1", on_progress=later)


def test_a_change_that_is_made_as_the_time_ends_is_no_error() -> None:
    """The leader had said that the change is made, and the caller was told that it is not."""
    leader = Leader(view(), view(P, index=2), answers=(None,), takes_s=60.0)
    assert added(leader).changed


def test_a_wait_ends_with_the_vote_or_says_that_the_replica_is_gone() -> None:
    leader = Leader(view(), view(P, index=2), view(P, index=2, match=4), view(V, index=3), answers=(None,))
    seen: list[ConfigView] = []
    result = added(leader, wait=True, on_progress=seen.append)
    assert result.changed and result.view.committed.op_id == OpId(1, 3) and len(seen) == 4
    with pytest.raises(ReplicaGone, match="no member of tablet t any more"):
        added(Leader(view(), view(P, index=2), view(index=3), answers=(None,)), wait=True)


def test_a_master_gets_no_replica() -> None:
    """It was made a voter of the tablet."""
    leader = Leader(view())
    leader.role = "master"
    with pytest.raises(
        MemberChangeRefused, match="is a master, and masters host no replicas of tables; choose a tablet"
    ):
        added(leader)
    assert leader.asked == []


def test_a_transfer_to_the_leader_is_done_and_one_to_a_member_without_a_vote_says_who_could() -> None:
    leader = Leader(view(N))
    assert not run(leader.replicas.transfer(LEADER)).changed and leader.transfers == 0
    with pytest.raises(CallerError, match=f"{NEW} is NON_VOTER; .* only to a voter of the tablet: leader:1, other:1"):
        run(leader.replicas.transfer(NEW))
    with pytest.raises(CallerError, match="is not a member; "):
        run(Leader(view()).replicas.transfer(NEW))


ALONE = "leader:1 leads tablet t and is its only VOTER, so no other member can become leader"


@pytest.mark.parametrize(
    ("new", "advice"),
    [
        (None, "add a replica first: stelae tablet add-replica t HOST:PORT"),
        (P, "wait until new:1 is a VOTER"),
        (N, "make one a voter first: stelae tablet change-role t new:1 VOTER"),
    ],
)
def test_a_transfer_that_nobody_can_take_over_is_refused_at_once(new: MemberType | None, advice: str) -> None:
    """It was asked for again and again until the timeout, with the reason of the leader's core."""
    both = view(new)
    members = tuple(member for member in both.config.members if member.node_id != OTHER)
    alone = msgspec.structs.replace(both.committed, members=members)
    leader = Leader(msgspec.structs.replace(both, config=alone, committed=alone))
    with pytest.raises(CallerError, match=f"{ALONE}; {advice}"):
        run(leader.replicas.transfer())
    assert leader.transfers == 0 and not run(leader.replicas.transfer(LEADER)).changed


def test_a_transfer_is_asked_for_until_another_node_leads() -> None:
    leader = Leader(view(), view(), view(leader=OTHER), answers=(Unavailable("no voter took over"), None))
    assert run(leader.replicas.transfer()).view.node_id == OTHER
    assert leader.transfers == 2


def test_a_transfer_and_a_removal_of_the_leader_that_stopped_writes_in_vain_are_not_repeated() -> None:
    """They were repeated until the timeout: writes were accepted for a tenth of a second in each election timeout."""
    in_vain = NotTakenOver("node other did not take over within 1000 ms; look at it")
    leader = Leader(view(N), answers=(Unavailable("other is silent"), in_vain))
    with pytest.raises(NotTakenOver, match="did not take over"):
        run(leader.replicas.transfer(OTHER))
    assert leader.transfers == 2, "a transfer that did not begin costs nothing"
    leader = Leader(view(), answers=(ChangeNotYet("no voter was heard"), in_vain))
    with pytest.raises(NotTakenOver, match="did not take over"):
        run(leader.replicas.remove(LEADER))
    assert len(leader.asked) == 2


def test_a_role_that_brings_a_vote_later_is_waited_for() -> None:
    leader = Leader(view(N), view(P, index=2), view(P, index=2), view(V, index=3), answers=(None,))
    result = run(leader.replicas.change_role(NEW, "PRE_VOTER", wait=True))
    assert result.changed and result.view.committed.op_id == OpId(1, 3)
    leader = Leader(view(N), view(P, index=2), answers=(None,))
    assert run(leader.replicas.change_role(NEW, "PRE_VOTER")).view.committed.op_id == OpId(1, 2)
    leader = Leader(view(V), view(N, index=2), answers=(None,))
    assert run(leader.replicas.change_role(NEW, "NON_VOTER", wait=True)).view.committed.op_id == OpId(1, 2)


def test_an_abort_can_be_repeated() -> None:
    """That nothing was in progress was an error, also if this very call had cancelled it and the answer was lost."""
    leader = Leader(view(), answers=(None, NoChange("no change of config is in progress")))
    assert run(leader.replicas.abort_change()).changed
    assert not run(leader.replicas.abort_change()).changed and leader.aborts == 2
    with pytest.raises(CannotAbort):
        run(Leader(view(), answers=(CannotAbort("it is appended"),)).replicas.abort_change())


def test_a_change_that_found_no_successor_was_not_made() -> None:
    """The client gave up with CHANGE_OVERTAKEN as soon as somebody else had changed the config."""
    leader = Leader(view(N), view(V, index=2), view(index=3), answers=(ChangeNotYet("NO_SUCCESSOR"), None))
    assert run(leader.replicas.remove(NEW)).changed
    assert [request.committed_config_id for request in leader.asked] == [OpId(1, 1), OpId(1, 2)]
