"""A job or a batch with several rows of one key warns in the log of the driver: an older one can stay for good."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from stelae.client import Table
from stelae.rows.plain_schema import schema_from_plain
from stelae_spark_sink import task_writer
from stelae_spark_sink.repeated_keys import repeated_keys
from tests.unit.spark_sink.conftest import MadeTable
from tests.unit.spark_sink.jobs import COLUMNS, Rows, job, tasks

KEY = StructType([StructField("id", LongType())])
PARTS: list[Rows] = [[(1, 1, "a"), (1, 1, "b"), (2, 1, "c")], [(3, 1, "d"), (3, 1, "e"), (3, 1, "f")]]


@pytest.fixture
def table(make_table: MadeTable) -> Table:
    """The table of the job."""
    return make_table("readings", COLUMNS, ["id"])


@pytest.mark.parametrize("operation", ["upsert", "update", "insert_ignore"])
def test_repeated_keys_are_counted_once_for_a_job_and_the_way_round_is_named(
    table: Table, capsys: pytest.CaptureFixture[str], operation: str
) -> None:
    writer = job(operation=operation, failOnRowErrors="false")
    writer.commit(tasks(writer, *PARTS))
    (warning,) = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert "at least 3 rows for table 'readings' have the key of another row of their task" in warning
    assert "groupBy('id').agg(max_by(...)), or dropDuplicates(['id']) if they are equal" in warning


def test_keys_that_are_not_repeated_in_a_task_and_deletes_give_no_warning(
    table: Table, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = job()
    writer.commit(tasks(writer, [(1, 1, "a"), (2, 1, "b")], []))
    deletes = job(KEY, operation="delete")
    deletes.commit([deletes.write(iter([pa.RecordBatch.from_arrays([pa.array([1, 1])], ["id"])]))])
    assert "warning" not in capsys.readouterr().err


def test_a_key_in_two_batches_of_a_task_is_not_noticed(
    table: Table, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A task would have to remember all of its keys. The page *Spark* says so."""
    monkeypatch.setattr(task_writer, "WRITE_ROWS", 1)
    writer = job()
    one = pa.RecordBatch.from_pylist([{"id": 1, "day": 1, "note": "a"}])
    writer.commit([writer.write(iter([one, one]))])
    assert "warning" not in capsys.readouterr().err


def test_a_key_of_several_columns_is_compared_as_a_whole() -> None:
    columns = [{"name": "station", "type": "string"}, {"name": "at", "type": "timestamp"}]
    schema = schema_from_plain({"columns": columns, "key": ["station", "at"]})
    times = pa.array([1, 2, 1, 1], pa.timestamp("us", "UTC"))
    assert repeated_keys(pa.table({"at": times, "station": ["Oslo", "Oslo", "Bergen", "Oslo"]}), schema) == 1
