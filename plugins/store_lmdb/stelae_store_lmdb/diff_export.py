"""Diffs between two times, exports with history, their import, and the logical checksum."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from typing import TypeAlias

from stelae.rows.checksum import LogicalChecksum
from stelae.rows.keys import decode_key, encode_keys
from stelae.rows.step_budget import StepBudget
from stelae.spi.errors import Corrupt
from stelae.spi.rows import RowBatch
from stelae.spi.scan import ScanSpec
from stelae.spi.schema import Schema
from stelae.spi.store import BATCH_ROWS_MAX, Changes, VersionedRows
from stelae_store_lmdb.key_ranges import KeyBounds
from stelae_store_lmdb.memtable import LmdbMemtable
from stelae_store_lmdb.tree import is_deletion
from stelae_store_lmdb.values import DELETION, Row, row_encoder
from stelae_store_lmdb.view import KeyVersions, LmdbView

_Age: TypeAlias = tuple[int, int, bytes, bool]
"""A version: its timestamp, the index of its entry, the key of its row, and whether it is a deletion."""


def changes(view: LmdbView, after: int, until: int, spec: ScanSpec) -> Iterator[Changes]:
    """Compare both times key by key. A step has a bounded number of keys and bytes."""
    schema = view.schema
    layout = schema.project(spec.columns)
    reader = view.reader(layout)
    changed: list[Row] = []
    deleted: list[bytes] = []

    def take(key: bytes, versions: KeyVersions) -> bool:
        now = versions.at(until, view.index)
        if now is None:
            return True
        is_deleted = is_deletion(now.contents)
        if not room.takes(_deleted_bytes(schema, key) if is_deleted else reader.size_bytes(now.contents)):
            return False
        if now.timestamp <= after:
            return True
        if not is_deleted:
            changed.append(reader.row(now.contents))
            return True
        before = versions.at(after, view.index)
        if before is not None and not is_deletion(before.contents):
            deleted.append(key)
        return True

    left: KeyBounds | None = (spec.key_from, spec.key_until)
    if spec.after is not None:
        left = (max(spec.key_from or b"", spec.after + b"\0"), spec.key_until)
    while left is not None:
        room = StepBudget()
        left = view.step(*left, False, BATCH_ROWS_MAX, take)
        # The rest begins right after the last key of this step.
        through = None if left is None or left[0] is None else left[0][:-1]
        yield Changes(RowBatch.from_equal_rows(layout, changed), _keys(schema, deleted), through)
        changed.clear()
        deleted.clear()


def export_versions(view: LmdbView, floor: int) -> Iterator[VersionedRows]:
    """Return the versions that a read at or above the floor can see, oldest first.

    The keys and timestamps of all versions are in memory at the same time. The rows are read batch by batch."""
    found: list[_Age] = []

    def take(key: bytes, versions: KeyVersions) -> bool:
        newer = None
        for one in versions.all():
            if one.entry > view.index or (newer is not None and one.timestamp >= newer):
                continue  # Only the newest of several versions with one timestamp can be seen.
            newer = one.timestamp
            deleted = is_deletion(one.contents)
            # The importer has no older versions, so a deletion at or below the floor is not needed.
            if not deleted or one.timestamp > floor:
                found.append((one.timestamp, one.entry, key, deleted))
            if one.timestamp <= floor:
                break
        return True

    for _ in view.steps(BATCH_ROWS_MAX, take):
        pass
    found.sort()
    for deleted, run in groupby(found, key=itemgetter(3)):
        yield from (_deletions if deleted else _rows)(view, run)


def _deletions(view: LmdbView, ages: Iterable[_Age]) -> Iterator[VersionedRows]:
    schema = view.schema
    timestamps: list[int] = []
    keys: list[bytes] = []
    room = StepBudget()
    for timestamp, _, key, _ in ages:
        if len(keys) >= BATCH_ROWS_MAX or not room.takes(_deleted_bytes(schema, key)):
            yield VersionedRows(schema.version, True, tuple(timestamps), _keys(schema, keys))
            timestamps, keys, room = [], [], StepBudget()
            room.takes(_deleted_bytes(schema, key))
        timestamps.append(timestamp)
        keys.append(key)
    if keys:
        yield VersionedRows(schema.version, True, tuple(timestamps), _keys(schema, keys))


def _rows(view: LmdbView, ages: Iterable[_Age]) -> Iterator[VersionedRows]:
    schema = view.schema
    reader = view.reader(schema.layout)
    timestamps: list[int] = []
    rows: list[Row] = []
    room = StepBudget()

    def batch() -> VersionedRows:
        return VersionedRows(schema.version, False, tuple(timestamps), RowBatch.from_equal_rows(reader.layout, rows))

    for timestamp, index, key, _ in ages:
        one = view.version(key, timestamp, index)
        assert one is not None
        size_bytes = reader.size_bytes(one.contents)
        if len(rows) >= BATCH_ROWS_MAX or not room.takes(size_bytes):
            yield batch()
            timestamps, rows, room = [], [], StepBudget()
            room.takes(size_bytes)
        timestamps.append(timestamp)
        rows.append(reader.row(one.contents))
    if rows:
        yield batch()


def logical_checksum(view: LmdbView) -> str:
    """Return the checksum of the visible rows. The stored values equal those that Arrow returns."""
    total = LogicalChecksum()
    reader = view.reader(view.schema.layout)
    left: KeyBounds | None = (None, None)
    while left is not None:
        rows, left, _ = view.rows(*left, False, BATCH_ROWS_MAX, reader)
        total.add(rows)
    return total.hex()


def import_rows(
    memory: LmdbMemtable, schemas: Mapping[int, Schema], exported: VersionedRows, latest: int, index: int
) -> int:
    """Put exported versions into the memtable, as if the entry at ``index`` had written them. Returns the last
    timestamp.

    ``Corrupt``: a timestamp is below ``latest`` or the one before it, or the schema version is unknown."""
    schema = schemas.get(exported.schema_version)
    if schema is None or len(exported.timestamps) != len(exported.rows):
        raise Corrupt(f"an export of schema version {exported.schema_version} cannot be read")
    encode = row_encoder(schema)
    rows = [DELETION] * len(exported.timestamps) if exported.deleted else map(encode, exported.rows.to_rows())
    for timestamp, key, contents in zip(exported.timestamps, encode_keys(schema, exported.rows), rows, strict=True):
        if timestamp < latest:
            raise Corrupt(f"the timestamps of an export go back from {latest} to {timestamp}")
        memory.put(key, timestamp, index, contents)
        latest = timestamp
    return latest


def _keys(schema: Schema, keys: list[bytes]) -> RowBatch:
    return RowBatch.from_equal_rows(schema.key_layout, [decode_key(schema, key) for key in keys])


def _deleted_bytes(schema: Schema, key: bytes) -> int:
    return schema.key_layout.row_bytes_min + len(key)
