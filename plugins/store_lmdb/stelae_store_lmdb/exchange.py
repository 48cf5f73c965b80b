"""What leaves a store with its history: changes between two times, exports, and their way back."""

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
from stelae_store_lmdb.memory import MemoryPart
from stelae_store_lmdb.ranges import KeyRange
from stelae_store_lmdb.tree import is_deletion
from stelae_store_lmdb.values import DELETION, Row, row_encoder
from stelae_store_lmdb.view import Versions, View

_Age: TypeAlias = tuple[int, int, bytes, bool]
"""A version by its timestamp and entry, the key of its row, and whether it is a deletion."""


def changes(view: View, after: int, until: int, spec: ScanSpec) -> Iterator[Changes]:
    """Compare both ends key by key, a bounded number of keys per step, as far as what is read of them fits."""
    schema = view.schema
    layout = schema.project(spec.columns)
    reader = view.reader(layout)
    changed: list[Row] = []
    deleted: list[bytes] = []

    def take(key: bytes, versions: Versions) -> bool:
        now = versions.at(until, view.index)
        if now is None:
            return True
        gone = is_deletion(now.contents)
        if not room.takes(_deleted_bytes(schema, key) if gone else reader.size_bytes(now.contents)):
            return False
        if now.timestamp <= after:
            return True
        if not gone:
            changed.append(reader.row(now.contents))
            return True
        before = versions.at(after, view.index)
        if before is not None and not is_deletion(before.contents):
            deleted.append(key)
        return True

    left: KeyRange | None = (spec.key_from, spec.key_until)
    if spec.after is not None:
        left = (max(spec.key_from or b"", spec.after + b"\0"), spec.key_until)
    while left is not None:
        room = StepBudget()
        left = view.step(*left, False, BATCH_ROWS_MAX, take)
        # What is left begins right behind the last key that was looked at.
        through = None if left is None or left[0] is None else left[0][:-1]
        yield Changes(RowBatch.from_equal_rows(layout, changed), _keys(schema, deleted), through)
        changed.clear()
        deleted.clear()


def export_versions(view: View, floor: int) -> Iterator[VersionedRows]:
    """Return the versions that a view at or above the floor can see, oldest first.

    Keys and times of all of them are held; the rows are read piece by piece."""
    found: list[_Age] = []

    def take(key: bytes, versions: Versions) -> bool:
        newer = None
        for one in versions.all():
            if one.entry > view.index or (newer is not None and one.timestamp >= newer):
                continue  # Of several versions at one timestamp only the newest can be seen.
            newer = one.timestamp
            gone = is_deletion(one.contents)
            # A deletion at or below the floor hides nothing from whoever takes the export.
            if not gone or one.timestamp > floor:
                found.append((one.timestamp, one.entry, key, gone))
            if one.timestamp <= floor:
                break
        return True

    for _ in view.steps(BATCH_ROWS_MAX, take):
        pass
    found.sort()
    for gone, run in groupby(found, key=itemgetter(3)):
        pieces = _deletions if gone else _rows
        yield from pieces(view, run)


def _deletions(view: View, ages: Iterable[_Age]) -> Iterator[VersionedRows]:
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


def _rows(view: View, ages: Iterable[_Age]) -> Iterator[VersionedRows]:
    schema = view.schema
    reader = view.reader(schema.layout)
    timestamps: list[int] = []
    rows: list[Row] = []
    room = StepBudget()

    def piece() -> VersionedRows:
        return VersionedRows(schema.version, False, tuple(timestamps), RowBatch.from_equal_rows(reader.layout, rows))

    for timestamp, index, key, _ in ages:
        one = view.version(key, timestamp, index)
        assert one is not None
        size_bytes = reader.size_bytes(one.contents)
        if len(rows) >= BATCH_ROWS_MAX or not room.takes(size_bytes):
            yield piece()
            timestamps, rows, room = [], [], StepBudget()
            room.takes(size_bytes)
        timestamps.append(timestamp)
        rows.append(reader.row(one.contents))
    if rows:
        yield piece()


def logical_checksum(view: View) -> str:
    """Return the checksum of the visible rows: of their values as they are stored, which is as Arrow gives them."""
    total = LogicalChecksum()
    reader = view.reader(view.schema.layout)
    left: KeyRange | None = (None, None)
    while left is not None:
        rows, left, _ = view.rows(*left, False, BATCH_ROWS_MAX, reader)
        total.add(rows)
    return total.hex()


def import_piece(
    memory: MemoryPart, schemas: Mapping[int, Schema], piece: VersionedRows, latest: int, index: int
) -> int:
    """Write the versions of a piece as if by the entry at ``index``; return the last timestamp.

    ``Corrupt``: timestamps go back behind ``latest``, or the schema version is unknown."""
    schema = schemas.get(piece.schema_version)
    if schema is None or len(piece.timestamps) != piece.rows.num_rows:
        raise Corrupt(f"an export of schema version {piece.schema_version} cannot be read")
    encode = row_encoder(schema)
    rows = [DELETION] * len(piece.timestamps) if piece.deleted else map(encode, piece.rows.to_rows())
    for timestamp, key, contents in zip(piece.timestamps, encode_keys(schema, piece.rows), rows, strict=True):
        if timestamp < latest:
            raise Corrupt(f"an export goes back from timestamp {latest} to {timestamp}")
        memory.put(key, timestamp, index, contents)
        latest = timestamp
    return latest


def _keys(schema: Schema, keys: list[bytes]) -> RowBatch:
    return RowBatch.from_equal_rows(schema.key_layout, [decode_key(schema, key) for key in keys])


def _deleted_bytes(schema: Schema, key: bytes) -> int:
    return schema.key_layout.row_bytes_min + len(key)
