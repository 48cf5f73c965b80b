"""When a replica steps its core: once per turn, and for nothing that can wait."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import MagicMock

import msgspec
import pytest

from stelae.host.replica import Replica
from stelae.host.replica_state import ReplicaState
from stelae.spi.consensus import Role
from stelae.spi.consensus_events import Applied, PeerAlive, Persisted, StepDown, Tick
from tests.unit.host.test_replica_failure import LAST, LOG, STATUS

NOW_US = 7


class Turns:
    """A replica on a core that does nothing, and the loop's turns by hand."""

    def __init__(self) -> None:
        self.core = MagicMock()
        self.core.status.return_value = STATUS
        self.core.take_ready.return_value = None
        self.core.next_deadline.return_value = None
        self.core.can_wait.side_effect = lambda event: isinstance(event, Persisted)
        self._due: list[Callable[[], None]] = []
        self._last: list[Callable[[], None]] = []
        turns = MagicMock()
        turns.now_us.return_value = NOW_US
        turns.defer.side_effect = self._due.append
        turns.defer_last.side_effect = self._last.append
        ports = MagicMock(turns=turns)
        ports.heartbeats.peers_alive.return_value = []
        self.replica = Replica(log=LOG, core=self.core, vote_kinds=frozenset(), ports=ports)
        writes = MagicMock()
        writes.take_proposals.return_value = None
        self.applier = MagicMock(applied=LAST)
        self.replica.connect(MagicMock(), self.applier, writes, MagicMock(), MagicMock(), MagicMock(), MagicMock())

    def run(self) -> list[list[object]]:
        """Run the turns that are due; return what each stepped."""
        self.core.step.reset_mock()
        while self._due or self._last:
            (self._due or self._last).pop(0)()
        return [call.args[0] for call in self.core.step.call_args_list]

    def to_apply(self) -> list[int]:
        """Up to where the store was told to apply since the last call; 0 tells it nothing new."""
        told = [call.args[0] for call in self.applier.commit_to.call_args_list]
        self.applier.commit_to.reset_mock()
        return [index for index in told if index]

    def follow(self) -> None:
        """Be a follower from now on."""
        self.replica.status = msgspec.structs.replace(STATUS, role=Role.FOLLOWER)
        self.core.status.return_value = self.replica.status


def test_a_leader_applies_what_is_committed_at_once_for_its_callers_wait() -> None:
    turns = Turns()
    turns.replica.committed(7)
    assert turns.to_apply() == [7]


def test_a_follower_applies_once_all_is_durable_and_behind_what_that_lets_it_send() -> None:
    turns = Turns()
    turns.follow()
    turns.replica.committed(7)
    turns.replica.deliver(StepDown())
    turns.run()
    assert turns.to_apply() == []
    turns.replica.drained()
    assert turns.to_apply() == [], "what the link owes leaves first"
    turns.run()
    assert turns.to_apply() == [7]


def test_a_follower_that_is_never_done_applies_what_was_committed_one_message_ago() -> None:
    turns = Turns()
    turns.follow()
    for index in (7, 8, 9):
        turns.replica.committed(index)
    assert turns.to_apply() == [7, 8]


def test_a_replica_that_stopped_applies_nothing_more() -> None:
    turns = Turns()
    turns.follow()
    turns.replica.committed(7)
    turns.replica.drained()
    turns.replica.stop()
    turns.run()
    assert turns.to_apply() == []


def test_an_event_that_can_wait_brings_no_turn_and_stands_before_the_time_of_the_next_one() -> None:
    turns = Turns()
    turns.replica.deliver(Persisted(1))
    assert turns.run() == []
    turns.replica.deliver(StepDown())
    assert turns.run() == [[Persisted(1), Tick(NOW_US), StepDown()]]


def test_of_two_events_only_the_first_is_asked_whether_it_can_wait() -> None:
    turns = Turns()
    turns.replica.deliver(Persisted(1))
    turns.replica.deliver(Persisted(2))
    assert turns.run() == [[Persisted(1), Tick(NOW_US), Persisted(2)]]
    assert turns.core.can_wait.call_count == 1


