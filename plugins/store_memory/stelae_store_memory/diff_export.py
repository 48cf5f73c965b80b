"""Diffs between two times, exports with history, and their import."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from stelae.rows.keys import decode_key, encode_keys
from stelae.rows.step_budget import StepBudget
from stelae.spi.errors import Corrupt
from stelae.spi.rows import RowBatch
from stelae.spi.scan import ScanSpec
from stelae.spi.schema import Schema
from stelae.spi.store import BATCH_ROWS_MAX, Changes, VersionedRows
from stelae_store_memory.version_chains import Version, visible
from stelae_store_memory.view import MemoryView, bounds
from stelae_store_memory.writer import MemoryWriter
from stelae_store_memory.written_rows import Row, RowSizer, WrittenRows


def changes(view: MemoryView, after: int, until: int, spec: ScanSpec) -> Iterator[Changes]:
    """Compare both times key by key. A step has a bounded number of keys and bytes."""
    schema = view.schema
    size_bytes = RowSizer(schema.layout).one
    start, last = bounds(view.keys, spec)
    while start < last:
        changed: list[Row] = []
        deleted: list[Row] = []
        room, end = StepBudget(), min(last, start + BATCH_ROWS_MAX)
        for position in range(start, end):
            key = view.keys[position]
            before, now = view.at(key, after), view.at(key, until)
            # Compaction may have made a copy of the version since it was looked up first.
            if now is None or now[0] <= after or (now[2] is None and (before is None or before[2] is None)):
                continue
            row = None if now[2] is None else view.row(now)
            if not room.takes(_deleted_bytes(schema, key) if row is None else size_bytes(row)):
                end = position
                break
            if row is None:
                deleted.append(decode_key(schema, key))
            else:
                changed.append(row)
        rows = RowBatch.from_equal_rows(schema.layout, changed).select(schema.project(spec.columns))
        deleted_keys = RowBatch.from_equal_rows(schema.key_layout, deleted)
        yield Changes(rows, deleted_keys, view.keys[end - 1] if end < last else None)
        start = end


def export_versions(view: MemoryView, floor: int) -> Iterator[VersionedRows]:
    """Return the versions that a read at or above the floor can see, oldest first."""
    found: list[tuple[bytes, Version]] = []
    for key in view.keys:
        version = visible(view.chains.get(key), view.timestamp, view.index)
        newer = None
        while version is not None:
            oldest = version[0] <= floor or version[4] is None
            # Only the newest of several versions with one timestamp can be seen.
            if version[0] != newer and not (oldest and version[2] is None):
                found.append((key, version))
            newer = version[0]
            version = None if oldest else version[4]
    found.sort(key=lambda pair: pair[1][:2])
    for deleted, run in groupby(found, key=lambda pair: pair[1][2] is None):
        yield from _batches(view, run, deleted)


def _batches(view: MemoryView, run: Iterable[tuple[bytes, Version]], deleted: bool) -> Iterator[VersionedRows]:
    schema = view.schema
    layout, size_bytes = schema.key_layout if deleted else schema.layout, RowSizer(schema.layout).one
    timestamps: list[int] = []
    rows: list[Row] = []
    room = StepBudget()

    def batch() -> VersionedRows:
        return VersionedRows(schema.version, deleted, tuple(timestamps), RowBatch.from_equal_rows(layout, rows))

    for key, version in run:
        row = decode_key(schema, key) if deleted else view.row(version)
        row_size = _deleted_bytes(schema, key) if deleted else size_bytes(row)
        if len(rows) >= BATCH_ROWS_MAX or not room.takes(row_size):
            yield batch()
            timestamps, rows, room = [], [], StepBudget()
            room.takes(row_size)
        timestamps.append(version[0])
        rows.append(row)
    if rows:
        yield batch()


def _deleted_bytes(schema: Schema, key: bytes) -> int:
    return schema.key_layout.row_bytes_min + len(key)


def import_rows(
    writer: MemoryWriter, schemas: Mapping[int, Schema], exported: VersionedRows, latest: int, index: int
) -> int:
    """Write exported versions, as if the entry at ``index`` had written them. Returns the last timestamp.

    Raises:
        Corrupt: a timestamp is below ``latest`` or the one before it, or the schema version is unknown.
    """
    schema = schemas.get(exported.schema_version)
    if schema is None or len(exported.timestamps) != len(exported.rows):
        raise Corrupt(f"an export of schema version {exported.schema_version} cannot be read")
    if not exported.timestamps:
        return latest
    written = None if exported.deleted else WrittenRows(exported.rows, exported.rows.nbytes // len(exported.timestamps))
    for row, key in enumerate(encode_keys(schema, exported.rows)):
        timestamp = exported.timestamps[row]
        if timestamp < latest:
            raise Corrupt(f"the timestamps of an export go back from {latest} to {timestamp}")
        writer.put(key, timestamp, index, written, row)
        latest = timestamp
    return latest
