"""Whole tables: as many healthy voters as wanted, and no learner."""

from __future__ import annotations

import pytest

from stelae.check.health import ReplicaHealth, TableHealth, TabletHealth, TabletVerdict
from stelae.local.whole_tables import voter_problems
from stelae.protocol.catalog_names import TableId, TableState
from stelae.spi.ids import NodeId, TabletId

VOTER = {"votes": True}
DEAD = {"votes": True, "problem": "does not answer"}
LAGS = {"votes": True, "needs_copy": "the log begins later"}
LEARNER = {"votes": False}


def problems(*members: dict[str, object], spares_allowed: bool = False) -> list[str]:
    """The problems of a table of three replicas, whose only tablet has these members."""
    replicas = tuple(
        ReplicaHealth(node_id=NodeId(f"{number}" * 32), address=f"h:{number}", **fields)  # type: ignore[arg-type]
        for number, fields in enumerate(members)
    )
    tablet = TabletHealth(tablet_id=TabletId("a"), verdict=TabletVerdict.HEALTHY, why="", replicas=replicas)
    table = TableHealth(table_id=TableId("0" * 32), name="t", state=TableState.RUNNING, tablets=(tablet,))
    return [*voter_problems(table, 3, spares_allowed=spares_allowed)]


def test_three_healthy_voters_are_whole() -> None:
    assert problems(VOTER, VOTER, VOTER) == []


@pytest.mark.parametrize("members", [(VOTER, VOTER), (VOTER, VOTER, DEAD), (VOTER, VOTER, LAGS)])
def test_fewer_are_not_although_all_members_may_run(members: tuple[dict[str, object], ...]) -> None:
    assert problems(*members) == ["tablet a of t: 2 healthy voters, 3 are wanted"]


def test_a_fourth_voter_is_one_too_many_unless_somebody_may_have_added_it() -> None:
    assert problems(VOTER, VOTER, VOTER, VOTER) == ["tablet a of t: 4 healthy voters, 3 are wanted"]
    assert problems(VOTER, VOTER, VOTER, VOTER, spares_allowed=True) == []


def test_a_learner_that_stays_is_a_problem() -> None:
    assert problems(VOTER, VOTER, VOTER, LEARNER) == ["tablet a of t: h:3 does not vote"]
