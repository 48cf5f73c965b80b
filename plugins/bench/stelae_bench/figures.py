"""Figures of rounds: the median, with the smallest and the largest beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Spread:
    """One figure over all rounds."""

    median: float
    low: float
    high: float

    def fields(self, name: str) -> dict[str, float]:
        """Return it as it stands in a document: ``name``, ``name_min``, ``name_max``."""
        return {name: _rounded(self.median), f"{name}_min": _rounded(self.low), f"{name}_max": _rounded(self.high)}


def spread(values: Sequence[float]) -> Spread:
    """Summarize the rounds; there must be one at least."""
    return Spread(median(values), min(values), max(values))


def percentile(ascending: Sequence[float], share: float) -> float:
    """Return the smallest value that at least ``share`` (0 to 1) of all do not exceed.

    Args:
        ascending: sorted, not empty. What is returned is one of them, never a mean of two.
    """
    return ascending[max(0, math.ceil(share * len(ascending)) - 1)]


def _rounded(value: float) -> float:
    """Four significant digits: more would be noise."""
    if value == 0 or not math.isfinite(value):
        return value
    digits = 3 - math.floor(math.log10(abs(value)))
    return round(value, max(0, digits))
