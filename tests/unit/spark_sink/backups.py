"""Manifests for tests."""

from __future__ import annotations

from typing import Any

from stelae.client.times import from_wall_us
from stelae.spi.schema import Column, Schema
from stelae_spark_sink.backup.chains import Backup
from stelae_spark_sink.backup.manifest import Kind, Manifest, StoredFile, stored_columns, time_text

ID = Column(id=1, name="id", type="int64")
NOTE = Column(id=2, name="note", type="string", nullable=True)
SCHEMA = Schema(1, (ID, NOTE), (1,))


def at_second(second: int) -> int:
    """A hybrid timestamp."""
    return from_wall_us(1_780_272_000_000_000 + second * 1_000_000)


def backup(name: str, second: int, parent: Backup | None = None, *, schema: Schema = SCHEMA, **fields: Any) -> Backup:
    """A backup of the table ``readings``: incremental if it has a parent."""
    older = fields.pop("older", {})
    given: dict[str, Any] = {
        "id": name,
        "kind": Kind.FULL if parent is None else Kind.INCREMENTAL,
        "table": "readings",
        "table_id": "t1",
        "at": at_second(second),
        "time": time_text(at_second(second)),
        "parent": "" if parent is None else parent.manifest.id,
        "since": 0 if parent is None else parent.manifest.at,
        "columns": stored_columns(schema, older),
        "key": tuple(column.name for column in schema.key_layout.columns),
        "partition": {},
        "replicas": 3,
        "tablets": ("a", "b"),
        "files": (StoredFile(name="part-0.parquet", size_bytes=100, rows=2, checksum=-7),),
        "rows": 2,
        "made_by": "stelae",
    }
    return Backup(f"/backups/readings.t1/{name}", Manifest(**{**given, **fields}))
