"""The manifest of a backup: what was backed up, in which files, with which counts and checksums. Pure.

A backup is a folder with Parquet files in ``rows`` and the file ``manifest.json``, which is written last: a folder
without one is not a backup. A *full* backup has all rows of a table as of one time. An *incremental* one has the rows
that changed since its parent, with their later values, and the keys of the rows that were deleted.

The manifest is JSON with a checksum of itself. Column ids, not names, say which column of two backups is the same."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from hashlib import sha256
from typing import Any

import msgspec

from stelae.client import to_datetime
from stelae.spi.errors import CallerError, SchemaMismatch
from stelae.spi.schema import Column, Schema
from stelae_spark_sink.backup.json_values import from_json, to_json

FORMAT = "stelae-backup"
VERSION = 1
MANIFEST_NAME = "manifest.json"
ROWS_NAME = "rows"
"""The folder of the Parquet files, within the folder of a backup."""


_DELETED_NAME = "is_deleted"
_RESERVED = ("_metadata",)
"""Names that Spark gives to columns of its own when it reads files."""


class BadManifest(CallerError, code="BAD_BACKUP_MANIFEST"):
    """The manifest of a backup is damaged, or of another release."""


class Kind(StrEnum):
    """What a backup has."""

    FULL = "full"
    INCREMENTAL = "incremental"


class StoredColumn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A column of the table at the time of the backup."""

    id: int
    name: str
    type: str
    nullable: bool
    stored_as: str  #: Name of the column in the Parquet files.
    default: Any = None  #: Default for new rows, as in ``json_values``.
    #: Of a column that was added since the parent: the value in rows that are older than the column.
    in_older_rows: Any = None


class StoredFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Parquet file."""

    name: str  #: Within the folder of the files.
    size_bytes: int
    rows: int  #: All rows of the file, with deleted ones.
    checksum: int  #: Exclusive or of the 64-bit hashes of its rows, as in ``row_checks``.


class TableTotal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was counted of all rows of a table at the time of a backup. A restored table is compared with it."""

    rows: int
    checksum: int  #: As in ``row_checks``, over the columns of the manifest.


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The manifest of one backup. :meth:`from_bytes` checks it."""

    format: str = FORMAT
    version: int = VERSION
    id: str  #: Unique.
    kind: Kind
    table: str  #: Name of the table at the time of the backup.
    table_id: str  #: Id of the table, which survives renames.
    at: int  #: Hybrid timestamp of the rows.
    time: str  #: The same as a time in UTC.
    parent: str = ""  #: Id of the backup that this one continues. Empty: it is a full one.
    since: int = 0  #: Hybrid timestamp of the parent; 0: it is a full one.
    columns: tuple[StoredColumn, ...]
    key: tuple[str, ...]  #: Names of the key columns, in key order.
    partition: dict[str, Any]  #: As ``Client.create_table`` takes it; bounds are values as in ``json_values``.
    replicas: int
    tablets: tuple[str, ...]  #: Ids of the tablets that were read.
    deleted_column: str = ""  #: Column of the files that says whether a row was deleted. Empty: it is a full one.
    files: tuple[StoredFile, ...]
    rows: int  #: All rows of the files, with deleted ones.
    deleted: int = 0  #: Rows of the files that were deleted.
    total: TableTotal | None = None  #: ``None``: the table was not counted.
    made_by: str  #: The release that made the backup.
    checksum: str = ""  #: Only in the file: SHA-256 of the manifest without it.

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def by_id(self) -> Mapping[int, StoredColumn]:
        """The columns by id."""
        return {column.id: column for column in self.columns}

    @property
    def key_columns(self) -> tuple[StoredColumn, ...]:
        """The key columns, in key order."""
        named = {column.name: column for column in self.columns}
        return tuple(named[name] for name in self.key)

    def to_bytes(self) -> bytes:
        """Return the manifest as JSON for people, with its checksum."""
        text = msgspec.json.encode(msgspec.structs.replace(self, checksum=self._own_checksum()))
        return msgspec.json.format(text, indent=1) + b"\n"

    def _own_checksum(self) -> str:
        return sha256(msgspec.json.encode(msgspec.structs.replace(self, checksum=""))).hexdigest()

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Manifest:
        """Return the manifest of a file.

        Args:
            data: content of the file.
            where: path of the file, for errors.

        Raises:
            BadManifest: it is damaged, or of another release.
        """
        try:
            head = msgspec.json.decode(data, type=_Head)
        except (ValueError, RecursionError) as error:
            raise BadManifest(f"{where} is not the manifest of a backup: {error}") from None
        if (head.format, head.version) != (FORMAT, VERSION):
            fact = f"{where} has the format {head.format!r:.40}, version {head.version}"
            raise BadManifest(f"{fact}; this release reads {FORMAT!r}, version {VERSION}: use the release that made it")
        try:
            found = msgspec.json.decode(data, type=cls)
        except (ValueError, RecursionError) as error:
            raise BadManifest(f"{where} is damaged: {error}") from None
        if found.checksum != found._own_checksum():
            raise BadManifest(f"{where} is damaged: its checksum is wrong; restore from another backup")
        return msgspec.structs.replace(found, checksum="")

    def plain_columns(self) -> list[dict[str, Any]]:
        """Return the columns as ``Client.create_table`` takes them."""
        return [
            {"name": c.name, "type": c.type, "nullable": c.nullable, "default": from_json(c.type, c.default)}
            for c in self.columns
        ]

    def plain_partition(self) -> dict[str, Any]:
        """Return the partitioning as ``Client.create_table`` takes it."""
        return _with_bounds(self.partition, {c.name: c.type for c in self.columns}, from_json)


class _Head(msgspec.Struct):
    format: str
    version: int


def partition_to_json(schema: Schema, plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return a partitioning, as ``Table.partition`` has it, for a manifest."""
    return _with_bounds(plain, {c.name: c.type for c in schema.columns}, to_json)


