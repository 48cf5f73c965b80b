"""What a master with a new directory does, by what the others say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.protocol.cluster_bootstrap_messages import BOOTSTRAP, BootstrapAnswer, BootstrapRequest, BootstrapStage
from stelae.server.master.driver.first_start import FirstStart
from stelae.spi.ids import NodeId
from stelae.spi.members import Member
from tests.unit.master.driver_on_fakes import ManualTurns

A, B, C, D = (NodeId(letter * 32) for letter in "abcd")


class Starting:
    """Master A, whose directory is new. ``answers``: what the masters that its file lists say."""

    def __init__(self, answers: dict[NodeId, BootstrapAnswer], *, lists_itself: bool = True) -> None:
        self.failed: dict[str, str] = {}
        self.created = False
        self.turns = ManualTurns()
        self.loader: Any = SimpleNamespace(delayed={SYSTEM_TABLET: "nobody was asked"}, fail=self.failed.__setitem__)
        messenger = SimpleNamespace(serve=self._serve, add_peer=lambda *_: None, call=self._call)
        node: Any = SimpleNamespace(
            node_id=A, address="a:1", turns=self.turns, messenger=messenger, replicas={}, failed_tablets=self.failed
        )
        listed = [A, *answers] if lists_itself else [*answers]
        members = tuple(Member(node_id=member, address=f"{member[0]}:1") for member in listed)
        tablet: Any = SimpleNamespace(members=members)
        self._answers = answers
        first = FirstStart(node, tablet, self.loader, self._create, lambda: None)
        first.serve()
        first.create_when_agreed()

    @property
    def waits_for(self) -> str:
        return self.loader.delayed.get(SYSTEM_TABLET, "")

    def says(self) -> BootstrapAnswer:
        """Ask this master."""
        replies: list[Any] = []
        self._handler(SimpleNamespace(body=[msgspec.msgpack.encode(BootstrapRequest())], reply=replies.append))
        return msgspec.msgpack.decode(replies[0][0], type=BootstrapAnswer)

    def _create(self, *_: object) -> None:
        self.created = True

    def _serve(self, kind: str, handler: Any) -> None:
        assert kind == BOOTSTRAP
        self._handler = handler

    def _call(self, to: NodeId, kind: str, frames: object, *, deadline_ms: int) -> Any:
        body = [msgspec.msgpack.encode(self._answers[to])]
        call = SimpleNamespace(
            cancelled=lambda: False, exception=lambda: None, result=lambda: SimpleNamespace(body=body)
        )
        call.add_done_callback = lambda done: self.turns.defer(lambda: done(call))
        return call

    def pass_a_moment(self) -> None:
        self.turns.run(self.turns.time_us + 1_000)


def begun(*members: NodeId, joining: tuple[NodeId, ...] = (), former: tuple[NodeId, ...] = ()) -> BootstrapAnswer:
    """The answer of a master of a cluster; its file lists B, C and D."""
    return BootstrapAnswer(
        masters=tuple((node, f"{node[0]}:1") for node in (B, C, D)),
        members=members,
        stage=BootstrapStage.BEGUN,
        joining=joining,
        cluster_created_us=7,
        former_voters=former,
    )


@pytest.mark.parametrize("answer", [begun(A, B, C), begun(B, C, former=(A,))], ids=["a member", "removed since"])
@pytest.mark.parametrize("lists_itself", [True, False])
def test_a_voter_that_lost_its_disk_refuses_for_good(answer: BootstrapAnswer, lists_itself: bool) -> None:
    """After its removal it said to run 'stelae master add', which made it a member that no leader ever fills."""
    master = Starting({B: answer}, lists_itself=lists_itself)
    assert master.says().is_new
    master.pass_a_moment()
    assert "an empty one would vote" in master.failed[SYSTEM_TABLET] and not master.created
    assert "format it without --uuid" in master.failed[SYSTEM_TABLET] and not master.waits_for
    assert (master.says().stage, master.says().is_new) == (BootstrapStage.UNKNOWN, True)


def test_a_master_that_never_voted_waits_to_join() -> None:
    for answer in (begun(B, C), begun(A, B, C, joining=(A,))):
        master = Starting({B: answer}, lists_itself=False)
        master.pass_a_moment()
        assert "to let it join, run: stelae master add a:1" in master.waits_for and not master.failed
        assert (master.says().stage, master.says().is_new) == (BootstrapStage.NEW, True)


def test_a_new_master_that_lists_itself_with_present_masters_is_told_only_to_join_and_by_a_master_that_knows() -> None:
    """It was told to connect to itself, to make all files alike, and to format live masters anew."""
    master = Starting({C: begun(B, C, D), D: begun(B, C, D)})
    master.pass_a_moment()
    told = "the cluster has begun without this master (according to c:1, d:1) with the masters b:1, c:1, d:1"
    assert master.waits_for == f"{told}; to let it join, run: stelae master add a:1 --connect c:1"


def test_masters_of_a_new_cluster_whose_lists_differ_are_told_so() -> None:
    answer = msgspec.structs.replace(begun(), stage=BootstrapStage.NEW, cluster_created_us=0)
    master = Starting({B: answer})
    master.pass_a_moment()
    assert "make [masters] alike in every node.toml" in master.waits_for and not master.created