def test_what_comes_while_a_turn_is_due_joins_it_in_order() -> None:
    turns = Turns()
    turns.replica.deliver(StepDown())
    turns.replica.deliver(Persisted(1))
    assert turns.run() == [[Tick(NOW_US), StepDown(), Persisted(1)]]
    assert turns.run() == []


def test_the_deadline_brings_what_was_held() -> None:
    turns = Turns()
    turns.core.next_deadline.return_value = NOW_US + 5
    turns.replica.deliver(StepDown())
    turns.run()
    turns.replica.deliver(Persisted(3))
    (when_us, fired) = turns.replica._ports.turns.call_at.call_args.args
    assert turns.run() == [] and when_us == NOW_US + 5
    fired()
    assert turns.run() == [[Persisted(3), Tick(NOW_US)]]


def test_what_was_applied_comes_with_the_next_turn() -> None:
    turns = Turns()
    turns.replica.entries_applied(LAST)
    assert turns.run() == []
    turns.replica.deliver(Persisted(1))
    turns.replica.deliver(StepDown())
    assert turns.run() == [[Persisted(1), Tick(NOW_US), Applied(LAST.index), StepDown()]]


def test_a_turn_that_overtakes_the_timer_hears_the_peers_before_it_tells_the_time() -> None:
    turns = Turns()
    turns.core.next_deadline.return_value = NOW_US
    turns.replica.deliver(StepDown())
    turns.run()
    turns.replica._ports.heartbeats.peers_alive.return_value = [PeerAlive("b", 2, 3)]
    turns.replica.deliver(StepDown())
    assert turns.run() == [[PeerAlive("b", 2, 3), Tick(NOW_US), StepDown()]]


@pytest.mark.parametrize("asks", ["transfer", "fail_after_handover"])
def test_a_leader_hears_the_peers_before_it_looks_for_a_successor(asks: str) -> None:
    """On an idle tablet the core knew of no voter that was heard lately, a third of the time, and refused."""
    turns = Turns()
    turns.replica.status = msgspec.structs.replace(STATUS, role=Role.LEADER)
    turns.core.status.return_value = turns.replica.status
    turns.replica._timer, turns.replica._timer_us = MagicMock(), NOW_US + 1
    turns.replica._ports.heartbeats.peers_alive.return_value = [PeerAlive("b", 2, 3)]
    if asks == "transfer":
        turns.replica.transfer(None, lambda _error: None)
    else:
        turns.replica.fail_after_handover("the store is damaged")
    assert turns.run()[0][0] == PeerAlive("b", 2, 3)


@pytest.mark.parametrize("role", [Role.LEADER, Role.FOLLOWER])
def test_the_log_is_let_go_as_far_as_the_core_knows_that_all_members_have_it_though_nothing_is_applied(
    role: Role,
) -> None:
    """Whoever comes late to an idle tablet catches up after the last entry was applied here. Followers let go of
    everything, whatever a lagging peer lacked."""
    turns = Turns()
    told = turns.replica._retention.all_replicated
    status = msgspec.structs.replace(STATUS, role=role, all_replicated_index=9)
    turns.core.status.return_value = status
    turns.replica.deliver(StepDown())
    turns.run()
    told.assert_called_once_with(9)  # type: ignore[attr-defined]
    turns.replica.deliver(StepDown())
    turns.run()
    told.assert_called_once_with(9)  # type: ignore[attr-defined]


@pytest.mark.parametrize("part", ["step", "take_ready"])
def test_what_a_step_raises_fails_its_replica_alone_and_the_loop_goes_on(part: str) -> None:
    """It ended the node, and with it every other tablet."""
    turns = Turns()
    getattr(turns.core, part).side_effect = KeyError("f" * 32)
    turns.replica.deliver(StepDown())
    turns.run()
    assert turns.replica.state is ReplicaState.FAILED
    assert "KeyError" in turns.replica.failure and "f" * 32 in turns.replica.failure
    turns.replica.deliver(StepDown())
    assert turns.run() == [], "half a step leaves a core that is not stepped again"
    turns.replica._ports.observer.replica_failed.assert_called_once()
