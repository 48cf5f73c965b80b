"""The session of a copy stays open at its source until the copied replica has a leader (rule 25)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stelae.lifecycle.copied_replicas import ASK_US, KEPT_US_MAX
from stelae.lifecycle.kept_sessions import KeptSessions
from stelae.spi.errors import Unavailable
from stelae.spi.ids import OpId
from tests.unit.lifecycle.copy_network import TTL_MS, FakeNetwork
from tests.unit.lifecycle.copy_node import (
    FOLLOWER,
    LEADER,
    SOURCES,
    CopyNode,
    KillAt,
    check_complete,
    served,
    tombstone_disk,
)
from tests.unit.lifecycle.disk_node import TABLET
from tests.unit.lifecycle.test_tablet_copy import ADOPTED, EXPORTED, SERVED, network

TTL_US = TTL_MS * 1000
HOUR_US = 3_600_000_000


class Slow(KillAt):
    """Each step of a copy after the fetch takes longer than a session lives."""

    def __init__(self) -> None:
        super().__init__()
        self.pass_us: Callable[[int], None] = lambda passed_us: None
        self.verified = False

    def hit(self, point: str) -> None:
        super().hit(point)
        self.verified = self.verified or point == "copy.after_verified"
        if self.verified:
            self.pass_us(3 * TTL_US)


def slow_node(what: Any = SERVED, *, leader: Any = None) -> CopyNode:
    """A node on which verifying and installing is slow, and whose replica has this leader at first."""
    crash = Slow()
    node = CopyNode(tombstone_disk(), network(what, what), crash)
    crash.pass_us, host = node.pass_us, node._host

    def hosted(recovered: Any) -> None:
        host(recovered)
        node.node.replicas[TABLET].status.leader = leader

    node.node.host = hosted
    return node


@pytest.mark.parametrize("what", [SERVED, EXPORTED], ids=["files", "export"])
def test_a_session_outlives_a_slow_verification_and_installation_until_the_replica_has_a_leader(what: Any) -> None:
    """It expired there. The source collected the log that follows the copy, and the replica was copied again."""
    node = slow_node(what)
    copy = node.ask()
    assert copy is not None and copy.sequence.committed
    assert node.network.open == {LEADER}
    node.pass_us(20 * TTL_US)
    assert node.network.open == {LEADER}, "the replica has no leader yet"
    node.node.replicas[TABLET].status.leader = FOLLOWER
    node.pass_us(TTL_US // 2)
    assert node.network.open == set() and node.timers == [], "nothing keeps a session that has been ended"
    check_complete(node, ADOPTED)


def test_a_replica_that_never_hears_a_leader_does_not_hold_the_log_of_its_source_for_ever() -> None:
    node = slow_node()
    node.ask()
    node.pass_us(KEPT_US_MAX - TTL_US)
    assert node.network.open == {LEADER}
    node.pass_us(2 * TTL_US)
    assert node.network.open == set() and node.timers == []


@pytest.mark.parametrize("how", ["deleted", "failed"])
def test_a_copied_replica_that_is_gone_needs_no_log(how: str) -> None:
    node = slow_node()
    node.ask()
    if how == "deleted":
        del node.node.replicas[TABLET]
    else:
        node.node.replicas[TABLET].failure = "the log cannot be synced"
    node.pass_us(TTL_US)
    assert node.network.open == set() and node.timers == []


def test_the_session_of_a_copy_that_ends_early_is_kept_no_longer() -> None:
    node = slow_node()

    def cancel(_item: str) -> None:
        node.copies.cancel(TABLET, "by an operator")

    node.network.on_chunk = cancel
    node.ask()
    assert node.network.open == set() and node.timers == []


def test_a_node_that_stops_keeps_no_session() -> None:
    node = slow_node()
    node.ask()
    node.copies.stop()
    assert node.timers == []
    node.pass_us(2 * TTL_US)
    assert node.network.open == set()


def test_a_session_is_kept_until_the_log_of_the_replica_has_what_its_source_had_committed() -> None:
    """It ended when the leader was heard. The leader collected the entries in between, and copied the replica again."""
    node = slow_node(leader=LEADER)
    node.network.commit = 40
    node.ask()
    status = node.node.replicas[TABLET].status
    status.durable_index = 39
    node.pass_us(20 * TTL_US)
    assert node.network.open == {LEADER}
    status.durable_index = 40
    node.pass_us(TTL_US // 2)
    assert node.network.open == set() and node.timers == [] and node.network.commit_asked == 1


def test_a_late_request_that_the_guards_refuse_ends_no_session_of_a_complete_copy() -> None:
    """It was ended before the guards were applied. A leader asks again until it hears that the replica is there."""
    node = slow_node(leader=LEADER)
    node.network.commit = 40
    node.ask()
    late = node.ask()
    assert late is not None and not late.admitted
    assert node.network.open == {LEADER}
    node.node.replicas[TABLET].status.durable_index = 40
    node.pass_us(TTL_US // 2)
    assert node.network.open == set() and node.timers == []


def test_a_source_that_does_not_tell_what_it_had_is_asked_again_and_its_session_kept() -> None:
    node = slow_node(leader=LEADER)
    node.network.commit = Unavailable("the connection is lost")
    node.ask()
    node.pass_us(5 * ASK_US)
    assert node.network.open == {LEADER} and 4 <= node.network.commit_asked <= 6
    node.network.commit = 0
    node.pass_us(2 * ASK_US)
    assert node.network.open == set() and node.timers == []


def test_a_session_that_its_source_has_ended_is_waited_for_no_more() -> None:
    node = slow_node(leader=LEADER)
    node.network.commit = Unavailable("the connection is lost")
    node.ask()
    node.network.open.clear()
    node.pass_us(2 * TTL_US)
    assert node.timers == []


def test_a_second_copy_within_the_hour_has_a_session_of_its_own() -> None:
    """A source returns the session that is open. The timer of the first copy ended it under the second one."""
    node = slow_node()
    node.ask()
    assert node.network.open == {LEADER}
    ends: list[set[str]] = []
    begin = node.network.begin

    def noted(*arguments: Any, **form: Any) -> None:
        ends.append(set(node.network.open))
        begin(*arguments, **form)

    node.network.begin = noted  # type: ignore[method-assign]
    node.ask(hosted=True, log_base=OpId(6, 40))  # It lags again, and has not heard its leader.
    assert ends[:1] == [set()], "the earlier session was ended before"


# -- the keeper alone ------------------------------------------------------------------------------


class Unsure(FakeNetwork):
    """A source whose answers to keep-alives are lost, some or all of them."""

    def __init__(self) -> None:
        super().__init__({LEADER: served()})
        self.answers: list[bool] = []  #: Whether each keep-alive arrives; afterwards all do.
        self.kept = 0

    def keep_alive(self, offer: Any, done: Callable[[Exception | None], None]) -> None:
        self.kept += 1
        if self.answers and not self.answers.pop(0):
            done(Unavailable("the connection is lost"))
            return
        super().keep_alive(offer, done)


@pytest.fixture
def unsure() -> Unsure:
    return Unsure()


@pytest.fixture
def node(unsure: Unsure) -> CopyNode:
    return CopyNode(tombstone_disk(), unsure)


def begun(node: CopyNode, unsure: Unsure) -> KeptSessions:
    kept = KeptSessions(unsure, node.node.turns)
    kept.begin(SOURCES[0], TABLET, lambda _offer: None)
    return kept


def test_a_keep_alive_that_is_lost_does_not_end_the_session(node: CopyNode, unsure: Unsure) -> None:
    unsure.answers = [False, True, False, True]
    begun(node, unsure)
    node.pass_us(10 * TTL_US)
    assert unsure.open == {LEADER} and 25 <= unsure.kept <= 31


def test_a_session_that_its_source_has_ended_is_not_kept(node: CopyNode, unsure: Unsure) -> None:
    unsure.answers = [False] * 4
    begun(node, unsure)
    node.pass_us(20 * TTL_US)
    assert unsure.open == set() and unsure.kept == 5 and node.timers == []


def test_a_session_that_is_opened_twice_has_one_timer(node: CopyNode, unsure: Unsure) -> None:
    kept = begun(node, unsure)
    kept.begin(SOURCES[0], TABLET, lambda _offer: None)
    assert len(node.timers) == 1


def test_a_source_that_refuses_has_no_session_to_keep(node: CopyNode, unsure: Unsure) -> None:
    found: list[Any] = []
    KeptSessions(unsure, node.node.turns).begin(SOURCES[1], TABLET, found.append)
    assert isinstance(found[0], Unavailable) and node.timers == []
