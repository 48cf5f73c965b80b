"""The plan of a run: which fault comes when, drawn from a seed. Pure: the same seed and kinds give the same plan.

Every kind comes once before any of them comes again, so that a short run has many kinds. There is one fault at a time
and a calm phase after it: a run in which nothing is ever acknowledged would show nothing. Most calm phases begin when
every tablet has a leader again. The others begin at once, so that some faults hit a cluster that still recovers.

A plan does not say which node leads. So the same plan may hit other nodes in another run."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final, TypeVar

from stelae.sim.draw import below, chance, stream

FAULT_S: Final = (0.5, 4.0)
"""Shortest and longest time of a fault, in seconds."""

CALM_S: Final = (0.8, 2.5)
"""Shortest and longest time without a fault after it."""

RECOVERS_SHARE: Final = 0.7
"""The share of the faults after which every tablet must have a leader again before the calm phase begins."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """One fault.

    Attributes:
        kind: name of the kind.
        fault_s: how long it lasts, in seconds.
        recovers: whether every tablet must have a leader again before the calm phase begins.
        calm_s: how long nothing is broken after it.
        rng: draws what else the fault needs, such as the node. Its draws do not change the rest of the plan.
    """

    kind: str
    fault_s: float
    recovers: bool
    calm_s: float
    rng: random.Random


def planned_faults(seed: int, kinds: Sequence[str]) -> Iterator[PlannedFault]:
    """Yield the faults of a seed without end. ``kinds`` is not empty; its order does not matter."""
    rng, numbers = stream(seed, "chaos/plan"), count()
    while True:
        for kind in shuffled(rng, sorted(kinds)):
            yield PlannedFault(
                kind,
                fault_s=_length_s(rng, FAULT_S),
                recovers=chance(rng, RECOVERS_SHARE),
                calm_s=_length_s(rng, CALM_S),
                rng=stream(seed, f"chaos/fault {next(numbers)}"),
            )


def shuffled(rng: random.Random, things: Sequence[T]) -> list[T]:
    """Return things in an order that is drawn."""
    left = list(things)
    return [left.pop(below(rng, len(left))) for _ in things]


def _length_s(rng: random.Random, span: tuple[float, float]) -> float:
    return span[0] + rng.random() * (span[1] - span[0])
