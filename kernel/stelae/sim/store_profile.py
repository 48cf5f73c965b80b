"""The store engines of a run and the sizes of their files, drawn from a stream of their own."""

from __future__ import annotations

import random
from dataclasses import dataclass

from stelae.sim.draw import chance, pick, stream

STORES = ("memory", "columnar")
"""The store engines. The engine without files is faster, so more runs use it."""

ALL_IN_MEMORY = 0.6
"""Share of the runs in which all nodes use the store without files."""

ALL_ALIKE = 0.5
"""Share of the other runs in which all nodes use the store with files. In the rest each node draws its engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreProfile:
    """Parameters of the stores of one run.

    Attributes:
        engines: name of each node's store engine.
        flush_bytes: bytes in memory at which a store is flushed; small, so that logs are collected too.
        flush_interval_ms: longest time that rows wait for a flush.
        memory_bytes_max: bytes in memory at which writes are refused.
        history_retention_s: time for which reads in the past stay possible.
        row_group_rows, fresh_blocks_min, compact_rows: sizes at which a store splits and merges its files.
    """

    engines: tuple[str, ...]
    flush_bytes: int
    flush_interval_ms: int
    memory_bytes_max: int
    history_retention_s: int
    row_group_rows: int
    fresh_blocks_min: int
    compact_rows: int


def draw_store_profile(seed: int, nodes: int) -> StoreProfile:
    """Return the stores of a seed."""
    rng = stream(seed, "store")
    return StoreProfile(
        engines=_draw_engines(rng, nodes),
        flush_bytes=pick(rng, (6_000, 12_000, 24_000)),
        row_group_rows=pick(rng, (8, 16, 64)),
        fresh_blocks_min=pick(rng, (1, 2, 3)),
        compact_rows=pick(rng, (24, 96)),
        memory_bytes_max=pick(rng, (9_000, 30_000, 60_000)),
        flush_interval_ms=pick(rng, (1_500, 5_000, 20_000)),
        history_retention_s=pick(rng, (1, 2, 6)),
    )


def _draw_engines(rng: random.Random, nodes: int) -> tuple[str, ...]:
    memory, columnar = STORES
    if chance(rng, ALL_IN_MEMORY):
        return (memory,) * nodes
    if chance(rng, ALL_ALIKE):
        return (columnar,) * nodes
    return tuple(pick(rng, STORES) for _ in range(nodes))
