"""What writes bring: rows of few keys, so that operations meet, each with a value that names it."""

from __future__ import annotations

import random
from typing import Final

from stelae.sim.coverage import Coverage
from stelae.sim.draw import below, between, chance, skewed
from stelae.sim.history import ClientAction, ClientOperation, HistoryRow
from stelae.sim.profile import Profile
from stelae.sim.table import KEY, VALUE

ROWS_MAX: Final = 3
ONE_ROW: Final = 0.5
"""Share of the writes that have one row; the others have up to ``ROWS_MAX``, or none."""

UNFIT: Final = 0.1
"""Share of the writes with a row that does not fit the schema."""

PARTIAL: Final = 0.4
"""Share of the writes that bring some of the columns only, where the schema has more than the first one had."""


class Rows:
    """Draws the rows of one client, whose ``name`` begins every value."""

    def __init__(self, name: str, rng: random.Random, profile: Profile, coverage: Coverage) -> None:
        self._name = name
        self._rng = rng
        self._profile = profile
        self._coverage = coverage
        self._values = 0

    def of_write(self) -> tuple[HistoryRow, ...]:
        """One row, or several, or none; at times one of them is unfit."""
        rng = self._rng
        rows = [self.one() for _ in range(1 if chance(rng, ONE_ROW) else between(rng, 0, ROWS_MAX))]
        self._coverage.hit(f"rows.{len(rows)}")
        if rows and chance(rng, UNFIT):
            place = below(rng, len(rows))
            rows[place] = rows[place]._replace(unfit=True)
            self._coverage.hit("rows.unfit")
        return tuple(rows)

    def columns_of(self, operation: ClientOperation) -> tuple[int, ...] | None:
        """Draw which columns a write brings: the key and the value, and perhaps not all others."""
        others = [column_id for column_id in operation.schema.layout.ids if column_id not in (KEY, VALUE)]
        if operation.action is ClientAction.DELETE or not others or not chance(self._rng, PARTIAL):
            return None
        self._coverage.hit("rows.partial")
        return (KEY, VALUE, *(column_id for column_id in others if chance(self._rng, 0.5)))

    def one(self) -> HistoryRow:
        """A row of a drawn key, with a value that no other row of the run carries."""
        self._values += 1
        key = below(self._rng, self._profile.keys)
        padding = skewed(self._rng, 0, self._profile.value_bytes_max)
        return HistoryRow(key, f"{self._name}.{self._values}." + "x" * padding, more=self._values)
