"""Servers that are lost: when their replicas count as replaced, and that only then the old uuid of a disk retires."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stelae.cli.node_formatting import format_here
from stelae.local.cluster import ClusterOptions
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.local.node_process import NodeProcess
from stelae.protocol.catalog_names import ServerMode
from stelae.protocol.master_messages import SetServerMode
from stelae.spi.errors import Unavailable
from stelae.spi.ids import NodeId, TabletId
from stelae_chaos import fault_target
from stelae_chaos.fault_kinds import KINDS
from stelae_chaos.fault_target import FaultTarget
from stelae_chaos.replacements import is_being_replaced, unreplaced

A, B, C, D = (NodeId(letter * 32) for letter in "abcd")


class Masters:
    """Masters of one table with one tablet, which is to have three voters."""

    def __init__(self, *members: NodeId) -> None:
        self.members = members
        self.learners: tuple[NodeId, ...] = ()
        self.retired: list[object] = []
        self.refusals = 0

    async def list_tables(self, **_: Any) -> Any:
        return SimpleNamespace(tables=[SimpleNamespace(table_id="t")])

    async def get_table(self, table: str, **_: Any) -> Any:
        members = tuple((node, "h:1") for node in self.members)
        place = SimpleNamespace(tablet_id=TabletId("t.1"), members=members, learners=self.learners)
        return SimpleNamespace(name=table, replication_factor=3, tablets=(place,))

    async def change(self, what: object) -> None:
        if self.refusals:
            self.refusals -= 1
            raise Unavailable("no master leads")
        self.retired.append(what)


def problems(masters: Masters) -> list[str]:
    return asyncio.run(unreplaced(masters, [A]))  # type: ignore[arg-type]


def test_a_tablet_with_three_voters_on_other_servers_has_been_replaced() -> None:
    assert problems(Masters(B, C, D)) == []


def test_a_lost_member_must_be_removed_although_there_are_three_others() -> None:
    assert problems(Masters(A, B, C, D)) == ["tablet t.1 of t still has a member whose disk was lost"]


def test_a_new_member_counts_only_once_it_votes() -> None:
    masters = Masters(B, C, D)
    masters.learners = (D,)
    assert problems(masters) == ["tablet t.1 of t has 2 voters, 3 are wanted"]


@pytest.mark.parametrize(
    ("node_id", "now", "expected"),
    [(A, {A, B, C}, False), (A, {A, B, C, D}, True), (A, {B, C, D}, True), (D, {A, B, C, D}, False)],
    ids=["as before", "one is added", "it is removed", "it had no replica"],
)
def test_a_change_of_the_members_of_its_tablets_shows_that_a_server_is_being_replaced(
    node_id: NodeId, now: set[NodeId], expected: bool
) -> None:
    tablet = TabletId("t.1")
    assert is_being_replaced(node_id, {tablet: frozenset({A, B, C})}, {tablet: frozenset(now)}) is expected


def test_masters_that_do_not_answer_replace_nothing() -> None:
    assert not is_being_replaced(A, {TabletId("t.1"): frozenset({A, B, C})}, {})


@pytest.fixture
def masters(monkeypatch: pytest.MonkeyPatch) -> Masters:
    """The masters that targets find. Waits take no time."""
    made = Masters()

    async def found(connection: object) -> Masters:
        return made

    monkeypatch.setattr(fault_target, "find_catalog", found)
    monkeypatch.setattr(fault_target, "LOOK_S", 0.0)
    return made


def made_target(folder: Path) -> FaultTarget:
    """A target of which no process runs, and whose disks may be lost."""
    cluster = ClusterWithMasters.create(folder / "c", ClusterOptions(node_count=2), masters=1, formatted=format_here)
    none: Any = None
    return FaultTarget(cluster.masters, cluster.servers, [TabletId("t.1")], none, outlive=False, disposable=cluster)


def test_an_old_uuid_retires_only_when_its_replicas_are_replaced(tmp_path: Path, masters: Masters) -> None:
    target = made_target(tmp_path)
    (lost, other) = target.servers
    target.lose_disk(lost)
    masters.members = (lost.node_id, other.node_id, C)
    assert asyncio.run(target.retire_replaced(0.0)) == ["tablet t.1 of t still has a member whose disk was lost"]
    assert masters.retired == [] and target.replaced_count == 0
    masters.members = (other.node_id, C, D)
    assert asyncio.run(target.retire_replaced(0.0)) == []
    assert masters.retired == [SetServerMode(node_id=lost.node_id, mode=ServerMode.RETIRING)]
    assert target.replaced_count == 1
    assert asyncio.run(target.retire_replaced(0.0)) == [] and len(masters.retired) == 1


def test_a_retirement_that_fails_is_repeated(tmp_path: Path, masters: Masters) -> None:
    target = made_target(tmp_path)
    (lost, other) = target.servers
    target.lose_disk(lost)
    masters.members, masters.refusals = (other.node_id, C, D), 2
    assert asyncio.run(target.retire_replaced(60.0)) == []
    assert len(masters.retired) == target.replaced_count == 1


def test_no_disk_is_lost_while_what_was_on_another_one_is_not_replaced(
    tmp_path: Path, masters: Masters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fault_target, "WHOLE_TIMEOUT_S", 0.0)
    target = made_target(tmp_path)
    lost = target.servers[0]
    target.lose_disk(lost)
    masters.members = (lost.node_id, B, C)
    assert asyncio.run(target.problems()) == ["tablet t.1 of t still has a member whose disk was lost"]


def killed_long(target: FaultTarget, masters: Masters, monkeypatch: pytest.MonkeyPatch, then: list[NodeId]) -> str:
    """Inflict ``kill-long`` on a target; the members are others after the kill."""

    def kill(node: NodeProcess) -> None:
        masters.members = tuple(then)

    monkeypatch.setattr(target, "kill", kill)
    monkeypatch.setattr(target, "exited", list)
    return asyncio.run(KINDS["kill-long"].inflict(target, random.Random(1)))


def test_a_long_kill_lasts_until_the_masters_begin_to_replace_replicas(
    tmp_path: Path, masters: Masters, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = made_target(tmp_path)
    (holder, _) = target.servers
    masters.members = (holder.node_id, B, C)
    told = killed_long(target, masters, monkeypatch, [holder.node_id, B, C, D])
    assert told == f"SIGKILL of {holder.name} until the masters began to replace its replicas"


def test_a_long_kill_ends_although_the_masters_replace_nothing(
    tmp_path: Path, masters: Masters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fault_target, "LONG_TIMEOUT_S", 0.01)
    target = made_target(tmp_path)
    (holder, _) = target.servers
    masters.members = (holder.node_id, B, C)
    assert "did not begin to replace" in killed_long(target, masters, monkeypatch, [*masters.members])
