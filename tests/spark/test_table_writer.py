"""The writer of the data source against a cluster, without a JVM: rejects, overwrite, altered tables."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from stelae.client import AddColumn, Client, DropColumn, Table
from stelae.client.locations import NoSuchTable
from stelae.spark import create_rejects_table
from stelae.spi.errors import SchemaMismatch
from stelae_spark_sink import data_source, task_writer
from stelae_spark_sink.batch_writer import BatchWriter
from stelae_spark_sink.job_sources import rejects_fence

COLUMNS = [
    {"name": "id", "type": "int64"},
    {"name": "day", "type": "int64", "nullable": True},
    {"name": "note", "type": "string", "nullable": True},
]
HASHED = {"hash": [{"columns": ["id"], "buckets": 3}]}
GIVEN = StructType([StructField("id", LongType()), StructField("day", LongType()), StructField("note", StringType())])
NAME = "written"


@pytest.fixture
def table(client: Client) -> Iterator[Table]:
    """An empty table of three tablets."""
    yield client.create_table(NAME, COLUMNS, "id", partition=HASHED)
    client.drop_table(NAME)


def job(masters: str, *, overwrite: bool = False, **options: str) -> BatchWriter:
    """A writer as the driver has it."""
    made = data_source.writer({"masters": masters, "table": NAME, **options}, GIVEN, overwrite=overwrite)
    assert isinstance(made, BatchWriter)
    return made


def batch(ids: range, day: int = 1, note: str = "new") -> pa.RecordBatch:
    arrays = [pa.array(ids, pa.int64()), pa.array([day] * len(ids), pa.int64()), pa.array([note] * len(ids))]
    return pa.RecordBatch.from_arrays(arrays, names=["id", "day", "note"])


def run(writer: BatchWriter, batches: Iterator[pa.RecordBatch]) -> Any:
    """Run one task, as an executor has the writer."""
    return pickle.loads(pickle.dumps(writer)).write(batches)


def test_rejects_of_a_job_are_in_a_table_of_the_helper(masters: str, client: Client, table: Table) -> None:
    create_rejects_table(masters, "rejects", buckets=2, replicas=1)
    table.insert([(n, 0, "old") for n in range(0, 6000, 2)])
    options = {
        "operation": "insert",
        "rejectsTable": "rejects",
        "failOnRowErrors": "false",
        "source": "s",
        "epoch": "1",
    }
    writer = job(masters, **options)
    messages = [run(writer, iter([batch(range(n, n + 2000))])) for n in (0, 2000, 4000, 0)]
    writer.commit(messages)
    rejects = client.table("rejects")
    assert rejects.scan().count() == 3000
    assert not rejects.epoch(*rejects_fence(writer._fence, NAME)).begin() and not table.epoch("s/insert", 1).begin()
    client.drop_table("rejects")


def test_replace_where_deletes_the_other_rows_of_its_filters(masters: str, table: Table) -> None:
    table.insert([(n, n % 2, "old") for n in range(1000)])
    writer = job(masters, overwrite=True, replaceWhere='["day", "=", 1]')
    writer.commit([run(writer, iter([batch(range(500, 600)), batch(range(2000, 2100))]))])
    found = {row["id"]: (row["day"], row["note"]) for row in table.scan().to_pylist()}
    new = dict.fromkeys((*range(500, 600), *range(2000, 2100)), (1, "new"))
    assert found == {**dict.fromkeys(range(0, 1000, 2), (0, "old")), **new}


def test_a_column_that_is_added_meanwhile_gets_its_default(
    masters: str, client: Client, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield batch(range(10))
        client.alter_table(NAME, AddColumn("place", "string", nullable=True, default="here"))
        yield batch(range(10, 20))

    writer = job(masters)
    monkeypatch.setattr(task_writer, "WRITE_ROWS", 10)
    writer.commit([writer.write(batches())])
    table.refresh()
    assert {row["place"] for row in table.scan().to_pylist()} == {"here"}
    assert table.scan().count() == 20


def test_a_column_that_is_dropped_meanwhile_fails_the_task_with_the_columns_of_the_table(
    masters: str, client: Client, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield batch(range(10))
        client.alter_table(NAME, DropColumn("note"))
        yield batch(range(10, 20))

    writer = job(masters)
    monkeypatch.setattr(task_writer, "WRITE_ROWS", 10)
    with pytest.raises(SchemaMismatch, match=r"was altered while.*no column 'note'; the table has: id, day; start"):
        writer.write(batches())
    with pytest.raises(SchemaMismatch, match="note"):
        job(masters)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": "nope"}, r"no table 'nope'; there are: .*; create one with stelae\.spark\.create_table_from\("),
        ({"rejectsTable": "nope"}, r"no table 'nope'; .*; create one with stelae\.spark\.create_rejects_table\("),
    ],
)
def test_a_job_without_its_table_is_refused_with_the_function_that_creates_one(
    masters: str, table: Table, options: dict[str, str], message: str
) -> None:
    with pytest.raises(NoSuchTable, match=message):
        job(masters, **options)
    with pytest.raises(NoSuchTable, match=message):
        data_source.stream_writer({"masters": masters, "table": NAME, **options}, GIVEN, overwrite=False)
