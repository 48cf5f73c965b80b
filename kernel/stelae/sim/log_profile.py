"""The log engine of each node of a run, drawn from a stream of its own."""

from __future__ import annotations

from stelae.sim.draw import chance, pick, stream

LOGS = ("segmented", "shared")
"""Engines that access their files through ``Files``, and so can run on the virtual disk."""

ALL_DEFAULT = 0.7
"""Share of the runs in which all nodes have the default engine. In the others each node draws its engine."""


def draw_logs(seed: int, nodes: int) -> tuple[str, ...]:
    """Return the name of each node's log engine."""
    rng = stream(seed, "log")
    default, *_ = LOGS
    if chance(rng, ALL_DEFAULT):
        return (default,) * nodes
    return tuple(pick(rng, LOGS) for _ in range(nodes))
