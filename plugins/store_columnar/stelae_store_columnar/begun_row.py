"""A row that is put together from its partial versions, from the newest to older ones, as lookups and short scans
meet them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from stelae.rows.key_order import Comparable
from stelae_store_columnar.column_values import ColumnValues
from stelae_store_columnar.completed_rows import CompletedRow, CompletedRows
from stelae_store_columnar.plain_rows import Row
from stelae_store_columnar.version_resolver import ColumnSets


class GivenColumns:
    """Which columns of a row the versions with a set of columns have. Used for one call, by one thread.

    Args:
        sets: of the state.
        ids: of the columns of the row.
    """

    def __init__(self, sets: ColumnSets, ids: Sequence[int]) -> None:
        self._sets = sets
        self._ids = ids
        self._found: dict[int, frozenset[int]] = {0: frozenset(range(len(ids)))}

    def of(self, number: int) -> frozenset[int]:
        """Return the positions in the row of the columns of a set; for 0, all."""
        found = self._found.get(number)
        if found is None:
            ids = self._sets.ids(number)
            found = self._found[number] = frozenset(place for place, column in enumerate(self._ids) if column in ids)
        return found


class BegunRow:
    """A row of which older versions are looked for.

    Args:
        places: the positions in the schema of the columns of the row.
    """

    __slots__ = ("_known", "_lacking", "_places", "_values", "count", "looked_at", "stamp")

    def __init__(self, places: Sequence[int]) -> None:
        self._places = places
        self._values: list[Any] = [None] * len(places)
        self._lacking = frozenset(range(len(places)))  # Positions without a value.
        self._known: CompletedRow | Literal[False] | None = False  # False: not asked for yet.
        self.count = 0  #: The number of versions that were taken.
        self.looked_at = 0  #: The number of versions that were looked at, also of those later than the time.
        self.stamp = 0  #: The hybrid timestamp of the newest version taken.

    def take(self, columns: Sequence[ColumnValues], place: int, stamp: int, given: frozenset[int]) -> bool:
        """Take the values that are lacking from an older version. Return whether none is lacking now.

        Args:
            columns: of the source of the version, as in the schema.
            place: of the version in its source.
            stamp: hybrid timestamp of the version.
            given: the positions in the row of the columns that the version has.
        """
        if not self.count:
            self.stamp = stamp
        self.count += 1
        for position in given & self._lacking:
            self._values[position] = columns[self._places[position]].at(place)
        self._lacking -= given
        return not self._lacking

    def fill(self, row: Sequence[Any]) -> None:
        """Take the values that are lacking from an older row, which has the columns of this one."""
        for position in self._lacking:
            self._values[position] = row[position]

    def fill_from_schema(self, row: Row) -> None:
        """Take the values that are lacking from an older row, which has all columns of the schema."""
        self.fill([row[place] for place in self._places])

    def known(self, completed: CompletedRows, key: Comparable, until: int) -> CompletedRow | None:
        """Return the row as of a time at or before ``until``, if it was completed before. It is asked for once."""
        if self._known is False:
            self._known = completed.get(key, until)
        return self._known

    def row(self) -> Row | None:
        """Return the row, with null for what no version has a value for; ``None`` if no version was taken."""
        return tuple(self._values) if self.count else None
