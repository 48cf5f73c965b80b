"""Versions of rows with their keys in key order, for the lookup of single keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stelae.rows.key_order import Comparable
from stelae_store_columnar.column_values import items_of
from stelae_store_columnar.plain_rows import PlainRows
from stelae_store_columnar.sorted_keys import SortedKeys


class SortedRows:
    """The rows of a source. The versions of each key are in log order. Several threads may use it.

    Args:
        keys: the keys of the versions.
        rows: the versions.
        order: an Arrow array of ``uint64`` with the places of the versions in key order; ``None``: they are in key
            order.
    """

    __slots__ = ("_places", "keys", "rows")

    def __init__(self, keys: SortedKeys, rows: PlainRows, order: Any = None) -> None:
        self.keys = keys
        self.rows = rows
        self._places = None if order is None else items_of(order, order.buffers()[1], "Q")

    def place(self, position: int) -> int:
        """Return the place in ``rows`` of the version at a position in key order."""
        return position if self._places is None else self._places[position]

    def newest_first(self, key: Comparable, last: int) -> Iterator[int]:
        """Yield the places of the versions of a key, of which the newest is at the position ``last``."""
        while last >= 0 and self.keys.at(last) == key:
            yield self.place(last)
            last -= 1

    @property
    def size_bytes(self) -> int:
        """Approximate memory of versions that only this object holds."""
        versions = self.rows.versions
        arrays = [versions.stamps, versions.deleted, versions.schemas, *versions.columns.values()]
        return self.keys.size_bytes + sum(int(array.nbytes) for array in arrays if array is not None)
