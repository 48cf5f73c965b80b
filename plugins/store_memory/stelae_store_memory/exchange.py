"""What leaves a store with its history: changes between two times, exports, and their way back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby

from stelae.rows.keys import decode_key, encode_keys
from stelae.spi.errors import Corrupt
from stelae.spi.rows import RowBatch
from stelae.spi.scan import ScanSpec
from stelae.spi.schema import Schema
from stelae.spi.store import BATCH_ROWS_MAX, Changes, VersionedRows
from stelae_store_memory.chains import Version, visible
from stelae_store_memory.parts import Part, Row
from stelae_store_memory.view import View, bounds
from stelae_store_memory.writer import Writer


def changes(view: View, after: int, until: int, spec: ScanSpec) -> Iterator[Changes]:
    """Compare both ends key by key, a bounded number of keys per step."""
    schema = view.schema
    first, last = bounds(view.keys, spec)
    for start in range(first, last, BATCH_ROWS_MAX):
        changed: list[Row] = []
        deleted: list[Row] = []
        keys = view.keys[start : min(last, start + BATCH_ROWS_MAX)]
        for key in keys:
            before, now = view.at(key, after), view.at(key, until)
            if now is None or now is before:
                continue
            if now[2] is not None:
                changed.append(view.row(now))
            elif before is not None and before[2] is not None:
                deleted.append(decode_key(schema, key))
        rows = RowBatch.from_equal_rows(schema.layout, changed).select(schema.project(spec.columns))
        gone = RowBatch.from_equal_rows(schema.key_layout, deleted)
        yield Changes(rows, gone, keys[-1] if start + len(keys) < last else None)


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
        pairs = [*run]
        for start in range(0, len(pairs), BATCH_ROWS_MAX):
            yield _piece(view, pairs[start : start + BATCH_ROWS_MAX], deleted)


def _piece(view: View, pairs: list[tuple[bytes, Version]], deleted: bool) -> VersionedRows:
    schema = view.schema
    if deleted:
        rows = RowBatch.from_equal_rows(schema.key_layout, [decode_key(schema, key) for key, _ in pairs])
    else:
        rows = RowBatch.from_equal_rows(schema.layout, [view.row(v) for _, v in pairs])
    return VersionedRows(schema.version, deleted, tuple(v[0] for _, v in pairs), rows)


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
