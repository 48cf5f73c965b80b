"""Whether a node that was started again has caught up, while the load goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stelae.local import replica_status
from stelae.local.node_process import NodeProcess
from stelae.protocol.tablet_messages import ReplicaReport
from stelae.spi.errors import Unavailable
from stelae.spi.ids import NodeId, OpId, TabletId

T = TabletId("t")
A, B = NodeId("a" * 32), NodeId("b" * 32)


class Starved:
    """A machine on which each look takes seconds, and a leader, A, whose B starts late and is behind for ever.

    Args:
        answers_at_s: when B first answers.
        matched: up to where A knows B to have its log, by what A has committed before and by now.
    """

    def __init__(self, answers_at_s: float, matched: Callable[[int, int], int]) -> None:
        self.now_s = 0.0
        self.commit, self._matched, self._answers_at_s = 1000, matched, answers_at_s

    def monotonic(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += 2.0

    async def status(self, node_id: NodeId, *, deadline_ms: int) -> list[ReplicaReport]:
        if node_id == B:
            if self.now_s < self._answers_at_s:
                raise Unavailable("nobody is there yet")
            return []
        before, self.commit = self.commit, self.commit + 500
        matched = self._matched(before, self.commit) if self.now_s >= self._answers_at_s else -1
        known: Any = {"match_indexes": ((B, matched),), "commit": self.commit}
        return [
            ReplicaReport(
                tablet_id=T, node_id=A, state="RUNNING", role="LEADER", term=1, leader=A,
                last=OpId(1, self.commit), durable_index=self.commit, applied=self.commit, **known,
            )
        ]  # fmt: skip


def caught_up(world: Starved, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for B, by the clock of that machine."""
    monkeypatch.setattr(replica_status, "time", world)
    monkeypatch.setattr(replica_status, "asyncio", SimpleNamespace(sleep=world.sleep, gather=asyncio.gather))
    nodes = [NodeProcess(node[0], node, "127.0.0.1:1", Path("nowhere")) for node in (A, B)]
    client: Any = world
    asyncio.run(replica_status.wait_until_caught_up(client, nodes, [T], nodes[1]))


def test_what_is_committed_while_it_catches_up_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the demo ended with "did not catch up within 30 s": its leader was always some rows ahead."""
    world = Starved(0, lambda before, commit: before)
    caught_up(world, monkeypatch)
    assert world.now_s < 10


def test_the_time_that_a_process_takes_to_start_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Starved(replica_status.HEAL_TIMEOUT_S + 10, lambda before, commit: commit)
    caught_up(world, monkeypatch)


@pytest.mark.parametrize(
    ("answers_at_s", "words"),
    [
        (0.0, r"did not catch up within 30 s of its first answer \(tablet t: .* is at index 7, and must reach 1500\)"),
        (1e9, "did not answer within 60 s of its start"),
    ],
)
def test_one_that_never_does_is_told_with_where_it_is(
    answers_at_s: float, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Unavailable, match=words):
        caught_up(Starved(answers_at_s, lambda before, commit: 7), monkeypatch)
