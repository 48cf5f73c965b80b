"""Which masters may join, and what a refused one leaves behind: nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from stelae.protocol.cluster_bootstrap_messages import BOOTSTRAP, BootstrapAnswer, BootstrapStage
from stelae.protocol.masters_messages import CHANGE_MASTERS, ChangeMastersRequest
from stelae.server.master.driver.change_masters import ANSWER_MS, MasterChanges
from stelae.spi.consensus import Role
from stelae.spi.errors import (
    CallerError,
    ChangeNotYet,
    MemberChangeRefused,
    NotLeader,
    StelaeError,
    Unavailable,
    WrongConfigId,
)
from stelae.spi.ids import NodeId, OpId
from stelae.spi.members import AddServer, ChangeRole, Member, MemberChange, MemberType, RemoveServer, TabletConfig
from stelae.spi.recovery_epoch import first_term
from tests.unit.master.driver_on_fakes import ManualTurns

ME, NEW, FOREIGN = NodeId("a" * 32), NodeId("d" * 32), NodeId("f" * 32)
CONFIG = TabletConfig(op_id=OpId(1, 1), members=(Member(node_id=ME, address="a:1"),))
CREATED_US = 77
ADD = AddServer(node_id=NEW, address="127.0.0.1:4")


class Leader:
    """A leading master. ``answers``: what the new master says, one after the other; the last one is repeated."""

    def __init__(
        self,
        *answers: BootstrapAnswer | StelaeError,
        role: Role = Role.LEADER,
        cluster_created_us: int = CREATED_US,
        config: TabletConfig = CONFIG,
    ):
        self.answers = list(answers)
        self.changes: list[tuple[MemberChange, OpId | None]] = []
        self.refused: list[StelaeError] = []
        self.refusal: StelaeError | None = None  #: The answer of consensus to changes; ``None``: they are made.
        self.appended: TabletConfig | None = None  #: The config in force from then on, if it is another one.
        self.replied = 0
        self.links: set[NodeId] = set()
        self.turns = ManualTurns()
        self.role = role
        self.replica: Any = SimpleNamespace(
            status=SimpleNamespace(role=role, leader=NEW, config=config), change_members=self._changed
        )
        messenger = SimpleNamespace(
            serve=self._serve,
            add_peer=lambda node, _: self.links.add(node),
            remove_peer=self.links.discard,
            call=self._call,
        )
        node: Any = SimpleNamespace(turns=self.turns, messenger=messenger)
        catalog = SimpleNamespace(cluster_created_us=cluster_created_us)
        self.obstacle = ""
        core: Any = SimpleNamespace(catalog=catalog, obstacle_to_removal=lambda now_us: self.obstacle)
        MasterChanges(node, lambda: self.replica, lambda: core, lambda: None).serve()

    def ask(self, change: MemberChange, seen: OpId | None = None) -> None:
        body = [msgspec.msgpack.encode(ChangeMastersRequest(change, seen))]
        request = SimpleNamespace(body=body, reply=self._reply, refuse=self.refused.append)
        try:
            self._handler(request)
        except StelaeError as error:
            self.refused.append(error)

    def pass_us(self, delay_us: int) -> None:
        self.turns.run(self.turns.time_us + delay_us)

    def _serve(self, kind: str, handler: Any) -> None:
        assert kind == CHANGE_MASTERS
        self._handler = handler

    def _reply(self, _frames: object) -> None:
        self.replied += 1

    def _changed(self, change: MemberChange, done: Any, *, committed_config_id: OpId | None) -> None:
        if self.appended is not None:
            self.replica.status.config = self.appended
        if self.refusal is not None:
            done(self.refusal)
            return
        self.changes.append((change, committed_config_id))
        done(CONFIG)

    def _call(self, to: NodeId, kind: str, frames: object, *, deadline_ms: int) -> Any:
        assert (to, kind) == (NEW, BOOTSTRAP)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        error = answer if isinstance(answer, StelaeError) else None
        body = [] if error is not None else [msgspec.msgpack.encode(answer)]
        call = SimpleNamespace(
            cancelled=lambda: False, exception=lambda: error, result=lambda: SimpleNamespace(body=body)
        )
        call.add_done_callback = lambda done: done(call)
        return call


def says(
    stage: BootstrapStage,
    cluster_created_us: int = 0,
    members: tuple[NodeId, ...] = (NEW,),
    joining: tuple[NodeId, ...] = (),
    *,
    is_new: bool = False,
    config_id: OpId | None = None,
) -> BootstrapAnswer:
    return BootstrapAnswer(
        masters=(),
        members=members,
        stage=stage,
        cluster_created_us=cluster_created_us,
        joining=joining,
        is_new=is_new,
        config_id=config_id,
    )


JOINABLE = {
    "it waits": says(BootstrapStage.NEW, members=(), is_new=True),
    "it was a master before": says(BootstrapStage.BEGUN, CREATED_US),
    "a join ended before the first entry": says(BootstrapStage.EMPTY, members=()),
    "a join ended early": says(BootstrapStage.UNKNOWN, members=(ME, NEW), joining=(NEW,)),
}


@pytest.mark.parametrize("answer", JOINABLE.values(), ids=JOINABLE)
def test_a_master_that_waits_to_join_or_was_one_before_is_added(answer: BootstrapAnswer) -> None:
    leader = Leader(answer)
    leader.ask(ADD, OpId(1, 1))
    leader.pass_us(ANSWER_MS * 1_000)
    assert leader.changes == [(ADD, OpId(1, 1))] and leader.replied == 1 and not leader.refused


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (says(BootstrapStage.BEGUN, CREATED_US + 1), "another cluster with the same id"),
        (says(BootstrapStage.EMPTY), "a system tablet of its own"),
        (says(BootstrapStage.UNKNOWN), "cannot say whether its system tablet is of this cluster"),
        (says(BootstrapStage.EMPTY, members=(FOREIGN, NEW), joining=(NEW,)), "a system tablet of its own"),
        (says(BootstrapStage.BEGUN, CREATED_US + 1, members=(FOREIGN, NEW), joining=(NEW,)), "another cluster"),
        (Unavailable("down"), "does not answer as master .*: down; start it with"),
        (CallerError("no service for messages of kind"), "does not answer as master"),
    ],
)
def test_a_master_that_must_not_join_is_refused_and_nothing_is_appended(answer: Any, reason: str) -> None:
    """Mutant: the catalogs of two clusters are merged."""
    leader = Leader(answer)
    leader.ask(ADD)
    leader.pass_us(2 * ANSWER_MS * 1_000)
    (error,) = leader.refused
    assert isinstance(error, MemberChangeRefused) and leader.changes == [] and leader.links == set()
    with pytest.raises(MemberChangeRefused, match=f"{reason}.*nothing was changed"):
        raise error


WITHOUT = msgspec.structs.replace(CONFIG, former_voters=(NEW,))


@pytest.mark.parametrize("stage", [BootstrapStage.NEW, BootstrapStage.UNKNOWN])
def test_a_removed_voter_with_a_new_directory_is_refused_and_nothing_is_appended(stage: BootstrapStage) -> None:
    """It became a member without a vote. The leader never filled its directory, and never removed it either."""
    leader = Leader(says(stage, members=(), is_new=True), config=WITHOUT)
    leader.ask(ADD)
    leader.pass_us(2 * ANSWER_MS * 1_000)
    (error,) = leader.refused
    assert isinstance(error, MemberChangeRefused) and leader.changes == [] and leader.links == set()
    assert f"was a master with a vote, as {NEW}, and its directory is new" in str(error)
    assert "under a new uuid; nothing was changed" in str(error)


@pytest.mark.parametrize(
    "answer",
    [says(BootstrapStage.BEGUN, CREATED_US), says(BootstrapStage.NEW, members=())],
    ids=["its directory", "a copy over its replica was interrupted"],
)
def test_a_removed_voter_with_its_old_directory_is_added(answer: BootstrapAnswer) -> None:
    leader = Leader(answer, config=WITHOUT)
    leader.ask(ADD)
    assert leader.changes == [(ADD, None)] and not leader.refused


RECOVERED = TabletConfig(op_id=OpId(first_term(2, 5), 9), members=CONFIG.members, former_voters=(NEW,))


@pytest.mark.parametrize(
    "answer",
    [
        says(BootstrapStage.BEGUN, CREATED_US, config_id=OpId(9, 99)),
        says(BootstrapStage.BEGUN, CREATED_US, config_id=OpId(first_term(1, 9), 99)),
        says(BootstrapStage.BEGUN, CREATED_US, config_id=OpId(first_term(2, 4), 99)),
        says(BootstrapStage.UNKNOWN, members=(ME, NEW), joining=(NEW,), config_id=OpId(9, 99)),
    ],
    ids=["recovered once", "recovered twice", "two recoveries at a time", "not loaded"],
)
def test_a_master_that_a_recovery_left_behind_is_refused_with_its_old_directory(answer: BootstrapAnswer) -> None:
    """Its cluster was the same one, so it became a member without a vote. Its replica failed, and the member stayed."""
    leader = Leader(answer, config=RECOVERED)
    leader.ask(ADD)
    leader.pass_us(2 * ANSWER_MS * 1_000)
    (error,) = leader.refused
    assert isinstance(error, MemberChangeRefused) and leader.changes == [] and leader.links == set()
    assert "was left behind when the masters were recovered" in str(error) and "under a new uuid" in str(error)


def test_a_master_that_has_the_log_of_the_recovery_is_added() -> None:
    config_id = OpId(RECOVERED.op_id.term + 3, 20)
    leader = Leader(says(BootstrapStage.BEGUN, CREATED_US, config_id=config_id), config=RECOVERED)
    leader.ask(ADD)
    assert leader.changes == [(ADD, None)] and not leader.refused


def test_a_master_that_is_starting_is_asked_again() -> None:
    leader = Leader(Unavailable("not yet"), says(BootstrapStage.UNKNOWN), says(BootstrapStage.NEW))
    leader.ask(ADD)
    assert leader.changes == [] and not leader.refused
    leader.pass_us(ANSWER_MS * 1_000)
    assert leader.changes == [(ADD, None)]


def test_only_the_leader_of_a_cluster_on_record_changes_masters() -> None:
    follower = Leader(says(BootstrapStage.NEW), role=Role.FOLLOWER)
    follower.ask(ADD)
    follower.ask(RemoveServer(node_id=ME))
    assert [type(error) for error in follower.refused] == [NotLeader, NotLeader]
    bootstrapping = Leader(says(BootstrapStage.NEW), cluster_created_us=0)
    bootstrapping.ask(ADD)
    assert [type(error) for error in bootstrapping.refused] == [Unavailable] and bootstrapping.changes == []
    starting = Leader(says(BootstrapStage.NEW))
    starting.replica = None
    starting.ask(ADD)
    assert [type(error) for error in starting.refused] == [Unavailable]


def test_a_leader_that_is_deposed_while_it_asks_changes_nothing() -> None:
    leader = Leader(Unavailable("not yet"), says(BootstrapStage.NEW))
    leader.ask(ADD)
    leader.replica.status.role = Role.FOLLOWER
    leader.pass_us(ANSWER_MS * 1_000)
    assert leader.changes == [] and [type(error) for error in leader.refused] == [NotLeader]
    assert leader.links == set(), "they tried to connect until the master was started again"


def test_a_change_that_consensus_refuses_leaves_no_links_unless_the_node_is_a_member() -> None:
    leader = Leader(says(BootstrapStage.NEW, members=()))
    leader.refusal = WrongConfigId("another config is committed")
    leader.ask(ADD)
    assert leader.refused == [leader.refusal] and leader.links == set()
    leader.refusal = Unavailable("deposed: the outcome is unknown")
    joined = Member(node_id=NEW, address=ADD.address, member_type=MemberType.PRE_VOTER)
    leader.appended = msgspec.structs.replace(CONFIG, members=(*CONFIG.members, joined))
    leader.ask(ADD)
    assert leader.refused[1:] == [leader.refusal] and leader.links == {NEW}


def test_two_requests_for_one_node_do_not_close_each_others_links() -> None:
    leader = Leader(says(BootstrapStage.UNKNOWN), says(BootstrapStage.UNKNOWN), says(BootstrapStage.NEW, members=()))
    leader.ask(ADD)
    leader.ask(ADD)
    leader.links.clear()  # The other one was refused.
    leader.pass_us(ANSWER_MS * 1_000)
    assert leader.changes == [(ADD, None)] * 2 and leader.links == {NEW}


def test_a_removal_and_a_new_address_ask_nobody() -> None:
    leader = Leader(Unavailable("never asked"))
    moved = AddServer(node_id=ME, address="127.0.0.1:9")
    leader.ask(RemoveServer(node_id=NEW))
    leader.ask(moved)
    assert leader.changes == [(RemoveServer(node_id=NEW), None), (moved, None)]


def test_a_master_is_not_removed_while_a_tablet_server_could_lose_sight_of_the_masters() -> None:
    leader = Leader(Unavailable("never asked"))
    leader.obstacle = "a server does not know them"
    leader.ask(RemoveServer(node_id=ME))
    assert [type(error) for error in leader.refused] == [ChangeNotYet] and leader.changes == []
    leader.ask(RemoveServer(node_id=NEW))
    assert leader.changes == [(RemoveServer(node_id=NEW), None)], "the rules of all tablets say that it is no member"
    leader.obstacle = ""
    leader.ask(RemoveServer(node_id=ME))
    assert leader.changes[-1] == (RemoveServer(node_id=ME), None)


@pytest.mark.parametrize(
    "change",
    [
        AddServer(node_id=NEW, address="127.0.0.1:4", member_type=MemberType.PRE_WITNESS),
        ChangeRole(node_id=ME, member_type=MemberType.NON_VOTER),
        AddServer(node_id=NEW, address="nowhere"),
        AddServer(node_id=NodeId("x"), address="127.0.0.1:4"),
    ],
)
def test_other_changes_are_refused(change: MemberChange) -> None:
    leader = Leader(says(BootstrapStage.NEW))
    leader.ask(change)
    assert leader.changes == [] and len(leader.refused) == 1
