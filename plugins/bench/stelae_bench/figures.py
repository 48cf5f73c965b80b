"""Statistics of rounds: median, minimum, maximum, and percentiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Spread:
    """One value over all rounds: the median, the minimum (``low``) and the maximum (``high``)."""

    median: float
    low: float
    high: float

    def fields(self, name: str) -> dict[str, float]:
        """Return its fields in a document: ``name``, ``name_min``, ``name_max``."""
        return {name: _rounded(self.median), f"{name}_min": _rounded(self.low), f"{name}_max": _rounded(self.high)}


def spread(values: Sequence[float]) -> Spread:
    """Summarize the values of at least one round."""
    return Spread(median(values), min(values), max(values))


def percentile(ascending: Sequence[float], share: float) -> float:
    """Return the smallest value that is not exceeded by at least ``share`` (0 to 1) of all values.

    The result is one of the values, never a mean of two.

    Args:
        ascending: the values, sorted, not empty.
        share: the share.
    """
    return ascending[max(0, math.ceil(share * len(ascending)) - 1)]


def _rounded(value: float) -> float:
    """Round to four significant digits. More would be noise."""
    if value == 0 or not math.isfinite(value):
        return value
    digits = 3 - math.floor(math.log10(abs(value)))
    return round(value, max(0, digits))
