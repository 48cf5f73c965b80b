"""Jobs that write the table ``readings`` in memory."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType

from stelae.client import Table
from stelae_spark_sink import data_source
from stelae_spark_sink.batch_writer import BatchWriter
from tests.unit.spark_sink.conftest import MASTERS

COLUMNS = [
    {"name": "id", "type": "int64"},
    {"name": "day", "type": "int64"},
    {"name": "note", "type": "string", "nullable": True},
]
GIVEN = StructType([StructField("id", LongType()), StructField("day", LongType()), StructField("note", StringType())])
WHERE = '[["day", "=", 2]]'
Rows = Sequence[tuple[int, int | None, str | None]]


def job(given: StructType = GIVEN, *, overwrite: bool = False, table: str = "readings", **options: str) -> BatchWriter:
    """A writer as the driver has it."""
    made = data_source.writer({"masters": MASTERS, "table": table, **options}, given, overwrite=overwrite)
    assert isinstance(made, BatchWriter)
    return made


def tasks(writer: BatchWriter, *parts: Rows) -> list[Any]:
    """Run a task for each part, as Spark does; return their messages."""
    schema = pa.schema({"id": pa.int64(), "day": pa.int64(), "note": pa.string()})
    found = []
    for part in parts:
        columns = [[row[n] for row in part] for n in range(3)]
        batch = pa.RecordBatch.from_arrays(
            [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema.names
        )
        found.append(pickle.loads(pickle.dumps(writer)).write(iter([batch])))
    return found


def held(table: Table) -> dict[int, tuple[int, Any]]:
    return {row["id"]: (row["day"], row["note"]) for row in table.scan().to_pylist()}
