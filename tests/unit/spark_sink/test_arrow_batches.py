"""Batches: Spark gets the schema that it expects, in the buffers that the client made."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from stelae_spark_sink.arrow_batches import SparkBatches

TIMES = [datetime(1, 1, 1), None, datetime(9999, 12, 31, 23, 59, 59, 999999)]
BATCH = pa.record_batch(
    [pa.array([1, 2, 3], pa.int64()), pa.array(TIMES, pa.timestamp("us")), pa.array(["a", None, "c"], pa.string())],
    schema=pa.schema([pa.field("id", pa.int64(), False), ("at", pa.timestamp("us")), ("note", pa.string())]),
)


def converted(asked: t.StructType, batch: pa.RecordBatch = BATCH) -> pa.RecordBatch:
    found = SparkBatches(asked).converted(batch)
    assert found.schema.equals(to_arrow_schema(asked, timezone="UTC"))
    return found


def addresses(batch: pa.RecordBatch) -> list[list[int | None]]:
    return [[None if b is None else b.address for b in column.buffers()] for column in batch.columns]


def test_times_get_the_zone_and_no_value_is_copied() -> None:
    asked = t.StructType().add("id", t.LongType(), False).add("at", t.TimestampType()).add("note", t.StringType())
    found = converted(asked)
    assert addresses(found) == addresses(BATCH)
    assert found.column("at").to_pylist() == [time and time.replace(tzinfo=UTC) for time in TIMES]


def test_times_without_a_zone_stay_as_they_are_and_nulls_may_be_allowed_where_there_are_none() -> None:
    asked = t.StructType().add("id", t.LongType()).add("at", t.TimestampNTZType()).add("note", t.StringType())
    assert converted(asked).column("at").to_pylist() == TIMES


def test_a_slice_stays_a_slice() -> None:
    asked = t.StructType().add("id", t.LongType(), False).add("at", t.TimestampType()).add("note", t.StringType())
    assert converted(asked, BATCH.slice(1, 2)).column("id").to_pylist() == [2, 3]
