"""Counts what a set of runs has exercised, by name.

A name has the form ``area.thing`` (``fault.crash``, ``role.FOLLOWER>CANDIDATE``, ``ready.append``). A
test requires a minimum for each name over a hundred seeds, because a fault kind that never has an
effect is a check that cannot fail.
"""

from __future__ import annotations

from collections import Counter


class Coverage:
    """The counters of one run."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def hit(self, name: str) -> None:
        """Count one occurrence of ``name``."""
        self.counts[name] += 1

    def as_dict(self) -> dict[str, int]:
        """Return the counts, ordered by name."""
        return dict(sorted(self.counts.items()))
