"""Drawn histories: a copy is interrupted again and again by faults and crashes, and is resumed until it is complete."""

from __future__ import annotations

import hashlib
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from stelae.spi.copy import SourceRequest
from stelae.spi.copy_plan import Chunk, Complete
from stelae.spi.ids import NodeId
from stelae.testing.conformance.copy_harness import CHUNK_BYTES, FOLLOWER, LEADER, CopyHarness, data_of
from stelae.testing.copy_world import CopyWorld, MemoryContent, MemorySink, flipped

RUNS_MAX = 60  #: The number of runs with faults; the last one has none.


class CopyHistoryChecks:
    """Whatever happens on the way, also a change of the source, in the end the items are those of the snapshot."""

    def test_interrupted_copies_end_with_exactly_the_items_of_the_snapshot(self, harness: CopyHarness) -> None:
        draw_histories(harness)


def draw_histories(harness: CopyHarness) -> None:
    """Draw histories and check each."""

    @settings(max_examples=60, deadline=None)
    @given(st.randoms(use_true_random=False))
    def history(rng: random.Random) -> None:
        check_history(harness, rng)

    history()


def check_history(harness: CopyHarness, rng: random.Random) -> None:
    """Run one history: its faults are drawn from ``rng``."""
    sizes = [rng.randrange(0, 12 * CHUNK_BYTES) for _ in range(rng.randrange(1, 5))]
    items = {f"log/{number}-{number}": data_of(size, number) for number, size in enumerate(sizes, 21)}
    world = harness.world()
    nodes = [LEADER, FOLLOWER][: rng.randrange(1, 3)]
    sources = {node: harness.source(world) for node in nodes}
    sink: MemorySink | None = None
    for run in range(RUNS_MAX + 1):
        node = rng.choice(nodes)
        offer = world.offer(node, sources[node], MemoryContent(items))
        sink = sink or MemorySink(offer.snapshot.items)
        _draw_faults(world, rng, none=run == RUNS_MAX)
        outcome = world.run(world.plan(offer), sink)
        for name, data in sink.durable.items():
            assert data == items[name], f"{name} is durable with wrong bytes"
        if isinstance(outcome, Complete):
            assert sink.durable == items
            return
        assert hasattr(outcome, "reason") or hasattr(outcome, "detail")
        _crash(sink, rng)
        if rng.random() < 0.3:
            sources[rng.choice(nodes)].end_all()
    raise AssertionError(f"not complete after {RUNS_MAX} runs: {outcome}")


def _draw_faults(world: CopyWorld, rng: random.Random, *, none: bool) -> None:
    worst = 0.0 if none else rng.choice([0.0, 0.02, 0.2])
    end_us = world.clock.now_us + (1 << 50 if none else rng.randrange(1, 200_000))
    damaged = none or rng.random() < 0.5

    def damage(_node: NodeId, _request: SourceRequest, chunk: Chunk) -> Chunk:
        return flipped(chunk, rng.randrange(len(chunk.data))) if not damaged and rng.random() < worst else chunk

    world.faults.damage = damage
    world.faults.lost = lambda node, request: rng.random() < worst
    world.faults.delay_us = lambda node, request: rng.randrange(20_000) if worst else 0
    world.control.cancelled_when = lambda: world.clock.now_us >= end_us


def _crash(sink: MemorySink, rng: random.Random) -> None:
    """Lose or damage what is not durable, as a crash of the target may."""
    for name in list(sink.parts):
        part = sink.parts[name]
        fate = rng.random()
        if fate < 0.2:
            del sink.parts[name]
        elif fate < 0.4:
            del part[rng.randrange(len(part) + 1) :]
        elif fate < 0.6 and part:
            part[rng.randrange(len(part))] ^= 1
        elif fate < 0.7:
            part += hashlib.sha256(bytes(part)).digest()
