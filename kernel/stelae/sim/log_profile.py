"""Which log engine each node of a run has: drawn from the seed, on a stream of its own."""

from __future__ import annotations

from stelae.sim.draw import chance, pick, stream
from stelae.sim.store_profile import NODES

LOGS = ("segmented", "shared")
"""Engines that keep their files through ``Files``, and so on the virtual disk."""

ALL_DEFAULT = 0.7
"""Share of the runs in which all nodes have the default; in the others each node draws its own."""


def draw_logs(seed: int) -> tuple[str, ...]:
    """Return the name of each node's log engine."""
    rng = stream(seed, "log")
    default, *_ = LOGS
    if chance(rng, ALL_DEFAULT):
        return (default,) * NODES
    return tuple(pick(rng, LOGS) for _ in range(NODES))
