"""What leaves a store with its history: changes between two times, exports, and their way back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby

from stelae.rows.checksum import LogicalChecksum
from stelae.rows.keys import decode_key, encode_keys
from stelae.spi.errors import Corrupt
from stelae.spi.rows import RowBatch
from stelae.spi.scan import ScanSpec
from stelae.spi.schema import Schema
from stelae.spi.store import BATCH_ROWS_MAX, Changes, VersionedRows
from stelae_store_lmdb.memory import MemoryPart
from stelae_store_lmdb.ranges import KeyRange
from stelae_store_lmdb.tree import is_deletion
from stelae_store_lmdb.values import DELETION, Row, row_encoder
from stelae_store_lmdb.view import Found, Versions, View


def changes(view: View, after: int, until: int, spec: ScanSpec) -> Iterator[Changes]:
    """Compare both ends key by key, a bounded number of keys per step."""
    schema = view.schema
    layout = schema.project(spec.columns)
    read = view.reader(layout).row
    changed: list[Row] = []
    deleted: list[bytes] = []

    def take(key: bytes, versions: Versions) -> None:
        now = versions.at(until, view.index)
        if now is None or now.timestamp <= after:
            return
        if not is_deletion(now.contents):
            changed.append(read(now.contents))
            return
        before = versions.at(after, view.index)
        if before is not None and not is_deletion(before.contents):
            deleted.append(key)

    left: KeyRange | None = (spec.key_from, spec.key_until)
    if spec.after is not None:
        left = (max(spec.key_from or b"", spec.after + b"\0"), spec.key_until)
    while left is not None:
        left = view.step(*left, False, BATCH_ROWS_MAX, take)
        # What is left begins right behind the last key that was looked at.
        through = None if left is None or left[0] is None else left[0][:-1]
        yield Changes(RowBatch.from_equal_rows(layout, changed), _keys(schema, deleted), through)
        changed.clear()
        deleted.clear()


def export_versions(view: View, floor: int) -> Iterator[VersionedRows]:
    """Return the versions that a view at or above the floor can see, oldest first.

    Keys and times of all of them are held; the rows are read piece by piece."""
    found: list[tuple[int, int, bytes, bool]] = []

    def take(key: bytes, versions: Versions) -> None:
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
                return

    for _ in view.steps(BATCH_ROWS_MAX, take):
        pass
    found.sort()
    for gone, run in groupby(found, key=lambda one: one[3]):
        ages = [*run]
        for start in range(0, len(ages), BATCH_ROWS_MAX):
            yield _piece(view, ages[start : start + BATCH_ROWS_MAX], gone)


def _piece(view: View, ages: list[tuple[int, int, bytes, bool]], gone: bool) -> VersionedRows:
    schema = view.schema
    timestamps = tuple(timestamp for timestamp, _, _, _ in ages)
    if gone:
        return VersionedRows(schema.version, True, timestamps, _keys(schema, [key for _, _, key, _ in ages]))
    read = view.reader(schema.layout).row
    rows: list[Row] = []
    found: list[Found | None] = []
    for timestamp, index, key, _ in ages:
        view.step(key, key + b"\0", False, 1, lambda _, v, t=timestamp, i=index: found.append(v.at(t, i)))  # type: ignore[misc]
        one = found.pop()
        assert one is not None
        rows.append(read(one.contents))
    return VersionedRows(schema.version, False, timestamps, RowBatch.from_equal_rows(schema.layout, rows))


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
