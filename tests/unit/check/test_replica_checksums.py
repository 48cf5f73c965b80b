"""Comparing replicas by checksum: "differ" is said only of rows that were compared."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from stelae.check import replica_checksums
from stelae.check.health import ReplicaHealth, TabletHealth, TabletVerdict
from stelae.check.replica_checksums import Comparison, compare
from stelae.client.connection import Connection
from stelae.protocol.tablet_messages import Checksum
from stelae.spi.errors import TooOld, Unavailable
from stelae.spi.ids import NodeId, OpId, TabletId

A, B, C = (NodeId(letter * 32) for letter in "abc")
NOW = 700
APPLIED = OpId(1, 7)


class Replicas:
    """Answers of replicas. An error is raised; a list is used up from its front, its last element for good."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[tuple[str, int | None]] = []

    async def checksum(self, node: NodeId, tablet_id: TabletId, *, at: int | None = None) -> Checksum:
        self.asked.append((node[0], at))
        answer = self.answers[node[0]]
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        if isinstance(answer, Exception):
            raise answer
        checksum, version = answer if isinstance(answer, tuple) else (answer, 1)
        return Checksum(checksum, APPLIED, NOW if at is None else at, version)


def compared(replicas: Replicas, **problems: str) -> Comparison:
    """Compare three replicas, of which B leads."""
    members = tuple(
        ReplicaHealth(
            node_id=node,
            address=f"{node[0]}:1",
            role="LEADER" if node == B else "FOLLOWER",
            problem=problems.get(node[0], ""),
        )
        for node in (A, B, C)
    )
    tablet = TabletHealth(tablet_id=TabletId("t"), verdict=TabletVerdict.HEALTHY, why="", replicas=members)
    return asyncio.run(compare(cast(Connection, replicas), tablet))


PATIENCE_S = 0.05


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_checksums, "PAUSE_S", 0)
    monkeypatch.setattr(replica_checksums, "PATIENCE_S", PATIENCE_S)


def test_equal_rows_have_one_checksum_at_the_time_of_the_leader() -> None:
    replicas = Replicas(a="1-1", b="1-1", c="1-1")
    assert compared(replicas) == Comparison(checksum="1-1")
    assert replicas.asked == [("b", None), ("a", NOW), ("c", NOW)]


def test_rows_that_differ_are_told_with_the_checksum_of_each() -> None:
    assert compared(Replicas(a="1-1", b="1-1", c="2-1")) == Comparison(differ=("a:1: 1-1", "b:1: 1-1", "c:1: 2-1"))


def test_a_replica_that_gives_no_checksum_is_not_compared_and_never_said_to_differ() -> None:
    """A replica that had restarted did not know the time of its rows, and the report said "rows differ"."""
    late = Unavailable("the replica has applied entries only up to 1.3; try again")
    assert compared(Replicas(a="1-1", b="1-1", c=late)) == Comparison(not_compared=(f"c:1: {late}",))
    too_old = TooOld(800)
    assert compared(Replicas(a=too_old, b="1-1", c="1-1")) == Comparison(not_compared=(f"a:1: {too_old}",))


def test_those_that_were_compared_may_differ_beside_one_that_was_not() -> None:
    found = compared(Replicas(a="1-1", b="2-1"), c="does not answer")
    assert found.differ == ("a:1: 1-1", "b:1: 2-1") and not found.checksum
    assert found.not_compared == ("c:1: it does not run: does not answer",)


def test_a_follower_that_lags_is_asked_again_until_it_has_applied_enough() -> None:
    late = Unavailable("ask again")
    assert compared(Replicas(a="1-1", b="1-1", c=[late, late, "1-1"])) == Comparison(checksum="1-1")


def test_a_node_that_hangs_is_asked_once() -> None:
    """It was asked twenty times for each tablet, each time until the deadline of the request."""

    class Hanging(Replicas):
        async def checksum(self, node: NodeId, tablet_id: TabletId, *, at: int | None = None) -> Checksum:
            if node == C:
                await asyncio.sleep(PATIENCE_S)
            return await super().checksum(node, tablet_id, at=at)

    replicas = Hanging(a="1-1", b="1-1", c=Unavailable("no answer"))
    assert compared(replicas) == Comparison(not_compared=("c:1: no answer",))
    assert [name for name, _ in replicas.asked].count("c") == 1


def test_a_leader_that_says_nothing_leaves_the_others_to_be_compared() -> None:
    lost = Unavailable("no leader")
    assert compared(Replicas(a="1-1", b=lost, c="2-1")) == Comparison(
        differ=("a:1: 1-1", "c:1: 2-1"), not_compared=(f"b:1: {lost}",)
    )


def test_nothing_is_equal_or_different_where_nothing_runs() -> None:
    found = compared(Replicas(), a="down", b="down", c="down")
    assert not found.checksum and not found.differ and len(found.not_compared) == 3


def test_a_table_that_is_altered_between_two_answers_does_not_differ() -> None:
    """The leader had read all rows without the new column, and then the followers with it: "rows differ", exit 1. The
    leader is asked again, as of the same time."""
    replicas = Replicas(a=("2-1", 2), b=[("1-1", 1), ("2-1", 2)], c=("2-1", 2))
    assert compared(replicas) == Comparison(checksum="2-1")
    assert replicas.asked == [("b", None), ("a", NOW), ("c", NOW), ("b", NOW)]


def test_a_real_difference_is_found_although_the_table_was_altered() -> None:
    replicas = Replicas(a=("2-1", 2), b=[("1-1", 1), ("3-1", 2)], c=[("1-1", 1), ("2-1", 2)])
    assert compared(replicas).differ == ("a:1: 2-1", "b:1: 3-1", "c:1: 2-1")


def test_a_table_that_is_altered_again_and_again_is_not_compared() -> None:
    """Two replicas with the same version are."""
    replicas = Replicas(a=("2-1", 9), b=[(f"1-{version}", version) for version in range(1, 9)], c=("2-1", 9))
    found = compared(replicas)
    assert found == Comparison(not_compared=("b:1: the table was altered meanwhile",))
    assert len(replicas.asked) < 10
    assert compared(Replicas(a=("2-1", 9), b=("1-1", 1), c=("3-1", 9))).differ == ("a:1: 2-1", "c:1: 3-1")


def test_a_replica_that_does_not_answer_again_is_not_compared() -> None:
    lost = TooOld(800)
    replicas = Replicas(a=("2-1", 2), b=[("1-1", 1), lost], c=("2-1", 2))
    assert compared(replicas) == Comparison(not_compared=(f"b:1: {lost}",))
