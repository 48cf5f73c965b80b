"""Draws the rows of writes. Few keys make operations conflict, and each value is unique to its row."""

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
"""Share of the writes that have one row. The others have 0 to ``ROWS_MAX`` rows."""

UNFIT: Final = 0.1
"""Share of the writes with one row that does not fit the schema."""

PARTIAL: Final = 0.4
"""Share of the writes that set only some columns, if the schema has more columns than the first schema."""


class RowGenerator:
    """Draws the rows of one client. Every value begins with the ``name`` of the client."""

    def __init__(self, name: str, rng: random.Random, profile: Profile, coverage: Coverage) -> None:
        self._name = name
        self._rng = rng
        self._profile = profile
        self._coverage = coverage
        self._values = 0

    def draw_rows(self) -> tuple[HistoryRow, ...]:
        """Draw the rows of one write: one row, several, or none. One of them may be unfit."""
        rng = self._rng
        rows = [self.draw_row() for _ in range(1 if chance(rng, ONE_ROW) else between(rng, 0, ROWS_MAX))]
        self._coverage.hit(f"rows.{len(rows)}")
        if rows and chance(rng, UNFIT):
            position = below(rng, len(rows))
            rows[position] = rows[position]._replace(unfit=True)
            self._coverage.hit("rows.unfit")
        return tuple(rows)

    def draw_columns(self, operation: ClientOperation) -> tuple[int, ...] | None:
        """Draw the columns that a write sets: the key, the value, and some of the others. ``None`` for all columns."""
        others = [column_id for column_id in operation.schema.layout.ids if column_id not in (KEY, VALUE)]
        if operation.action is ClientAction.DELETE or not others or not chance(self._rng, PARTIAL):
            return None
        self._coverage.hit("rows.partial")
        return (KEY, VALUE, *(column_id for column_id in others if chance(self._rng, 0.5)))

    def draw_row(self) -> HistoryRow:
        """Draw a row with a value that no other row of the run has."""
        self._values += 1
        key = below(self._rng, self._profile.keys)
        padding = skewed(self._rng, 0, self._profile.value_bytes_max)
        return HistoryRow(key, f"{self._name}.{self._values}." + "x" * padding, more=self._values)
