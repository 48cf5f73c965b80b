"""What leaves a store with its history: changes between two times, exports, and their way back."""

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
from stelae_store_columnar.memory import MemoryPart
from stelae_store_columnar.pruning import key_bounds
from stelae_store_columnar.sizes import in_pieces
from stelae_store_columnar.sorted_keys import SortedKeys
from stelae_store_columnar.versions import STAMP_MAX, Versions, combined, same_as_next
from stelae_store_columnar.view import View

WINDOW_ROWS = 1 << 20  #: Versions that an export holds at a time to bring them in order of timestamp,
WINDOW_BYTES = 64 << 20  #: and their bytes, about.


def changes(view: View, after: int, until: int, spec: ScanSpec) -> Iterator[Changes]:
    """Compare both ends step by step; steps that have not changed since are passed over by what is known of them."""
    schema, order = view.schema, view.order
    layout, key_layout = schema.project(spec.columns), schema.key_layout
    ids = tuple(dict.fromkeys((*layout.ids, *key_layout.ids)))
    resolver = view.state.resolver(ids)
    for low, high in view.steps(*key_bounds(order, spec)):
        parts = view.parts((low, high))
        if not parts or all(part.stamp_max <= after for part in parts):
            continue
        versions = _until(resolver.history([part.read(ids, again=False) for part in parts]), until)
        late = pc.greater(versions.stamps, _stamp(after))
        now = pc.and_(pc.invert(same_as_next(versions.keys)), late)
        gone = _deleted(versions)
        changed = versions.take(pc.indices_nonzero(pc.and_not(now, gone)))
        dropped = versions.take(pc.indices_nonzero(pc.and_(now, gone)))
        if len(dropped):
            before = resolver.visible([versions], after)
            dropped = dropped.take(pc.indices_nonzero(pc.is_in(dropped.keys, value_set=before.keys)))
        rows, keys = view.state.fitting.batch(layout, changed), view.state.fitting.batch(key_layout, dropped)
        through = None if high is None else order.before(high, low)
        if high is None or through is not None:  # Below the least key of all there is nothing to tell.
            told = _Told(rows, SortedKeys(changed.keys), keys, SortedKeys(dropped.keys))
            *begun, last = told.pieces()
            for piece in begun:
                yield Changes(piece.rows, piece.keys, order.encode(piece.last))
            if through is not None and len(last):
                # Bytes right below a key of bytes cannot be named: what was told may lie behind them.
                through = max(through, order.encode(last.last))
            yield Changes(last.rows, last.keys, through)


