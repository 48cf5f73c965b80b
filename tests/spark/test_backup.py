"""A table is backed up, altered, backed up again, and restored under another name."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from stelae.client import AddColumn, AddRange, Client, DropColumn, RenameColumn, SetDefault
from stelae.spark import backup_table, list_backups, restore_table
from stelae.spi.errors import StorageError
from stelae_spark_sink.backup import backup_job
from stelae_spark_sink.backup.manifest import Kind
from stelae_spark_sink.backup.restore_job import RestoreRefused
from stelae_spark_sink.backup.row_checks import RowCounts

COLUMNS = {"id": "int64", "celsius": "double", "note": "string", "at": "timestamp"}
HASHED = {"hash": [{"columns": ["id"], "buckets": 2}]}
RANGED = {"range": {"columns": ["id"], "ranges": [{"from": 0, "until": 100}]}}


def test_a_table_that_was_altered_between_two_backups_is_restored_from_both(
    spark: SparkSession, client: Client, masters: str, tmp_path: Path
) -> None:
    table = client.create_table("measured", COLUMNS, "id", partition=HASHED, replicas=1)
    table.insert([{"id": n, "celsius": n / 3, "at": datetime(1, 1, 1, 0, 0, n)} for n in range(50)])
    folder = str(tmp_path / "of [June] {2026}")  # Spark reads a path as a pattern.
    full = backup_table(spark, masters, "measured", folder)
    table.delete([{"id": n} for n in range(5)])
    added = AddColumn("unit", "string", default="C"), AddColumn("note", "date", nullable=True)
    client.alter_table("measured", DropColumn("note"), RenameColumn("celsius", to="degrees"), *added)
    table = client.alter_table("measured", SetDefault("unit", "K"))
    table.upsert([{"id": n, "degrees": -1.0} for n in (10, 50)])
    incremental = backup_table(spark, masters, "measured", folder)
    assert [one.manifest.kind for one in (full, incremental)] == [Kind.FULL, Kind.INCREMENTAL]
    assert (incremental.manifest.rows, incremental.manifest.deleted) == (7, 5)
    assert [entry.backup for entry in list_backups(spark, folder)] == [full, incremental]

    restored = restore_table(spark, masters, "measured", folder, name="restored")
    found = client.table("restored")
    assert (restored.rows, found.columns, found.partition) == (46, table.columns, table.partition)
    assert found.scan(order="key").to_pylist() == table.scan(order="key").to_pylist()
    assert (found.get(9) or {})["unit"] == "C" and (found.get(50) or {})["unit"] == "K"
    assert "restored" in client.tables() and not [name for name in client.tables() if ".restoring-" in name]
    with pytest.raises(RestoreRefused, match="there is a table 'restored'; restore under another name"):
        restore_table(spark, masters, "measured", folder, name="restored")


def test_a_range_with_rows_from_before_the_time_of_the_last_backup_is_restored(
    spark: SparkSession, client: Client, masters: str, tmp_path: Path
) -> None:
    """The range is not in the last backup. Its leader's clock was behind: the manifest gets a later time here."""
    table = client.create_table("young", {"id": "int64", "note": "string"}, "id", partition=RANGED, replicas=1)
    table.insert([{"id": n, "note": "old"} for n in range(10)])
    made = backup_table(spark, masters, "young", str(tmp_path))
    client.alter_table("young", AddRange(table.key_range(100, 200)))
    table.insert([{"id": n, "note": "young"} for n in range(100, 103)])
    manifest = Path(made.folder.removeprefix("file:")) / "manifest.json"
    manifest.write_bytes(msgspec.structs.replace(made.manifest, at=table.latest()).to_bytes())
    manifest.with_name(".manifest.json.crc").unlink(missing_ok=True)
    table.delete({"id": 3})
    incremental = backup_table(spark, masters, "young", str(tmp_path)).manifest
    assert (incremental.kind, incremental.rows, incremental.deleted) == (Kind.INCREMENTAL, 4, 1)
    restore_table(spark, masters, "young", str(tmp_path), name="grown")
    found = client.table("grown").scan(order="key").to_pylist()
    assert found == table.scan(order="key").to_pylist() and len(found) == 12


@pytest.mark.parametrize(
    ("read", "fact"), [(RowCounts(5, 0, 1), "0 rows, and 5 were read"), (RowCounts(0, 0, 1), "other values than the 0")]
)
def test_files_that_differ_from_what_the_table_returned_are_no_backup(
    spark: SparkSession,
    client: Client,
    masters: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    read: RowCounts,
    fact: str,
) -> None:
    client.create_table(f"half {read.rows}", COLUMNS, "id", replicas=1)
    monkeypatch.setattr(backup_job, "_write_rows", lambda *_: read)
    with pytest.raises(StorageError, match=f"the backup is not complete: its files have {fact}"):
        backup_table(spark, masters, f"half {read.rows}", str(tmp_path))
    assert not [entry for entry in list_backups(spark, str(tmp_path)) if entry.backup]


def test_a_chain_without_a_change_of_the_table_is_not_restored(
    spark: SparkSession, client: Client, masters: str, tmp_path: Path
) -> None:
    """The incremental backup has lost its files, and its manifest says so: as if the diff had left out the change."""
    table = client.create_table("tampered", {"id": "int64", "note": "string"}, "id", replicas=1)
    table.insert([{"id": n, "note": "old"} for n in range(10)])
    backup_table(spark, masters, "tampered", str(tmp_path))
    table.upsert({"id": 3, "note": "new"})
    made = backup_table(spark, masters, "tampered", str(tmp_path))
    counted = made.manifest.total
    assert made.manifest.rows == 1 and counted is not None and counted.rows == 10
    manifest = Path(made.folder.removeprefix("file:")) / "manifest.json"
    manifest.write_bytes(msgspec.structs.replace(made.manifest, files=(), rows=0).to_bytes())
    manifest.with_name(".manifest.json.crc").unlink(missing_ok=True)
    with pytest.raises(StorageError, match="the restored table has other values than the table had"):
        restore_table(spark, masters, "tampered", str(tmp_path), name="again")
    assert "again" not in client.tables()
