"""Rows that lookups completed from many partial versions, for the next lookups of the same keys.

A counter that is updated a thousand times has a thousand partial versions until they are merged below the history
floor. A lookup reads them all, once. The next one takes the completed row, and reads the versions after it only. What
was completed never goes out of date: as of its time, versions are neither added nor changed. Only later entries with
the same timestamp may add some, which a reader of the state before them must not see."""

from __future__ import annotations

from sys import getsizeof
from typing import NamedTuple

from stelae.rows.key_order import Comparable
from stelae.spi.ids import OpId
from stelae_store_columnar.decoded_cache import CacheShare
from stelae_store_columnar.plain_rows import Row
from stelae_store_columnar.state import ColumnarState

KEPT_FROM = 4
"""A row of fewer versions is not kept: completing it again costs no more than a lookup in this cache."""

_ENTRY_BYTES = 400  #: Memory of an entry besides its key and its values.


class CompletedRow(NamedTuple):
    """A row as of a time."""

    stamp: int  #: The hybrid timestamp of its newest version.
    applied: OpId  #: The last entry that the reader who completed it has seen.
    row: Row


class CompletedRows:
    """The completed rows for readers of one state, in the cache of decoded columns. Any thread may use it.

    Args:
        cache: the entries of the store.
        state: the rows have the columns of its schema, in their order.
    """

    def __init__(self, cache: CacheShare, state: ColumnarState) -> None:
        self._cache = cache
        self._schema_version = state.schema.version
        self._stamp, self._applied = state.stamp, state.applied

    def get(self, key: Comparable, until: int) -> CompletedRow | None:
        """Return the row of a key as of a time at or before ``until``, if there is one."""
        found: CompletedRow | None = self._cache.get(("row", self._schema_version, key))
        if found is None or found.stamp > until:
            return None
        is_of_later_entry = found.stamp == self._stamp and found.applied > self._applied
        return None if is_of_later_entry else found

    def put(self, key: Comparable, stamp: int, row: Row) -> None:
        """Keep the row of a key as of a time instead of an earlier one."""
        size = _ENTRY_BYTES + sum(map(getsizeof, (key, row, *row)))
        self._cache.put(("row", self._schema_version, key), CompletedRow(stamp, self._applied, row), size)
