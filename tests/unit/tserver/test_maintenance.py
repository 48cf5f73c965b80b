"""Maintenance of a node's stores: which replica is flushed when, and how its past is let go."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

from stelae.host.hybrid_clock import timestamp
from stelae.host.replica_state import ReplicaState
from stelae.host.settings import MaintenanceSettings
from stelae.server.tserver.maintenance import FLOOR_STEPS, TICK_US, Maintenance
from stelae.spi.ids import TabletId

SETTINGS = MaintenanceSettings(flush_interval_ms=3_000, memory_bytes=1_000_000, history_retention_s=64)
STEP_US = SETTINGS.history_retention_s * 1_000_000 // FLOOR_STEPS


class World:
    """A node with two replicas, whose clock a test moves."""

    def __init__(self) -> None:
        self.now_us = 0
        self.replicas = {TabletId("a"): replica(), TabletId("b"): replica()}
        self.a, self.b = self.replicas.values()
        self.turns = MagicMock()
        self.turns.now_us.side_effect = lambda: self.now_us
        self.time = SimpleNamespace(last=0)
        node: Any = SimpleNamespace(
            config=SimpleNamespace(maintenance=SETTINGS), turns=self.turns, time=self.time, replicas=self.replicas
        )
        self.maintenance = Maintenance(node)
        self.maintenance.start()

    def ticks(self, count: int = 1) -> None:
        for _ in range(count):
            self.now_us += TICK_US
            self.time.last = timestamp(self.now_us)
            self.turns.call_at.call_args.args[1]()


def replica() -> Any:
    made = MagicMock(state=ReplicaState.RUNNING)
    made.flusher.unflushed_bytes = 0
    made.applier.timestamp = timestamp(1 << 50)
    made.flusher.flush.return_value = made.flusher.compact.return_value = True
    return made


def holds(found: Any, unflushed_bytes: int) -> None:
    found.flusher.unflushed_bytes = unflushed_bytes


def test_rows_are_flushed_when_they_have_waited_for_the_interval_and_not_before() -> None:
    world = World()
    holds(world.a, 10)
    world.ticks(3)
    world.a.flusher.flush.assert_not_called()
    world.ticks()
    world.a.flusher.flush.assert_called_once()
    world.b.flusher.flush.assert_not_called()


def test_a_flush_that_could_not_begin_is_tried_at_the_next_tick() -> None:
    world = World()
    holds(world.a, 10)
    world.a.flusher.flush.return_value = False
    world.ticks(6)
    assert world.a.flusher.flush.call_count == 3


def test_rows_that_were_flushed_meanwhile_begin_to_wait_anew() -> None:
    world = World()
    holds(world.a, 10)
    world.ticks(2)
    holds(world.a, 0)
    world.ticks()
    holds(world.a, 10)
    world.ticks(3)
    world.a.flusher.flush.assert_not_called()


def test_the_floor_follows_the_clock_in_steps_at_the_distance_of_the_retention() -> None:
    world = World()
    world.ticks(64 + 1)
    world.a.flusher.compact.assert_not_called()
    world.ticks()
    world.a.flusher.compact.assert_called_once_with(timestamp(2 * STEP_US))
    world.ticks(4)
    assert [call.args[0] for call in world.a.flusher.compact.call_args_list] == [
        timestamp(n * STEP_US) for n in (2, 4, 6)
    ]


def test_a_replica_that_was_copied_again_gets_its_floor_at_the_next_tick() -> None:
    world = World()
    world.ticks(66)
    world.a.flusher.compact.assert_called_once()
    world.replicas[TabletId("a")] = replaced = replica()
    world.ticks()
    replaced.flusher.compact.assert_called_once()
    assert len(world.maintenance._marks) == len(world.replicas)


def test_the_floor_never_passes_what_is_applied() -> None:
    world = World()
    world.a.applier.timestamp = timestamp(5 * STEP_US)
    world.ticks(100)
    assert max(call.args[0] for call in world.a.flusher.compact.call_args_list) <= timestamp(5 * STEP_US)


def test_a_compaction_that_could_not_begin_is_tried_at_the_next_tick() -> None:
    world = World()
    world.a.flusher.compact.return_value = False
    world.ticks(70)
    assert world.a.flusher.compact.call_count == 5


def test_logs_are_collected_as_peers_catch_up_also_when_nothing_is_written() -> None:
    world = World()
    world.ticks(3)
    assert world.a.flusher.collect.call_count == 3


def test_a_failed_replica_is_left_alone() -> None:
    world = World()
    holds(world.a, 2_000_000)
    world.a.state = ReplicaState.FAILED
    world.ticks(100)
    world.a.flusher.flush.assert_not_called()
    world.a.flusher.compact.assert_not_called()


def test_after_the_stop_nobody_is_looked_at() -> None:
    world = World()
    world.maintenance.stop()
    world.turns.call_at.return_value.cancel.assert_called_once()


def floors_of(found: Any) -> list[int]:
    return [call.args[0] for call in found.flusher.compact.call_args_list]


def test_the_floor_passes_what_an_idle_replica_showed_only_after_the_retention() -> None:
    """A scan that began a moment ago reads at the time of the last entry. The next write refused its next page."""
    world = World()
    idle_since, written = timestamp(5_000_000), timestamp(200_000_000)
    world.a.applier.timestamp = idle_since
    world.ticks(200)
    world.a.applier.timestamp = written
    world.ticks(SETTINGS.history_retention_s - 1)
    assert max(floors_of(world.a)) <= idle_since
    world.ticks(2 * SETTINGS.history_retention_s)
    assert max(floors_of(world.a)) == written


def test_the_floor_of_a_busy_replica_follows_the_clock_as_closely_as_before() -> None:
    world = World()
    for second in range(1, 400):
        world.a.applier.timestamp = timestamp(second * TICK_US)
        world.ticks()
    wanted = timestamp((399 - SETTINGS.history_retention_s) * TICK_US)
    assert timestamp(-4 * STEP_US) <= max(floors_of(world.a)) - wanted <= 0
    assert len(world.maintenance._marks[world.a].times._times) <= FLOOR_STEPS + 2


def test_a_replica_without_older_known_entries_lets_its_past_go_by_the_clock() -> None:
    """After a restart nobody knows when it was idle. Its history must not grow until then."""
    world = World()
    world.ticks(100)
    world.replicas[TabletId("a")] = restarted = replica()
    restarted.applier.timestamp = timestamp(90_000_000)
    world.ticks()
    restarted.flusher.compact.assert_called_once_with(timestamp((101 - SETTINGS.history_retention_s) * TICK_US))
