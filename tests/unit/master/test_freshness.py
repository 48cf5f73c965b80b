"""How old a master's catalog may be: asked of the leader, counted from the question, true once it is applied."""

from __future__ import annotations

import pytest

from stelae.protocol.master_messages import ListTables, TableList
from stelae.server.master.core.events import (
    AskReadIndex,
    CaughtUp,
    Effect,
    MasterLeaderChanged,
    MasterTick,
    ReadIndexAnswered,
    Refuse,
    Reply,
)
from stelae.server.master.core.freshness import FOLLOWING_US, LEADING_US, Freshness
from stelae.spi.ids import NodeId
from tests.unit.master.company import ME, OTHER, WALL_US, Company, only, refusals

LEADER = NodeId("c" * 32)


def at(now_ms: int, wall_ms: int | None = None) -> MasterTick:
    """A time; the wall clock goes with the monotonic one unless told."""
    return MasterTick(now_ms * 1000, WALL_US + (now_ms if wall_ms is None else wall_ms) * 1000)


def follower() -> Company:
    """A master that follows, with one entry applied."""
    company = Company()
    company.follow(1)
    company.step(company._entry(None))
    return company


def asked(company: Company) -> MasterTick:
    """The time of the last question."""
    return only(company.effects, AskReadIndex)[-1].asked


def answer(company: Company, staleness_ms: int) -> list[object]:
    effects = company.read(ListTables(), staleness_ms)
    return [*(reply.body for reply in only(effects, Reply)), *refusals(effects)]


def leaders(effects: list[Effect]) -> list[NodeId]:
    return [effect.leader for effect in only(effects, AskReadIndex)]


@pytest.mark.parametrize(("leader", "pause_us"), [(OTHER, FOLLOWING_US), (ME, LEADING_US)])
def test_the_leader_is_asked_at_a_steady_pace_by_the_others_and_by_itself(leader: NodeId, pause_us: int) -> None:
    company = Company()
    assert leaders(company.pass_ms(10_000)) == []
    assert leaders(company.step(MasterLeaderChanged(1, leader))) == [leader]
    assert leaders(company.pass_ms(pause_us // 1000 - 1)) == []
    assert company.core.next_deadline() == company.now_us + 1000
    assert leaders(company.pass_ms(1)) == [leader]


def test_without_changes_a_follower_stays_fresh_and_proposes_nothing() -> None:
    company = follower()
    for _ in range(200):
        company.pass_ms(500)
        company.step(ReadIndexAnswered(asked(company), 1))
        assert answer(company, 600) == [TableList(tables=())]
    assert company.proposed == []


def test_an_age_counts_from_the_question_however_long_the_answer_takes() -> None:
    company = follower()
    question = asked(company)
    company.pass_ms(900)
    company.step(ReadIndexAnswered(question, 1))
    assert answer(company, 900) == [TableList(tables=())]
    assert answer(company, 899) == ["TOO_STALE"]
    assert company.core.status().age_us == 900_000


def test_an_answer_counts_once_what_it_names_is_applied() -> None:
    company = follower()
    company.step(ReadIndexAnswered(asked(company), 3))
    company.step(company._entry(None))
    assert answer(company, 1_000) == ["TOO_STALE"]
    company.step(company._entry(None))
    assert answer(company, 1_000) == [TableList(tables=())]


def test_an_answer_stays_true_whoever_leads_afterwards() -> None:
    company = follower()
    question = asked(company)
    company.step(MasterLeaderChanged(2, LEADER), ReadIndexAnswered(question, 1))
    assert answer(company, 100) == [TableList(tables=())]


def test_of_answers_that_wait_the_one_is_kept_that_is_true_first() -> None:
    freshness = Freshness()
    freshness.take_answer(ReadIndexAnswered(at(100), 5), 3)
    freshness.take_answer(ReadIndexAnswered(at(600), 9), 3)
    freshness.applied(5)
    assert freshness.age_us(at(1_000)) == 900_000
    freshness.take_answer(ReadIndexAnswered(at(700), 9), 5)
    freshness.take_answer(ReadIndexAnswered(at(800), 9), 5)
    freshness.applied(9)
    assert freshness.age_us(at(1_000)) == 200_000


def test_an_answer_that_was_overtaken_makes_nothing_older() -> None:
    freshness = Freshness()
    freshness.take_answer(ReadIndexAnswered(at(600), 1), 1)
    freshness.take_answer(ReadIndexAnswered(at(100), 1), 1)
    assert freshness.age_us(at(1_000)) == 400_000


def test_the_age_is_the_greater_one_by_two_clocks() -> None:
    """A hybrid clock stands still while it is ahead of this machine's; the monotonic one while the machine sleeps."""
    freshness = Freshness()
    freshness.take_answer(ReadIndexAnswered(at(100, wall_ms=5_000), 1), 1)
    assert freshness.age_us(at(3_100, wall_ms=5_000)) == 3_000_000
    assert freshness.age_us(at(200, wall_ms=9_000)) == 4_000_000


def test_a_master_that_hears_no_leader_goes_by_the_time_of_its_last_entry_and_grows_older() -> None:
    freshness = Freshness()
    assert freshness.age_us(at(1_000)) is None
    freshness.caught_up(CaughtUp(WALL_US + 400_000), at(1_000))
    assert freshness.age_us(at(1_000)) == 600_000
    assert freshness.age_us(at(2_000, wall_ms=1_000)) == 1_600_000


def test_a_master_that_cannot_tell_its_age_says_so_and_names_whom_to_ask() -> None:
    (refusal,) = only(follower().read(ListTables(), 1_000), Refuse)
    assert refusal.detail == f"this master's catalog is of unknown age; 1000 ms are allowed: ask {OTHER}, or allow more"
