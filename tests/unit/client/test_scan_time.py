"""Which replica may serve a snapshot: any that has applied beyond it, else a leader that has led up to it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from stelae.host.hybrid_clock import ClockSettings, timestamp
from stelae.host.replica_state import ReplicaState
from stelae.protocol.tablet_messages import ScanRequest
from stelae.server.tserver.scan_time import CONFIRMATIONS_MAX, confirm_as_leader, settled
from stelae.spi.errors import CallerError, ClockError, NotLeader, StelaeError, Unavailable
from stelae.spi.ids import OpId, TabletId
from stelae.spi.scan import ScanSpec


class Replica:
    """As much of a replica as a read sees: what is applied, what is in the log, and who confirms."""

    def __init__(self, *, applied: int, timestamp: int, last: int) -> None:
        self.state = ReplicaState.RUNNING
        self.applier = SimpleNamespace(applied=OpId(1, applied), timestamp=timestamp)
        self.last = last
        self.core = SimpleNamespace(status=lambda: SimpleNamespace(last=OpId(1, self.last)))
        self.waiting: list[Callable[[int | StelaeError], None]] = []
        self.by_lease: list[bool] = []

    def read_index(self, done: Callable[[int | StelaeError], None], *, by_lease: bool = True) -> None:
        self.waiting.append(done)
        self.by_lease.append(by_lease)

    def confirm(self, result: int | StelaeError = 0) -> None:
        self.waiting.pop(0)(result)


def asked(**fields: Any) -> ScanRequest:
    return ScanRequest(TabletId("t"), ScanSpec(), **fields)


def any_replica(**fields: Any) -> Any:
    return Replica(**{"applied": 5, "timestamp": 100, "last": 5, **fields})


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"at": 99}, 99),
        ({"at": 100}, 100),
        ({"at": 101}, None),
        ({"at_least": 100}, 100),
        ({"at_least": 0}, 100),
        ({"at_least": 101}, None),
        ({}, None),
        ({"at": 101, "at_least": 1}, None),
    ],
)
def test_a_replica_serves_what_it_has_applied_beyond_without_asking_anybody(fields: Any, expected: Any) -> None:
    assert settled(asked(**fields), any_replica()) == expected


def test_a_replica_that_has_applied_nothing_since_it_started_chooses_no_time() -> None:
    """Its store may hold rows, whose time it does not know: at time 0 it would return none of them."""
    assert settled(asked(at_least=0), any_replica(timestamp=0)) is None


@pytest.mark.parametrize("state", [ReplicaState.FAILED, ReplicaState.STOPPING])
def test_a_replica_that_serves_nobody_serves_no_snapshot(state: ReplicaState) -> None:
    replica = any_replica()
    replica.state = state
    assert settled(asked(at=1), replica) is None


def leading(now: int, replica: Any, at: int, *, failing: bool = False) -> list[int | StelaeError]:
    """Ask a leader to lead up to a time; the list gets what it says in the end."""
    said: list[int | StelaeError] = []

    def read() -> int:
        if failing:
            raise ClockError("the clock's ceiling cannot be raised")
        return now

    node: Any = SimpleNamespace(time=SimpleNamespace(now=read), config=SimpleNamespace(clock=ClockSettings()))
    confirm_as_leader(node, replica, at, said.append)
    return said


def test_a_leader_serves_a_time_above_its_last_entry_once_a_majority_confirms_it() -> None:
    replica = any_replica()
    said = leading(timestamp(2000), replica, timestamp(1000))
    assert said == []
    replica.confirm()
    assert said == [timestamp(1000)]


def test_a_leader_waits_for_the_entries_that_its_log_held_when_it_took_the_time() -> None:
    """One of them may have a time below the snapshot: without it two reads of one snapshot would differ."""
    replica = any_replica(applied=5, last=7)
    said = leading(timestamp(2000), replica, timestamp(1000))
    replica.last = 20  # Later entries have later times and need not be waited for.
    replica.confirm()
    replica.applier.applied = OpId(1, 6)
    replica.confirm()
    assert said == []
    replica.applier.applied = OpId(1, 7)
    replica.confirm()
    assert said == [timestamp(1000)] and not replica.waiting
    assert replica.by_lease == [False, False, False], "the majority must see the leader's clock"


def test_a_leader_that_was_deposed_meanwhile_serves_nothing() -> None:
    replica = any_replica(applied=5, last=7)
    said = leading(timestamp(2000), replica, timestamp(1000))
    replica.confirm()
    replica.confirm(NotLeader("another"))
    assert isinstance(said[0], NotLeader) and not replica.waiting


def test_waiting_for_entries_has_an_end() -> None:
    replica = any_replica(applied=5, last=7)
    said = leading(timestamp(2000), replica, timestamp(1000))
    for _ in range(CONFIRMATIONS_MAX):
        replica.confirm()
    assert isinstance(said[0], Unavailable) and not replica.waiting


def test_a_time_that_has_not_come_is_not_served() -> None:
    """An entry that is still to come could be below it."""
    replica = any_replica()
    (soon,) = leading(timestamp(1000_000), replica, timestamp(1000_000) + 1)
    assert isinstance(soon, Unavailable)
    (far,) = leading(timestamp(1000_000), replica, timestamp(60_000_000))
    assert isinstance(far, CallerError) and "59000 ms ahead" in str(far)
    assert not replica.waiting


def test_a_clock_that_stands_still_serves_no_time() -> None:
    (said,) = leading(0, any_replica(), 101, failing=True)
    assert isinstance(said, Unavailable)
