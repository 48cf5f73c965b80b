"""When a replica steps its core: once per turn, and for nothing that can wait."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import MagicMock

from stelae.host.replica import Replica
from stelae.spi.consensus import Applied, PeerAlive, Persisted, StepDown, Tick
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
        turns = MagicMock()
        turns.now_us.return_value = NOW_US
        turns.defer.side_effect = self._due.append
        ports = MagicMock(turns=turns)
        ports.heartbeats.peers_alive.return_value = []
        self.replica = Replica(log=LOG, core=self.core, vote_kinds=frozenset(), ports=ports)
        writes = MagicMock()
        writes.take_proposals.return_value = None
        self.replica.wire(MagicMock(), MagicMock(applied=LAST), writes, MagicMock(), MagicMock())

    def run(self) -> list[list[object]]:
        """Run the turns that are due; return what each stepped."""
        self.core.step.reset_mock()
        while self._due:
            self._due.pop(0)()
        return [call.args[0] for call in self.core.step.call_args_list]


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
