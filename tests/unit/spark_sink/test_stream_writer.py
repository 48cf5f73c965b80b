"""The batches of a stream against tables in memory. ``tests/spark`` runs real streams."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from stelae.client import Table
from stelae.spi.write import checked_fence
from stelae_spark_sink import data_source, stream_writer
from stelae_spark_sink.stream_writer import StreamWriter
from tests.unit.spark_sink.conftest import MASTERS, MadeTable

COLUMNS = [{"name": "id", "type": "int64"}, {"name": "note", "type": "string", "nullable": True}]
GIVEN = StructType([StructField("id", LongType()), StructField("note", StringType())])
QUERY = "spark/q1"


@pytest.fixture
def table(make_table: MadeTable) -> Table:
    """The table of the stream."""
    return make_table("readings", COLUMNS, ["id"])


def stream(**options: str) -> StreamWriter:
    """A writer as the driver has it."""
    made = data_source.stream_writer({"masters": MASTERS, "table": "readings", **options}, GIVEN, overwrite=False)
    assert isinstance(made, StreamWriter)
    return made


def run(writer: StreamWriter, number: int, note: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a batch of one row, as a task in which Spark has set the query and the batch."""
    monkeypatch.setattr(StreamWriter, "_fence", lambda _: checked_fence(QUERY, number))
    rows = pa.RecordBatch.from_arrays([pa.array([number]), pa.array([note])], GIVEN.names)
    writer.commit([writer.write(iter([rows]))], number)


def test_a_process_begins_an_epoch_once_for_each_run_and_remembers_some_of_them(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_writer, "_begun", {})
    monkeypatch.setattr(stream_writer, "BEGUN_MAX", 2)
    runs = [stream() for _ in range(4)]
    for number, writer in enumerate(runs):
        run(writer, number, "new", monkeypatch)
    assert [one for one, _ in stream_writer._begun] == [writer._run for writer in runs[2:]]
    run(runs[0], 4, "of a run that is forgotten", monkeypatch)
    assert table.scan().count() == 5


def test_a_stream_may_wait_longer_than_a_write_is_retried(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    run(stream(timeoutSeconds="600"), 0, "new", monkeypatch)
    assert table.scan().to_pylist() == [{"id": 0, "note": "new"}]
