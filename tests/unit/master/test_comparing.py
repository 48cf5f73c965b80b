"""What masters hold against each other before there is a cluster."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.protocol.cluster_bootstrap_messages import BootstrapAnswer, BootstrapStage
from stelae.server.master.driver.master_comparison import MasterAnswers, MasterComparison, silent, stages
from stelae.spi.errors import Unavailable
from stelae.spi.ids import NodeId
from stelae.spi.members import Member

A, B, C, D = (NodeId(letter * 32) for letter in "abcd")
THREE = tuple((node, f"{node[0]}:1") for node in (A, B, C))


def comparison(began: tuple[NodeId, ...] = ()) -> MasterComparison:
    """Master A, whose list is A, B and C; ``began``: the members of its system tablet."""
    members = [Member(node_id=node, address="x:1") for node in began]
    replica = SimpleNamespace(status=SimpleNamespace(config=SimpleNamespace(members=members)))
    node: Any = SimpleNamespace(node_id=A, address="a:1", replicas={SYSTEM_TABLET: replica} if began else {})
    return MasterComparison(node, [Member(node_id=node, address=address) for node, address in THREE])


def answer(
    *members: NodeId, masters: tuple[tuple[NodeId, str], ...] = THREE, stage: BootstrapStage = BootstrapStage.NEW
) -> BootstrapAnswer:
    return BootstrapAnswer(masters=masters, members=members, stage=stage)


def test_masters_that_name_each_other_have_nothing_against_it() -> None:
    assert comparison().differences({"b:1": answer(), "c:1": answer(A, B, C)}) == []
    assert comparison((C, B, A)).differences({"b:1": answer(B, C, A)}) == []


def test_other_addresses_of_the_same_masters_are_no_difference() -> None:
    behind_names = tuple((node, f"host-{node[0]}:1") for node, _ in THREE)
    assert comparison().differences({"b:1": answer(masters=behind_names)}) == []


def test_another_list_is_told_with_both() -> None:
    (told,) = comparison().differences({"b:1": answer(masters=(*THREE[:2], (D, "d:1")))})
    assert told.startswith("master b:1 names the masters a:1 (aaaaaaaa), b:1 (bbbbbbbb), d:1 (dddddddd), this one a:1")


def test_members_in_force_count_whatever_the_list_says_by_now() -> None:
    (told,) = comparison().differences({"b:1": answer(B, C, D)})
    assert told.startswith(
        "master b:1 was first started with the masters b:1 (bbbbbbbb), c:1 (cccccccc), another (dddddddd)"
    )
    (own,) = comparison((A, D)).differences({"b:1": answer()})
    assert own.startswith("master a:1 was first started with the masters a:1 (aaaaaaaa), another (dddddddd)")


def test_who_does_not_answer_and_who_is_how_far_are_told_apart() -> None:
    answers = {"b:1": Unavailable("nobody there"), "c:1": answer(stage=BootstrapStage.BEGUN)}
    assert comparison().differences(answers) == []
    (told,) = silent(answers)
    assert told.startswith("master b:1 does not answer (nobody there): all masters have to run")
    assert stages(answers, BootstrapStage.BEGUN) == ["c:1"] and stages(answers, BootstrapStage.NEW) == []


@pytest.mark.parametrize("body", [[], [b"\xc1"], [b"", b""], [b"\x93"]])
def test_an_answer_that_is_none_counts_as_no_answer(body: list[bytes]) -> None:
    def call(*_: object, **__: object) -> object:
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        future.set_result(SimpleNamespace(body=body))
        return future

    async def ask() -> MasterAnswers:
        answered: asyncio.Future[MasterAnswers] = asyncio.get_running_loop().create_future()
        MasterComparison(node, members).ask(answered.set_result)
        return await answered

    node: Any = SimpleNamespace(node_id=A, address="a:1", replicas={}, messenger=SimpleNamespace(call=call))
    members = [Member(node_id=node_id, address=address) for node_id, address in THREE]
    assert len(silent(asyncio.run(ask()))) == 2
