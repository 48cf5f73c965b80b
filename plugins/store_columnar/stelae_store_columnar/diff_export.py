"""Diffs between two times, exports with history, and their import."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from stelae.rows.key_order import Comparable, KeyOrder
from stelae.spi.errors import Corrupt
from stelae.spi.rows import RowBatch
from stelae.spi.scan import ScanSpec
from stelae.spi.schema import Schema
from stelae.spi.store import BATCH_BYTES_MAX, BATCH_ROWS_MAX, Changes, VersionedRows
from stelae_store_columnar.batch_sizes import in_batches
from stelae_store_columnar.memtable import ColumnarMemtable
from stelae_store_columnar.pruning import key_bounds
from stelae_store_columnar.sorted_keys import SortedKeys
from stelae_store_columnar.versions import STAMP_MAX, RowVersions, combined, same_as_next
from stelae_store_columnar.view import ColumnarView

WINDOW_ROWS = 1 << 20  #: Most versions that an export holds in memory to sort them by timestamp.
WINDOW_BYTES = 64 << 20  #: Approximate limit on their bytes.


def changes(view: ColumnarView, after: int, until: int, spec: ScanSpec) -> Iterator[Changes]:
    """Compare both times step by step. Steps without a later version are skipped, by the timestamps in the indexes."""
    schema, order = view.schema, view.order
    layout, key_layout = schema.project(spec.columns), schema.key_layout
    ids = tuple(dict.fromkeys((*layout.ids, *key_layout.ids)))
    resolver = view.state.resolver(ids)
    todo = view.steps(*key_bounds(order, spec))
    for low, high in todo:
        slices = view.slices((low, high))
        if not slices or all(source_slice.stamp_max <= after for source_slice in slices):
            continue
        versions = _until(resolver.history([source_slice.read(ids, use_cache=False) for source_slice in slices]), until)
        late = pc.greater(versions.stamps, _stamp(after))
        now = pc.and_(pc.invert(same_as_next(versions.keys)), late)
        deleted = _deleted(versions)
        changed = versions.take(pc.indices_nonzero(pc.and_not(now, deleted)))
        dropped = versions.take(pc.indices_nonzero(pc.and_(now, deleted)))
        if len(dropped):
            before = resolver.visible([versions], after)
            dropped = dropped.take(pc.indices_nonzero(pc.is_in(dropped.keys, value_set=before.keys)))
        rows, keys = view.state.adapter.batch(layout, changed), view.state.adapter.batch(key_layout, dropped)
        at_end = high is None or high == todo[-1][1]
        through = None if at_end else order.before(high, low)
        if at_end or through is not None:  # Otherwise the step is below the smallest possible key.
            step_changes = _StepChanges(rows, SortedKeys(changed.keys), keys, SortedKeys(dropped.keys))
            *earlier, last = step_changes.split()
            for changes_part in earlier:
                yield Changes(changes_part.rows, changes_part.keys, order.encode(changes_part.last))
            if through is not None and len(last):
                # The bytes just below a key of bytes cannot be written, so rows of this step may be above them.
                through = max(through, order.encode(last.last))
            yield Changes(last.rows, last.keys, through)


@dataclass(frozen=True, slots=True)
class _StepChanges:
    """The changes of one step: changed rows and deleted keys, each with their sorted comparables."""

    rows: RowBatch
    row_keys: SortedKeys
    keys: RowBatch
    key_keys: SortedKeys

    def __len__(self) -> int:
        return len(self.rows) + len(self.keys)

    @property
    def last(self) -> Comparable:
        """The largest key."""
        return max(keys.at(len(keys) - 1) for keys in (self.row_keys, self.key_keys) if len(keys))

    def split(self) -> Iterator[_StepChanges]:
        """Halve the changes until each part fits into one answer. Returns at least one part."""
        if len(self) <= 1 or self.rows.nbytes + self.keys.nbytes <= BATCH_BYTES_MAX:
            yield self
            return
        more = max(self.row_keys, self.key_keys, key=len)
        pivot = more.at(len(more) // 2) if len(more) > 1 else self.last
        at, key_at = self.row_keys.left(pivot, 0), self.key_keys.left(pivot, 0)
        yield from self._slice(0, at, 0, key_at).split()
        yield from self._slice(at, len(self.rows), key_at, len(self.keys)).split()

    def _slice(self, start: int, end: int, key_start: int, key_end: int) -> _StepChanges:
        return _StepChanges(
            self.rows.slice(start, end - start),
            SortedKeys(self.row_keys.array.slice(start, end - start)),
            self.keys.slice(key_start, key_end - key_start),
            SortedKeys(self.key_keys.array.slice(key_start, key_end - key_start)),
        )


def export_versions(view: ColumnarView, floor: int) -> Iterator[VersionedRows]:
    """Return the versions that a read at or above the floor can see, oldest first.

    The export goes through the history in windows of time, so that it can sort the versions of one in memory."""
    ids = view.schema.layout.ids
    resolver = view.state.resolver(ids)
    for low, high in _windows(view):
        found = []
        for step in view.steps(None, None):
            slices = view.slices(step)
            if all(source_slice.stamp_max < low or source_slice.stamp_min >= high for source_slice in slices):
                continue
            # The importer has no older versions, so a deletion at or below the floor is not needed.
            needed = resolver.needed([source_slice.read(ids, use_cache=False) for source_slice in slices], floor, True)
            inside = pc.and_(pc.greater_equal(needed.stamps, _stamp(low)), pc.less(needed.stamps, _stamp(high)))
            found.append(needed.take(pc.indices_nonzero(inside)))
        if found:
            window = combined(found, resolver.types)
            yield from _in_order_of_time(view, window.take(pc.sort_indices(window.stamps)))


def import_rows(
    memory: ColumnarMemtable, order: KeyOrder, schemas: Mapping[int, Schema], exported: VersionedRows, latest: int
) -> int:
    """Add exported versions to the memtable. Returns the last timestamp.

    ``Corrupt``: a timestamp is below ``latest`` or the one before it, or the schema version is unknown."""
    schema = schemas.get(exported.schema_version)
    stamps, count = exported.timestamps, len(exported.rows)
    if schema is None or len(stamps) != count:
        raise Corrupt(f"an export of schema version {exported.schema_version} cannot be read")
    for before, stamp in zip((latest, *stamps), stamps, strict=False):
        if stamp < before:
            raise Corrupt(f"the timestamps of an export go back from {before} to {stamp}")
    if not count:
        return latest
    keys = order.array(exported.rows)
    versions = RowVersions(
        keys,
        pa.array(stamps, pa.int64()),
        pa.repeat(True, count) if exported.deleted else None,
        pa.repeat(pa.scalar(schema.version, pa.int32()), count),
        dict(zip(exported.rows.layout.ids, exported.rows.arrow.columns, strict=True)),
    )
    memory.append(versions, keys.to_pylist(), exported.rows.nbytes, stamps[-1], deleted=exported.deleted, bottom=True)
    return stamps[-1]


def _in_order_of_time(view: ColumnarView, window: RowVersions) -> Iterator[VersionedRows]:
    """Yield the versions in order, rows and deletions separately, in batches of bounded size."""
    schema, adapter = view.schema, view.state.adapter
    for start in range(0, len(window), BATCH_ROWS_MAX):
        source_slice = window.slice(start, min(BATCH_ROWS_MAX, len(window) - start))
        position = 0
        for deleted, run in groupby(_deleted(source_slice).to_pylist()):
            count = len([*run])
            versions = source_slice.slice(position, count)
            position += count
            stamps = iter(versions.stamps.to_pylist())
            for rows in in_batches(adapter.batch(schema.key_layout if deleted else schema.layout, versions)):
                yield VersionedRows(schema.version, deleted, tuple(islice(stamps, len(rows))), rows)


def _windows(view: ColumnarView) -> list[tuple[int, int]]:
    """Return windows of time, oldest first, each as its first timestamp and the one after its last.

    A window has about ``WINDOW_ROWS`` versions, or fewer if they are large. The versions of one timestamp are always in
    one window."""
    shares: defaultdict[int, float] = defaultdict(float)
    if view.rows_max > WINDOW_ROWS or view.bytes_max > WINDOW_BYTES:
        for step in view.steps(None, None):
            for source_slice in view.slices(step):
                share = max(1 / WINDOW_ROWS, source_slice.row_bytes / WINDOW_BYTES)
                for found in pc.value_counts(source_slice.read((), use_cache=False).stamps).to_pylist():
                    shares[found["values"]] += found["counts"] * share
    spans, low, filled = [], 0, 0.0
    for stamp in sorted(shares):
        if filled and filled + shares[stamp] > 1:
            spans.append((low, stamp))
            low, filled = stamp, 0.0
        filled += shares[stamp]
    return [*spans, (low, STAMP_MAX)]


def _until(versions: RowVersions, until: int) -> RowVersions:
    early = pc.less_equal(versions.stamps, _stamp(until))
    return versions if pc.all(early).as_py() else versions.take(pc.indices_nonzero(early))


def _deleted(versions: RowVersions) -> Any:
    return pa.repeat(False, len(versions)) if versions.deleted is None else versions.deleted


def _stamp(number: int) -> Any:
    return pa.scalar(min(number, STAMP_MAX), pa.int64())
