"""Which stores a run has, and how small their files are: drawn from the seed, on a stream of its own."""

from __future__ import annotations

import random
from dataclasses import dataclass

from stelae.sim.draw import chance, pick, stream

NODES = 3
STORES = ("memory", "columnar")
"""Engines that keep the rows; those without files, which are fast, are in more runs."""

ALL_IN_MEMORY = 0.6
"""Share of the runs in which no store has files."""

ALL_ALIKE = 0.5
"""Of the others the share in which all have; in the rest each node draws its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreProfile:
    """Figures of the stores of one run.

    Attributes:
        engines: name of each node's store engine.
        flush_bytes: what a store holds in memory before it is flushed; small, so that logs are collected too.
        flush_interval_ms: how long rows wait for a flush at most.
        memory_bytes_max: what a store may hold before writers are pushed back.
        history_retention_s: how long reads in the past stay possible.
        row_group_rows, fresh_blocks_min, compact_rows: sizes at which a store cuts and merges its files.
    """

    engines: tuple[str, ...]
    flush_bytes: int
    flush_interval_ms: int
    memory_bytes_max: int
    history_retention_s: int
    row_group_rows: int
    fresh_blocks_min: int
    compact_rows: int


def draw_store_profile(seed: int) -> StoreProfile:
    """Return the stores of a seed."""
    rng = stream(seed, "store")
    return StoreProfile(
        engines=_draw_engines(rng),
        flush_bytes=pick(rng, (6_000, 12_000, 24_000)),
        row_group_rows=pick(rng, (8, 16, 64)),
        fresh_blocks_min=pick(rng, (1, 2, 3)),
        compact_rows=pick(rng, (24, 96)),
        memory_bytes_max=pick(rng, (9_000, 30_000, 60_000)),
        flush_interval_ms=pick(rng, (1_500, 5_000, 20_000)),
        history_retention_s=pick(rng, (1, 2, 6)),
    )


def _draw_engines(rng: random.Random) -> tuple[str, ...]:
    memory, columnar = STORES
    if chance(rng, ALL_IN_MEMORY):
        return (memory,) * NODES
    if chance(rng, ALL_ALIKE):
        return (columnar,) * NODES
    return tuple(pick(rng, STORES) for _ in range(NODES))
