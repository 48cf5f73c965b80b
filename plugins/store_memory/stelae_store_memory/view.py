"""Views and cursors: the rows as of a time, for one reader, while others write."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import islice, takewhile
from typing import Self

from stelae.rows.defaults import Defaults
from stelae.rows.keys import encode_keys
from stelae.rows.predicate_filter import filter_rows
from stelae.rows.step_budget import StepBudget
from stelae.spi.errors import CallerError
from stelae.spi.rows import RowBatch
from stelae.spi.scan import Order, ScanSpec
from stelae.spi.schema import Schema
from stelae.spi.store import BATCH_BYTES_MAX, BATCH_ROWS_MAX, Cursor
from stelae_store_memory.version_chains import Version, visible
from stelae_store_memory.written_rows import Row, RowSizer


class MemoryView:
    """The rows as of a timestamp, from the entries that were applied when the view was opened."""

    def __init__(
        self,
        chains: Mapping[bytes, Version],
        keys: Sequence[bytes],
        schema: Schema,
        defaults: Defaults,
        timestamp: int,
        index: int,
        release: Callable[[], None],
    ) -> None:
        self.chains = chains
        self.keys = keys
        self.schema = schema
        self.defaults = defaults
        self.timestamp = timestamp
        self.index = index
        self._release = release

    def close(self) -> None:
        """Release the versions that only this view can see."""
        self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def at(self, key: bytes, timestamp: int) -> Version | None:
        """Return the version of a key as of a timestamp at or above the view's."""
        return visible(self.chains.get(key), timestamp, self.index)

    def row(self, version: Version) -> Row:
        """Return the values of a version that is not a deletion."""
        written = version[2]
        assert written is not None
        return written.rows(self.schema.layout, self.defaults)[version[3]]

    def rows(self, keys: Sequence[bytes]) -> tuple[list[Row], int]:
        """Return the visible rows of some keys, as far as they fit in a step, and the number of keys that they
        cover."""
        layout = self.schema.layout
        found: list[Row] = []
        get, timestamp, index = self.chains.get, self.timestamp, self.index
        for key in keys:
            version = visible(get(key), timestamp, index)
            if version is not None and version[2] is not None:
                found.append(version[2].rows(layout, self.defaults)[version[3]])
        sizer = RowSizer(layout)
        if sizer.at_most(found) <= BATCH_BYTES_MAX:
            return found, len(keys)
        room = StepBudget()
        count = sum(1 for _ in takewhile(lambda row: room.takes(sizer.one(row)), found))
        if count == len(found):
            return found, len(keys)
        live = (position for position, key in enumerate(keys) if self._live(key))
        return found[:count], next(islice(live, count, None))

    def _live(self, key: bytes) -> bool:
        version = self.at(key, self.timestamp)
        return version is not None and version[2] is not None


class MemoryCursor(Cursor):
    """A scan over a view: it goes through a slice of the sorted keys, forwards or backwards."""

    def __init__(self, view: MemoryView, spec: ScanSpec) -> None:
        if spec.limit is not None and spec.limit < 0:
            raise CallerError(f"the limit of a scan is {spec.limit}; it must be 0 or more, or None for all rows")
        self._view = view
        self._spec = spec
        self._layout = view.schema.project(spec.columns)
        self._backwards = spec.order is Order.KEY_DESCENDING
        self._from, self._until = bounds(view.keys, spec)
        self._left = spec.limit
        self._token: bytes | None = spec.after

    def next_batch(self, rows_max: int = BATCH_ROWS_MAX) -> RowBatch | None:
        if self._from >= self._until or self._left == 0:
            return None
        keys = self._next_keys(max(1, min(rows_max, BATCH_ROWS_MAX)))
        found, keys_read = self._view.rows(keys)
        if self._backwards:
            self._until -= keys_read
        else:
            self._from += keys_read
        rows = RowBatch.from_equal_rows(self._view.schema.layout, found)
        rows = filter_rows(self._view.schema, self._spec.predicates, rows)
        self._token = keys[keys_read - 1]
        if self._left is not None:
            if len(rows) > self._left:
                rows = rows.slice(0, self._left)
                self._token = encode_keys(self._view.schema, rows.slice(self._left - 1))[0]
            self._left -= len(rows)
        return rows.select(self._layout)

    @property
    def resume_token(self) -> bytes | None:
        return self._token

    def close(self) -> None:
        self._view.close()
        self._until = self._from

    def _next_keys(self, count: int) -> Sequence[bytes]:
        """Return the next keys, in the order of the scan."""
        if self._backwards:
            return self._view.keys[max(self._from, self._until - count) : self._until][::-1]
        return self._view.keys[self._from : min(self._until, self._from + count)]


def bounds(keys: Sequence[bytes], spec: ScanSpec) -> tuple[int, int]:
    """Return the range of positions in sorted keys that a scan must read, after its resume token."""
    start = 0 if spec.key_from is None else bisect_left(keys, spec.key_from)
    end = len(keys) if spec.key_until is None else bisect_left(keys, spec.key_until)
    if spec.after is not None:
        if spec.order is Order.KEY_DESCENDING:
            end = min(end, bisect_left(keys, spec.after))
        else:
            start = max(start, bisect_right(keys, spec.after))
    return start, end