@dataclass(frozen=True, slots=True)
class _Told:
    """What one piece of a diff tells, with the keys of both kinds of rows in order."""

    rows: RowBatch
    row_keys: SortedKeys
    keys: RowBatch
    key_keys: SortedKeys

    def __len__(self) -> int:
        return len(self.rows) + len(self.keys)

    @property
    def last(self) -> Comparable:
        """The greatest key of all."""
        return max(keys.at(len(keys) - 1) for keys in (self.row_keys, self.key_keys) if len(keys))

    def pieces(self) -> Iterator[_Told]:
        """Halve this until each piece fits in a step; at least one piece."""
        if len(self) <= 1 or self.rows.nbytes + self.keys.nbytes <= BATCH_BYTES_MAX:
            yield self
            return
        more = max(self.row_keys, self.key_keys, key=len)
        pivot = more.at(len(more) // 2) if len(more) > 1 else self.last
        at, key_at = self.row_keys.left(pivot, 0), self.key_keys.left(pivot, 0)
        yield from self._slice(0, at, 0, key_at).pieces()
        yield from self._slice(at, len(self.rows), key_at, len(self.keys)).pieces()

    def _slice(self, start: int, end: int, key_start: int, key_end: int) -> _Told:
        return _Told(
            self.rows.slice(start, end - start),
            SortedKeys(self.row_keys.array.slice(start, end - start)),
            self.keys.slice(key_start, key_end - key_start),
            SortedKeys(self.key_keys.array.slice(key_start, key_end - key_start)),
        )


def export_versions(view: View, floor: int) -> Iterator[VersionedRows]:
    """Return the versions that a view at or above the floor can see, oldest first, a window of time at a time."""
    ids = view.schema.layout.ids
    resolver = view.state.resolver(ids)
    for low, high in _windows(view):
        found = []
        for step in view.steps(None, None):
            parts = view.parts(step)
            if all(part.stamp_max < low or part.stamp_min >= high for part in parts):
                continue
            # A deletion at or below the floor hides nothing from whoever takes the export.
            kept = resolver.needed([part.read(ids, again=False) for part in parts], floor, True)
            inside = pc.and_(pc.greater_equal(kept.stamps, _stamp(low)), pc.less(kept.stamps, _stamp(high)))
            found.append(kept.take(pc.indices_nonzero(inside)))
        if found:
            window = combined(found, resolver.types)
            yield from _pieces(view, window.take(pc.sort_indices(window.stamps)))


def import_piece(
    memory: MemoryPart, order: KeyOrder, schemas: Mapping[int, Schema], piece: VersionedRows, latest: int
) -> int:
    """Take the versions of a piece; return the last timestamp.

    ``Corrupt``: timestamps go back behind ``latest``, or the schema version is unknown."""
    schema = schemas.get(piece.schema_version)
    stamps, count = piece.timestamps, piece.rows.num_rows
    if schema is None or len(stamps) != count:
        raise Corrupt(f"an export of schema version {piece.schema_version} cannot be read")
    for before, stamp in zip((latest, *stamps), stamps, strict=False):
        if stamp < before:
            raise Corrupt(f"an export goes back from timestamp {before} to {stamp}")
    if not count:
        return latest
    keys = order.array(piece.rows)
    versions = Versions(
        keys,
        pa.array(stamps, pa.int64()),
        pa.repeat(True, count) if piece.deleted else None,
        pa.repeat(pa.scalar(schema.version, pa.int32()), count),
        dict(zip(piece.rows.layout.ids, piece.rows.arrow.columns, strict=True)),
    )
    memory.append(versions, keys.to_pylist(), piece.rows.nbytes, stamps[-1], gone=piece.deleted, bottom=True)
    return stamps[-1]


def _pieces(view: View, window: Versions) -> Iterator[VersionedRows]:
    """Runs of rows and of deletions, each of bounded length."""
    schema, fitting = view.schema, view.state.fitting
    for start in range(0, len(window), BATCH_ROWS_MAX):
        part = window.slice(start, min(BATCH_ROWS_MAX, len(window) - start))
        place = 0
        for deleted, run in groupby(_deleted(part).to_pylist()):
            count = len([*run])
            versions = part.slice(place, count)
            place += count
            stamps = iter(versions.stamps.to_pylist())
            for rows in in_pieces(fitting.batch(schema.key_layout if deleted else schema.layout, versions)):
                yield VersionedRows(schema.version, deleted, tuple(islice(stamps, len(rows))), rows)


def _windows(view: View) -> list[tuple[int, int]]:
    """Spans of time, oldest first, each with one timestamp or with about ``WINDOW_ROWS`` versions, or fewer if they
    are wide."""
    shares: defaultdict[int, float] = defaultdict(float)
    if view.rows_max > WINDOW_ROWS or view.bytes_max > WINDOW_BYTES:
        for step in view.steps(None, None):
            for part in view.parts(step):
                share = max(1 / WINDOW_ROWS, part.row_bytes / WINDOW_BYTES)
                for found in pc.value_counts(part.read((), again=False).stamps).to_pylist():
                    shares[found["values"]] += found["counts"] * share
    spans, low, held = [], 0, 0.0
    for stamp in sorted(shares):
        if held and held + shares[stamp] > 1:
            spans.append((low, stamp))
            low, held = stamp, 0.0
        held += shares[stamp]
    return [*spans, (low, STAMP_MAX)]


def _until(versions: Versions, until: int) -> Versions:
    early = pc.less_equal(versions.stamps, _stamp(until))
    return versions if pc.all(early).as_py() else versions.take(pc.indices_nonzero(early))


def _deleted(versions: Versions) -> Any:
    return pa.repeat(False, len(versions)) if versions.deleted is None else versions.deleted


def _stamp(number: int) -> Any:
    return pa.scalar(min(number, STAMP_MAX), pa.int64())
