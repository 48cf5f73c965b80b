"""Compares the rows of a table with those of the source, while they are read."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from stelae.local.demo_source import DemoSource

EXAMPLES_MAX = 3


class RowComparison:
    """Takes rows in any order. Each row of the source must come once.

    Args:
        source: the rows that were written.

    Attributes:
        read: number of rows that were taken.
        wrong: number of rows that the source does not have, or that came before.
        examples: a few wrong rows, for people.
    """

    def __init__(self, source: DemoSource) -> None:
        names = [column["name"] for column in source.columns]
        self._positions = [names.index(name) for name in source.key]
        self._remaining = dict(zip(source.keys(), source.rows, strict=True))
        self.read = self.wrong = 0
        self.examples: list[str] = []

    def take(self, rows: Iterator[tuple[Any, ...]], most: int | None = None) -> None:
        """Take the next rows: ``most`` of them, or all."""
        for row in islice(rows, most):
            self.read += 1
            expected = self._remaining.pop(tuple(row[position] for position in self._positions), None)
            if row != expected:
                self.wrong += 1
                if self.wrong <= EXAMPLES_MAX:
                    self.examples.append(f"read {row!r} where the source has {expected!r}")

    @property
    def missing(self) -> int:
        """The number of rows of the source that have not come."""
        return len(self._remaining)

    def all_examples(self) -> list[str]:
        """Return a few wrong rows, and a few that are missing."""
        return [*self.examples, *(f"missing: {row!r}" for row in islice(self._remaining.values(), EXAMPLES_MAX))]
