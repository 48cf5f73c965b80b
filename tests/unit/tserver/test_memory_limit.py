"""The memory of all replicas of a node: the fullest are flushed, and writers wait when that is not enough."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from stelae.host.replica_state import ReplicaState
from stelae.server.tserver.memory_limit import CALM_US, SHORT_US, MemoryLimit

LIMIT = 1_000


class World:
    """A node with replicas that hold this many bytes each."""

    def __init__(self, *held: int) -> None:
        self.replicas = [replica(size) for size in held]
        self.turns = MagicMock()
        self.turns.now_us.return_value = 0
        node: Any = SimpleNamespace(
            config=SimpleNamespace(maintenance=SimpleNamespace(memory_bytes=LIMIT)),
            turns=self.turns,
            replicas={f"t{place}": one for place, one in enumerate(self.replicas)},
        )
        self.keeper = MemoryLimit(node)
        self.keeper.start()

    def look(self) -> int:
        """Let the keeper look; return when it wants to look again, in microseconds from now."""
        self.turns.call_at.call_args.args[1]()
        return int(self.turns.call_at.call_args.args[0])

    def flushed(self) -> list[int]:
        return [one.flusher.flush.call_count for one in self.replicas]

    def pushed_back(self) -> list[bool]:
        return [one.flusher.node_full for one in self.replicas]


def replica(held: int, state: ReplicaState = ReplicaState.RUNNING) -> Any:
    made = MagicMock(state=state)
    made.flusher.node_full = False
    made.flusher.flush.return_value = True
    made.applier.store.memory_bytes.return_value = held
    return made


def test_nothing_is_flushed_and_nobody_waits_within_the_limit() -> None:
    world = World(400, 600)
    world.look()
    assert world.flushed() == [0, 0] and world.pushed_back() == [False, False]


def test_above_the_limit_the_fullest_is_flushed_and_nobody_waits_yet() -> None:
    world = World(400, 700, 400)
    world.look()
    assert world.flushed() == [0, 1, 0] and world.pushed_back() == [False] * 3


def test_a_flush_that_is_under_way_makes_way_for_the_next_fullest() -> None:
    world = World(400, 700, 300)
    world.replicas[1].flusher.flush.return_value = False
    world.look()
    assert world.flushed() == [1, 1, 0], "one begins at a look"


def test_small_replicas_are_left_alone_while_a_large_one_is_being_flushed() -> None:
    world = World(100, 1_600, 200)
    world.replicas[1].flusher.flush.return_value = False
    world.look()
    assert world.flushed() == [0, 1, 1]


def test_it_goes_on_looking_after_a_store_that_raised() -> None:
    world = World(100)
    world.replicas[0].applier.store.memory_bytes.side_effect = OSError
    with pytest.raises(OSError):
        world.look()
    assert world.turns.call_at.call_count == 2


def test_writers_of_all_replicas_wait_while_much_more_is_held_than_may_be() -> None:
    world = World(700, 801)
    world.look()
    assert world.pushed_back() == [True, True] and world.flushed() == [0, 1]
    world.replicas[1].applier.store.memory_bytes.return_value = 0
    world.look()
    assert world.pushed_back() == [False, False]


@pytest.mark.parametrize(("held", "again_us"), [(500, CALM_US), (501, SHORT_US), (2_000, SHORT_US)])
def test_it_is_looked_at_more_often_when_it_becomes_short(held: int, again_us: int) -> None:
    assert World(held).look() == again_us


def test_a_failed_replica_counts_for_nothing() -> None:
    world = World(100)
    world.replicas.append(replica(5_000, ReplicaState.FAILED))
    world.look()
    assert world.flushed()[1] == 0
