"""Which replicas stand otherwise than at the last look."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from stelae.host.replica_state import ReplicaState
from stelae.lifecycle.tablet_loader import TabletLoader
from stelae.protocol.master_heartbeats import CopyHold, ReportedDataState
from stelae.server.tserver.replica_changes import ReplicaChanges
from stelae.spi.consensus import Role
from stelae.spi.copy_plan import CopyProgress
from stelae.spi.ids import ZERO, OpId, TabletId
from stelae.spi.members import TabletConfig

T, U = TabletId("t"), TabletId("u")
CONFIG = TabletConfig(op_id=ZERO, members=())


def status(term: int) -> Any:
    return SimpleNamespace(role=Role.LEADER, serving=True, term=term, config=CONFIG, committed_config=CONFIG)


def replica(tablet_id: TabletId) -> Any:
    made = MagicMock(tablet_id=tablet_id, failure="", state=ReplicaState.RUNNING, status=status(1))
    made.applier.applied, made.applier.store.schema.version = OpId(1, 1), 1
    return made


class World:
    """A node with two replicas, and what its watch has found."""

    def __init__(self) -> None:
        self.stale: set[TabletId] = set()
        self.watch: Any = SimpleNamespace(size_bytes={}, unhealthy={}, take_changed=self._take)
        self.replicas = {T: replica(T), U: replica(U)}
        self.failed: dict[TabletId, str] = {}
        self.node: Any = SimpleNamespace(replicas=self.replicas, failed_tablets=self.failed, tablets=None)
        self.copies: dict[TabletId, Any] = {}
        self.lost: dict[TabletId, bool] = {}
        self.waiting: dict[TabletId, Any] = {}
        self.changes = ReplicaChanges(
            self.node, self.watch, lambda: self.copies, lambda: self.waiting, lambda: self.lost
        )
        assert [one.tablet_id for one in self.changes.take()] == [T, U]

    def _take(self) -> set[TabletId]:
        taken, self.stale = self.stale, set()
        return taken

    def told(self) -> list[tuple[TabletId, ReportedDataState]]:
        """What the next look tells; a second one has nothing to add."""
        found = [(one.tablet_id, one.data_state) for one in self.changes.take()]
        assert self.changes.take() == []
        return found


@pytest.fixture
def world() -> World:
    return World()


def test_a_replica_that_was_lost_without_a_trace_is_told_as_one_that_never_votes_again(world: World) -> None:
    lost = TabletId("lost")
    # At first it may be a member of the first config that has not begun.
    for surely, state in ((False, ReportedDataState.MISSING), (True, ReportedDataState.FAILED)):
        world.lost |= {lost: surely, T: True}  # Of T there is a replica.
        (told,) = world.changes.take()
        assert (told.tablet_id, told.data_state, told.op_id_lost) == (lost, state, surely)
    assert world.changes.take() == []
    world.lost.clear()
    assert world.told() == [(lost, ReportedDataState.DELETED)]


def test_of_a_replica_that_did_not_start_the_committed_config_is_told_if_it_is_known(world: World) -> None:
    source: Any = MagicMock(spec=TabletLoader, unknown_op_ids={U}, failed_configs={T: CONFIG})
    world.node.tablets = source
    world.replicas.clear()
    world.failed |= {T: "the log is gone", U: "the consensus metadata cannot be read"}
    told = {one.tablet_id: one for one in world.changes.take()}
    assert (told[T].data_state, told[T].config, told[T].op_id_lost) == (ReportedDataState.FAILED, CONFIG, False)
    assert (told[U].data_state, told[U].config, told[U].op_id_lost) == (ReportedDataState.FAILED, None, True)


def test_of_what_nothing_has_happened_to_nothing_is_asked(world: World) -> None:
    world.replicas[T].applier.store.schema.version = 2  # Behind the back of everybody: no entry was applied.
    assert world.told() == []


def test_another_status_is_told_and_one_that_says_the_same_is_not(world: World) -> None:
    world.replicas[T].status = status(2)
    assert world.told() == [(T, ReportedDataState.READY)]
    world.replicas[T].status = status(2)
    assert world.told() == []


def test_a_schema_is_told_once_it_is_applied(world: World) -> None:
    world.replicas[T].applier.store.schema.version = 2
    world.replicas[T].applier.applied = OpId(1, 2)
    assert world.told() == [(T, ReportedDataState.READY)]


def test_a_size_is_told_when_the_watch_has_found_another(world: World) -> None:
    world.watch.size_bytes[U] = 1 << 20
    assert world.told() == []
    world.stale = {U}
    assert world.told() == [(U, ReportedDataState.READY)]


def test_what_fails_and_comes_back_is_told_both_times(world: World) -> None:
    world.failed[T] = "disk"
    assert world.told() == [(T, ReportedDataState.FAILED)]
    del world.failed[T]
    assert world.told() == [(T, ReportedDataState.READY)]
    world.replicas[T].failure, world.replicas[T].state = "disk", ReplicaState.FAILED
    assert world.told() == [(T, ReportedDataState.FAILED)]


def test_what_is_gone_is_told_once_and_what_comes_in_its_place_is_new(world: World) -> None:
    del world.replicas[T]
    assert world.told() == [(T, ReportedDataState.DELETED)]
    world.replicas[T] = replica(T)
    assert world.told() == [(T, ReportedDataState.READY)]
    world.replicas[U] = replica(U)
    assert world.told() == [], "it says what the one before it said"


def copying(done: int) -> Any:
    progress = CopyProgress(bytes_done=done, bytes_total=100, bytes_fetched=done, eta_ms=None)
    return SimpleNamespace(control=SimpleNamespace(latest=progress, paused=False))


def test_a_copy_that_waits_is_reported_as_coming_until_it_begins_or_nobody_asks_for_it(world: World) -> None:
    tablet = TabletId("v")
    for paused, hold in ((False, CopyHold.WAITS), (True, CopyHold.PAUSED)):
        world.waiting[tablet] = SimpleNamespace(paused=paused)
        (found,) = world.changes.take()
        assert (found.data_state, found.copy_hold) == (ReportedDataState.COPYING, hold)
        assert world.changes.take() == []
    world.copies[tablet] = copying(0)
    (found,) = world.changes.take()
    assert (found.data_state, found.copy_hold) == (ReportedDataState.COPYING, CopyHold.NONE)
    world.copies[tablet].control.paused = True
    (found,) = world.changes.take()
    assert found.copy_hold is CopyHold.PAUSED
    world.copies.clear()
    world.waiting[tablet] = SimpleNamespace(paused=False)
    (found,) = world.changes.take()
    assert found.copy_hold is CopyHold.WAITS
    world.waiting.clear()
    assert world.told() == [(tablet, ReportedDataState.DELETED)]


def test_a_copy_that_waits_says_nothing_of_a_replica_that_is_there(world: World) -> None:
    world.waiting[T] = SimpleNamespace(paused=False)
    assert world.told() == []


def test_a_copy_is_reported_with_its_progress_until_it_is_a_replica_or_gone(world: World) -> None:
    tablet = TabletId("v")
    for done in (0, 40):
        world.copies[tablet] = copying(done)
        (found,) = world.changes.take()
        assert (found.data_state, found.copied_bytes, found.copy_bytes) == (ReportedDataState.COPYING, done, 100)
    assert world.told() == []
    del world.copies[tablet]
    world.replicas[tablet] = replica(tablet)
    assert world.told() == [(tablet, ReportedDataState.READY)]
    world.copies[tablet] = copying(1)
    assert world.told() == [], "the replica that lags is still there"
    del world.replicas[tablet]
    assert world.told() == [(tablet, ReportedDataState.COPYING)]
    del world.copies[tablet]
    assert world.told() == [(tablet, ReportedDataState.DELETED)]


def test_a_damaged_replica_is_told_as_being_copied_while_its_copy_is_fetched_and_as_failed_if_that_ends(
    world: World,
) -> None:
    """Otherwise the masters would replace it elsewhere at the same time."""
    world.replicas[T].failure, world.replicas[T].state = "damage found", ReplicaState.FAILED
    world.stale.add(T)
    world.failed[U] = "damage found"
    del world.replicas[U]
    assert world.told() == [(T, ReportedDataState.FAILED), (U, ReportedDataState.FAILED)]
    world.copies |= {T: copying(1), U: copying(1)}
    assert world.told() == [(T, ReportedDataState.COPYING), (U, ReportedDataState.COPYING)]
    world.copies.clear()
    assert world.told() == [(T, ReportedDataState.FAILED), (U, ReportedDataState.FAILED)]


def test_a_leader_that_has_failed_is_not_told_as_one(world: World) -> None:
    """Masters sent their changes of the tablet to it as long as they knew of no later leader."""
    failed = world.replicas[T]
    failed.failure, failed.state = "the log cannot be trusted", ReplicaState.FAILED
    (told,) = world.changes.take()
    assert (told.data_state, told.role) == (ReportedDataState.FAILED, Role.FOLLOWER)
