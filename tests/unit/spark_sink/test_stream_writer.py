"""The batches of a stream against tables in memory. ``tests/spark`` runs real streams."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from stelae.client import Table
from stelae.spi.write import checked_fence
from stelae_spark_sink import data_source, rejects_table, stream_writer
from stelae_spark_sink.stream_writer import StreamWriter
from stelae_spark_sink.task_result import TableReplaced
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


def run(writer: StreamWriter, number: int, note: str | bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a batch of one row, as a task in which Spark has set the query and the batch."""
    monkeypatch.setattr(StreamWriter, "_fence", lambda _: checked_fence(QUERY, number))
    raw = pa.array([note.encode() if isinstance(note, str) else note], pa.binary())
    notes = pa.Array.from_buffers(pa.string(), 1, raw.buffers())
    rows = pa.RecordBatch.from_arrays([pa.array([number]), notes], GIVEN.names)
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


def test_a_batch_that_has_only_rejects_is_complete_when_it_runs_again(
    table: Table, make_table: MadeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No tablet of the table had a row of the batch, so none knew that it was complete. The table of rejects did, and
    refused the rejects: each start of the query failed, after the driver was killed before its record of the batch."""
    rejects = make_table("rejects", rejects_table.definition(), [*rejects_table.KEY])
    options = {"rejectsTable": "rejects", "failOnRowErrors": "false"}
    for _ in range(2):
        run(stream(**options), 7, b"\xff", monkeypatch)
    assert [row["code"] for row in rejects.scan().to_pylist()] == ["BAD_VALUE"]
    run(stream(**options), 8, "good", monkeypatch)
    assert table.scan().to_pylist() == [{"id": 8, "note": "good"}]


def test_a_batch_during_which_the_table_is_created_anew_runs_again(
    table: Table, make_table: MadeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of the batch was in the table that was dropped, and the batch counted as written."""
    monkeypatch.setattr(StreamWriter, "_fence", lambda _: checked_fence(QUERY, 3))
    writer, notes = stream(), pa.array(["new"])
    messages = [writer.write(iter([pa.RecordBatch.from_arrays([pa.array([1]), notes], GIVEN.names)]))]
    anew = make_table("readings", COLUMNS, ["id"])
    anew._table._location = msgspec.structs.replace(anew._table._location, table_id="another")
    messages.append(writer.write(iter([pa.RecordBatch.from_arrays([pa.array([2]), notes], GIVEN.names)])))
    with pytest.raises(TableReplaced):
        writer.commit(messages, 3)
    run(stream(), 3, "again", monkeypatch)
    assert anew.scan(order="key").to_pylist() == [{"id": 2, "note": "new"}, {"id": 3, "note": "again"}]
