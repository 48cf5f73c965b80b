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
from tests.unit.master.master_with_servers import ME, OTHER, WALL_US, MasterWithServers, only, refusals

LEADER = NodeId("c" * 32)


def at(now_ms: int, wall_ms: int | None = None) -> MasterTick:
    """A time; the wall clock goes with the monotonic one unless told."""
    return MasterTick(now_ms * 1000, WALL_US + (now_ms if wall_ms is None else wall_ms) * 1000)


def follower() -> MasterWithServers:
    """A master that follows, with one entry applied."""
    cluster = MasterWithServers()
    cluster.follow(1)
    cluster.step(cluster._entry(None))
    return cluster


def asked(cluster: MasterWithServers) -> MasterTick:
    """The time of the last question."""
    return only(cluster.effects, AskReadIndex)[-1].asked


def answer(cluster: MasterWithServers, staleness_ms: int) -> list[object]:
    effects = cluster.read(ListTables(), staleness_ms)
    return [*(reply.body for reply in only(effects, Reply)), *refusals(effects)]


def leaders(effects: list[Effect]) -> list[NodeId]:
    return [effect.leader for effect in only(effects, AskReadIndex)]


@pytest.mark.parametrize(("leader", "pause_us"), [(OTHER, FOLLOWING_US), (ME, LEADING_US)])
def test_the_leader_is_asked_at_a_steady_pace_by_the_others_and_by_itself(leader: NodeId, pause_us: int) -> None:
    cluster = MasterWithServers()
    assert leaders(cluster.pass_ms(10_000)) == []
    assert leaders(cluster.step(MasterLeaderChanged(1, leader))) == [leader]
    assert leaders(cluster.pass_ms(pause_us // 1000 - 1)) == []
    assert cluster.core.next_deadline() == cluster.now_us + 1000
    assert leaders(cluster.pass_ms(1)) == [leader]


def test_without_changes_a_follower_stays_fresh_and_proposes_nothing() -> None:
    cluster = follower()
    for _ in range(200):
        cluster.pass_ms(500)
        cluster.step(ReadIndexAnswered(asked(cluster), 1))
        assert answer(cluster, 600) == [TableList(tables=())]
    assert cluster.proposed == []


def test_an_age_counts_from_the_question_however_long_the_answer_takes() -> None:
    cluster = follower()
    question = asked(cluster)
    cluster.pass_ms(900)
    cluster.step(ReadIndexAnswered(question, 1))
    assert answer(cluster, 900) == [TableList(tables=())]
    assert answer(cluster, 899) == ["TOO_STALE"]
    assert cluster.core.status().age_us == 900_000


def test_an_answer_counts_once_what_it_names_is_applied() -> None:
    cluster = follower()
    cluster.step(ReadIndexAnswered(asked(cluster), 3))
    cluster.step(cluster._entry(None))
    assert answer(cluster, 1_000) == ["TOO_STALE"]
    cluster.step(cluster._entry(None))
    assert answer(cluster, 1_000) == [TableList(tables=())]


def test_an_answer_stays_true_whoever_leads_afterwards() -> None:
    cluster = follower()
    question = asked(cluster)
    cluster.step(MasterLeaderChanged(2, LEADER), ReadIndexAnswered(question, 1))
    assert answer(cluster, 100) == [TableList(tables=())]


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
