"""The manifest of a backup: what it keeps exactly, and which ones are refused."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from stelae.partition.plain_partitioning import partition_schema_from_plain, partition_schema_to_plain
from stelae.spi.schema import Column, Schema
from stelae_spark_sink.backup.folder_names import backup_folder, is_backup_folder, table_folder, table_prefix
from stelae_spark_sink.backup.json_values import from_json, to_json
from stelae_spark_sink.backup.manifest import (
    BadManifest,
    Kind,
    Manifest,
    deleted_name,
    partition_to_json,
    stored_columns,
)

from .backups import ID, at_second, backup

VALUES: list[tuple[str, Any]] = [
    ("bool", True),
    ("int64", -(2**63)),
    ("float", 1.5),
    ("double", math.inf),
    ("double", -0.0),
    ("double", 0.1),
    ("decimal(38,10)", Decimal("-12345678901234567890123456.0123456789")),
    ("string", "Ø\n\u2028"),
    ("binary", bytes(range(256))),
    ("date", date(1, 1, 1)),
    ("timestamp", datetime(9999, 12, 31, 23, 59, 59, 999_999)),
]


@pytest.mark.parametrize(("kind", "value"), VALUES)
def test_a_value_is_the_same_after_json(kind: str, value: Any) -> None:
    text = msgspec.json.encode(to_json(kind, value))
    found = from_json(kind, msgspec.json.decode(text))
    assert (type(found), repr(found)) == (type(value), repr(value))


def test_nan_null_and_numbers_of_days_and_microseconds_have_a_form_in_json() -> None:
    assert math.isnan(from_json("double", to_json("double", math.nan)))
    assert to_json("date", None) is None and from_json("date", None) is None
    assert from_json("date", to_json("date", -1)) == date(1969, 12, 31)
    assert to_json("timestamp", 1_000_001) == "1970-01-01T00:00:01.000001"
    assert to_json("timestamp", datetime(2026, 1, 1, tzinfo=UTC)) == "2026-01-01T00:00:00"


@pytest.mark.parametrize(("kind", "value"), [("date", 5), ("decimal(3,1)", "x"), ("binary", "é"), ("double", [])])
def test_a_value_of_another_type_is_refused(kind: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"no value of type {kind[:4]}"):
        from_json(kind, value)


def test_a_manifest_is_the_same_after_its_bytes() -> None:
    manifest = backup("b2", 20, backup("b1", 10), deleted_column="is_deleted", deleted=1).manifest
    assert Manifest.from_bytes(manifest.to_bytes(), "m") == manifest


def test_a_manifest_with_any_changed_byte_is_refused() -> None:
    data = backup("b1", 10).manifest.to_bytes()
    for at in range(len(data) - 1):
        if data[at : at + 1].isspace():
            continue  # White space between the values means nothing.
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        with pytest.raises(BadManifest, match=r"^/b/manifest\.json"):
            Manifest.from_bytes(changed, "/b/manifest.json")


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"\xff", b'{"format": "stelae-backup"}', b"[" * 100_000])
def test_bytes_that_are_no_manifest_are_refused(data: bytes) -> None:
    with pytest.raises(BadManifest, match="is not the manifest of a backup"):
        Manifest.from_bytes(data, "m")


def test_a_manifest_of_a_later_release_says_so() -> None:
    data = msgspec.structs.replace(backup("b1", 10).manifest, version=2).to_bytes()
    with pytest.raises(BadManifest, match="version 2; this release reads 'stelae-backup', version 1"):
        Manifest.from_bytes(data, "m")


def test_columns_that_spark_takes_for_one_have_different_names_in_the_files() -> None:
    names = ["id", "a", "A", "A_3", "_metadata", "is_deleted"]
    schema = Schema(1, tuple(Column(id=n, name=name, type="int64") for n, name in enumerate(names, start=1)), (1,))
    columns = stored_columns(schema, {})
    stored = [column.stored_as for column in columns]
    assert stored == ["id", "a", "A_3", "A_3_4", "_metadata_5", "is_deleted"]
    assert len({name.lower() for name in stored}) == len(stored)
    assert deleted_name(columns) == "is_deleted_"


def test_a_table_is_described_as_it_is_created() -> None:
    columns = (
        Column(id=3, name="day", type="date"),
        Column(id=5, name="price", type="decimal(5,2)", default="1.50"),
        Column(id=8, name="raw", type="binary", nullable=True, default=b"\x00\xff"),
        Column(id=9, name="at", type="timestamp", nullable=True, default=1),
    )
    schema = Schema(4, columns, (3,))
    plain = {
        "hash": [{"columns": ["day"], "buckets": 2}],
        "range": {"columns": ["day"], "ranges": [{"until": [date(2026, 1, 1)]}, {"from": [date(2026, 2, 1)]}]},
    }
    scheme = partition_schema_from_plain(schema, plain)
    partition = partition_to_json(schema, partition_schema_to_plain(schema, scheme))
    manifest = backup("b1", 10, schema=schema, partition=partition).manifest
    read = Manifest.from_bytes(manifest.to_bytes(), "m")
    assert read.plain_partition() == plain
    assert partition_schema_from_plain(schema, read.plain_partition()) == scheme
    assert [tuple(column.values()) for column in read.plain_columns()] == [
        ("day", "date", False, None),
        ("price", "decimal(5,2)", False, Decimal("1.50")),
        ("raw", "binary", True, b"\x00\xff"),
        ("at", "timestamp", True, datetime(1970, 1, 1, 0, 0, 0, 1)),
    ]


def test_folders_have_safe_names_in_the_order_of_times() -> None:
    assert table_folder("a b/ø*{x}.y", "id-1") == "a_b____x__y.id-1"
    assert table_folder("n" * 300, "i").startswith(table_prefix("n" * 300))
    names = [backup_folder(at_second(n), kind, f"{100 - n:032x}") for n in (1, 2, 100) for kind in Kind]
    assert names == sorted(names) and all(map(is_backup_folder, names))
    assert not is_backup_folder(f"{names[0]}.part")


def test_a_second_backup_of_the_same_time_has_another_folder() -> None:
    """A table without writes had the same time again, so that a backup after one that failed met its files."""
    assert backup_folder(at_second(1), Kind.FULL, "ab" * 16) != backup_folder(at_second(1), Kind.FULL, "cd" * 16)


def test_in_older_rows_is_kept_for_added_columns() -> None:
    added = Column(id=7, name="price", type="decimal(5,2)", nullable=True)
    columns = stored_columns(Schema(2, (ID, added), (1,)), {7: Decimal("0.10")})
    assert [column.in_older_rows for column in columns] == [None, "0.10"]
