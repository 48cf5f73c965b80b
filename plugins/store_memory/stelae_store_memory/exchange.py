"""What leaves a store with its history: changes between two times, exports, and their way back."""

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
from stelae_store_memory.chains import Version, visible
from stelae_store_memory.parts import Part, Row, Weigher
from stelae_store_memory.view import View, bounds
from stelae_store_memory.writer import Writer


def changes(view: View, after: int, until: int, spec: ScanSpec) -> Iterator[Changes]:
    """Compare both ends key by key, a bounded number of keys per step, as far as what is told of them fits."""
    schema = view.schema
    size_bytes = Weigher(schema.layout).one
    start, last = bounds(view.keys, spec)
    while start < last:
        changed: list[Row] = []
        deleted: list[Row] = []
        room, end = StepBudget(), min(last, start + BATCH_ROWS_MAX)
        for place in range(start, end):
            key = view.keys[place]
            before, now = view.at(key, after), view.at(key, until)
            if now is None or now is before or (now[2] is None and (before is None or before[2] is None)):
                continue
            row = None if now[2] is None else view.row(now)
            if not room.takes(_deleted_bytes(schema, key) if row is None else size_bytes(row)):
                end = place
                break
            if row is None:
                deleted.append(decode_key(schema, key))
            else:
                changed.append(row)
        rows = RowBatch.from_equal_rows(schema.layout, changed).select(schema.project(spec.columns))
        gone = RowBatch.from_equal_rows(schema.key_layout, deleted)
        yield Changes(rows, gone, view.keys[end - 1] if end < last else None)
        start = end


def export_versions(view: View, floor: int) -> Iterator[VersionedRows]:
    """Return the versions that a view at or above the floor can see, oldest first."""
    found: list[tuple[bytes, Version]] = []
    for key in view.keys:
        version = visible(view.chains.get(key), view.timestamp, view.index)
        newer = None
        while version is not None:
            oldest = version[0] <= floor or version[4] is None
            # Of several versions at one timestamp only the newest can be seen.
            if version[0] != newer and not (oldest and version[2] is None):
                found.append((key, version))
            newer = version[0]
            version = None if oldest else version[4]
    found.sort(key=lambda pair: pair[1][:2])
    for deleted, run in groupby(found, key=lambda pair: pair[1][2] is None):
        yield from _pieces(view, run, deleted)


def _pieces(view: View, run: Iterable[tuple[bytes, Version]], deleted: bool) -> Iterator[VersionedRows]:
    schema = view.schema
    layout, size_bytes = schema.key_layout if deleted else schema.layout, Weigher(schema.layout).one
    timestamps: list[int] = []
    rows: list[Row] = []
    room = StepBudget()

    def piece() -> VersionedRows:
        return VersionedRows(schema.version, deleted, tuple(timestamps), RowBatch.from_equal_rows(layout, rows))

    for key, version in run:
        row = decode_key(schema, key) if deleted else view.row(version)
        weight = _deleted_bytes(schema, key) if deleted else size_bytes(row)
        if len(rows) >= BATCH_ROWS_MAX or not room.takes(weight):
            yield piece()
            timestamps, rows, room = [], [], StepBudget()
            room.takes(weight)
        timestamps.append(version[0])
        rows.append(row)
    if rows:
        yield piece()


def _deleted_bytes(schema: Schema, key: bytes) -> int:
    return schema.key_layout.row_bytes_min + len(key)


def import_piece(writer: Writer, schemas: Mapping[int, Schema], piece: VersionedRows, latest: int, index: int) -> int:
    """Write the versions of a piece as if by the entry at ``index``; return the last timestamp.

    Raises:
        Corrupt: timestamps go back behind ``latest``, or the schema version is unknown.
    """
    schema = schemas.get(piece.schema_version)
    if schema is None or len(piece.timestamps) != piece.rows.num_rows:
        raise Corrupt(f"an export of schema version {piece.schema_version} cannot be read")
    if not piece.timestamps:
        return latest
    part = None if piece.deleted else Part(piece.rows, piece.rows.nbytes // len(piece.timestamps))
    for row, key in enumerate(encode_keys(schema, piece.rows)):
        timestamp = piece.timestamps[row]
        if timestamp < latest:
            raise Corrupt(f"an export goes back from timestamp {latest} to {timestamp}")
        writer.put(key, timestamp, index, part, row)
        latest = timestamp
    return latest
