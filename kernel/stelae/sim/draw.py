"""Random draws from a seed: named streams, and the few distributions that the simulator needs.

Every consumer has its own stream. So a change in how one part draws does not change the others, and
removing a fault from a plan does not change the network. Only ``random()`` and ``getrandbits()`` of
``random.Random`` are used, because its other methods differ between Python versions."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def stream(seed: int, name: str) -> random.Random:
    """Return the stream ``name`` of ``seed``; the same pair always gives the same draws."""
    return random.Random(f"stelae/{seed}/{name}")


def chance(rng: random.Random, probability: float) -> bool:
    """Return true with ``probability`` (0.0 to 1.0)."""
    return rng.random() < probability


def below(rng: random.Random, count: int) -> int:
    """Return an integer from 0 up to, not including, ``count`` (at least 1)."""
    return int(rng.random() * count)


def between(rng: random.Random, low: int, high: int) -> int:
    """Return an integer from ``low`` to ``high``, both included."""
    return low + int(rng.random() * (high - low + 1))


def skewed(rng: random.Random, low: int, high: int) -> int:
    """Return an integer from ``low`` to ``high``, mostly near ``low``: for delays and sizes with a long tail."""
    share = rng.random()
    return low + int(share * share * share * (high - low + 1))


def pick(rng: random.Random, choices: Sequence[T]) -> T:
    """Return one of ``choices``, which is not empty."""
    return choices[int(rng.random() * len(choices))]