def _with_bounds(plain: Mapping[str, Any], types: Mapping[str, str], convert: Any) -> dict[str, Any]:
    """Return a partitioning whose bounds are converted by the types of their columns."""
    found = dict(plain)
    if "range" in found:
        kinds = [types[name] for name in found["range"]["columns"]]

        def bounds(one: Mapping[str, Any]) -> dict[str, Any]:
            return {end: [convert(k, v) for k, v in zip(kinds, values, strict=True)] for end, values in one.items()}

        found["range"] = {**found["range"], "ranges": [bounds(one) for one in found["range"]["ranges"]]}
    return found


def stored_columns(schema: Schema, in_older_rows: Mapping[int, Any]) -> tuple[StoredColumn, ...]:
    """Return the columns of a schema for a manifest.

    Args:
        schema: of the table.
        in_older_rows: for columns that were added since the parent, by id: the value in rows older than the column.
    """
    names = _stored_names(schema.columns)
    return tuple(
        StoredColumn(
            id=column.id,
            name=column.name,
            type=column.type,
            nullable=column.nullable,
            stored_as=names[column.id],
            default=to_json(column.type, column.default),
            in_older_rows=to_json(column.type, in_older_rows.get(column.id)),
        )
        for column in schema.columns
    )


def _stored_names(columns: tuple[Column, ...]) -> dict[int, str]:
    """Return the name of each column in the files: its own, unless Spark takes it for that of another column."""
    taken = {name.lower() for name in _RESERVED}
    found = {}
    for column in columns:
        name = column.name
        while name.lower() in taken:
            name = f"{name}_{column.id}"
        taken.add(name.lower())
        found[column.id] = name
    return found


def deleted_name(columns: tuple[StoredColumn, ...]) -> str:
    """Return the name of the column that says whether a row was deleted, which differs from all others."""
    name = _DELETED_NAME
    while name in {column.stored_as.lower() for column in columns}:
        name += "_"
    return name


def time_text(at: int) -> str:
    """Return a hybrid timestamp as a time in UTC, such as ``2026-06-01T12:00:00.000001Z``."""
    return to_datetime(at).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def check_same_key(older: Manifest, newer: Manifest) -> None:
    """Check that two backups of a table have the same key columns. ``SchemaMismatch``: they have not."""
    keys = [[(column.id, column.type) for column in one.key_columns] for one in (older, newer)]
    if keys[0] != keys[1]:
        raise SchemaMismatch(f"backups {older.id} and {newer.id} of table {newer.table!r} have different keys")
