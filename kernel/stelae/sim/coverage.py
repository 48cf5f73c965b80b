"""What a set of runs has exercised, counted by name.

Names are ``area.thing`` (``fault.crash``, ``role.FOLLOWER>CANDIDATE``, ``ready.append``). A test
holds floors over a hundred seeds: a fault kind that never bites is a check that cannot fail.
"""

from __future__ import annotations

from collections import Counter


class Coverage:
    """Counters of one run; ``merge`` adds up those of many."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def hit(self, name: str) -> None:
        """Count one occurrence of ``name``."""
        self.counts[name] += 1

    def merge(self, other: Coverage) -> None:
        """Add another run's counts."""
        self.counts.update(other.counts)

    def as_dict(self) -> dict[str, int]:
        """Counts in order of their names."""
        return dict(sorted(self.counts.items()))
