"""Rows that lookups completed from many partial versions, for the next lookups of the same keys.

A counter that is updated a thousand times has a thousand partial versions until they are merged below the history
floor. A lookup reads them all, once. The next one takes the completed row, and reads the versions after it only. What
was completed never goes out of date: as of its time, versions are neither added nor changed."""

from __future__ import annotations

from typing import NamedTuple

from stelae.rows.key_order import Comparable
from stelae_store_columnar.decoded_cache import CacheShare
from stelae_store_columnar.plain_rows import Row

KEPT_FROM = 4
"""A row of fewer versions is not kept: it is completed as fast as it is found here."""

_ENTRY_BYTES = 400
_VALUE_BYTES = 32  #: Of a number, or around a text.


class CompletedRow(NamedTuple):
    """A row as of a time."""

    stamp: int  #: The hybrid timestamp of its newest version.
    row: Row


class CompletedRows:
    """The rows of one schema version, in the cache of decoded columns. Any thread may use it.

    Args:
        cache: the entries of the store.
        schema_version: the rows have the columns of this version, in its order.
    """

    def __init__(self, cache: CacheShare, schema_version: int) -> None:
        self._cache = cache
        self._schema_version = schema_version

    def get(self, key: Comparable, until: int) -> CompletedRow | None:
        """Return the row of a key as of a time at or before ``until``, if there is one."""
        found: CompletedRow | None = self._cache.get(("row", self._schema_version, key))
        return None if found is None or found.stamp > until else found

    def put(self, key: Comparable, completed: CompletedRow) -> None:
        """Keep the row of a key instead of an earlier one."""
        size = _ENTRY_BYTES + _VALUE_BYTES * len(completed.row)
        size += sum(len(value) for value in completed.row if isinstance(value, str | bytes))
        self._cache.put(("row", self._schema_version, key), completed, size)
