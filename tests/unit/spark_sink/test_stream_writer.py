"""The batches of a stream against tables in memory. ``tests/spark`` runs real streams."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from itertools import count

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from stelae.client import Client, Table
from stelae.rows.operation_encoding import operation
from stelae.spi.errors import PluginError, Unavailable
from stelae.spi.write import OpKind
from stelae_spark_sink import data_source, rejects_table, stream_writer, table_access
from stelae_spark_sink.batch_rows import BatchDiffers
from stelae_spark_sink.stream_writer import CheckpointBehind, StreamWriter
from stelae_spark_sink.task_result import TableReplaced
from stelae_spark_sink.task_writer import EpochOver
from tests.unit.spark_sink.conftest import MASTERS, MadeTable

COLUMNS = [{"name": "id", "type": "int64"}, {"name": "note", "type": "string", "nullable": True}]
GIVEN = StructType([StructField("id", LongType()), StructField("note", StringType())])

NO_ROWS = bytes(operation(OpKind.UPSERT, [], None).rows)

InTask = Callable[[int, str], None]
Run = Callable[..., None]


@pytest.fixture
def table(make_table: MadeTable) -> Table:
    """The table of the stream."""
    return make_table("readings", COLUMNS, ["id"])


def stream(**options: str) -> StreamWriter:
    """A writer as the driver has it."""
    made = data_source.stream_writer({"masters": MASTERS, "table": "readings", **options}, GIVEN, overwrite=False)
    assert isinstance(made, StreamWriter)
    return made


@pytest.fixture
def in_task(monkeypatch: pytest.MonkeyPatch) -> InTask:
    """Returns a function that sets what Spark tells a task: the batch, and the run of the query."""
    monkeypatch.setattr(stream_writer, "_begun", {})

    def set_properties(batch: int, run: str) -> None:
        known = {stream_writer.QUERY_ID: "q1", stream_writer.BATCH_ID: str(batch), stream_writer.RUN_ID: run}
        monkeypatch.setattr(stream_writer, "task_property", known.get)

    return set_properties


@pytest.fixture
def run(in_task: InTask) -> Run:
    """Returns a function that runs a batch of one row, in a run of its own or in a given one.

    Spark makes a writer for each batch."""
    runs = count()

    def run(number: int, note: str | bytes, of: str = "", **options: str) -> None:
        in_task(number, of or f"run {next(runs)}")
        raw = pa.array([note.encode() if isinstance(note, str) else note], pa.binary())
        notes = pa.Array.from_buffers(pa.string(), 1, raw.buffers())
        rows = pa.RecordBatch.from_arrays([pa.array([number]), notes], GIVEN.names)
        writer = stream(**options)
        writer.commit([pickle.loads(pickle.dumps(writer)).write(iter([rows]))], number)

    return run


def begins(table: Table) -> int:
    """How many operations without rows the tablets got, for their epochs."""
    return sum(bytes(one.rows) == NO_ROWS for tablet in table._table._tablets for one in tablet.operations)


def test_a_process_begins_an_epoch_once_for_each_run_and_remembers_some_of_them(
    table: Table, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark makes a writer for each batch. Each had a run of its own, so each batch was begun on all tablets."""
    monkeypatch.setattr(stream_writer, "BEGUN_MAX", 2)
    for number, of in enumerate("aaab"):
        run(number, "new", of)
    assert begins(table) == 3 + 3 + 2 * 4, "on three tablets for each run, and twice on one at the end of each batch"
    run(4, "new", "c")
    run(5, "of a run that is forgotten", "a")
    assert [one for one, _ in stream_writer._begun] == ["c", "a"]
    assert table.scan().count() == 6


def test_every_task_of_a_batch_that_is_complete_writes_nothing(table: Table, run: Run) -> None:
    run(0, "first", "a")
    table.update({"id": 0, "note": "of others"})
    for _ in range(2):
        run(0, "first", "b")
    run(1, "next", "b")
    assert [row["note"] for row in table.scan(order="key").to_pylist()] == ["of others", "next"]


def test_of_two_queries_with_one_name_the_one_behind_fails(table: Table, run: Run) -> None:
    """Each of its batches was taken for one that is complete, and was skipped without an error."""
    run(0, "of a", "a")
    run(0, "of b", "b")  # It cannot be told from a batch that runs again.
    run(1, "of a", "a")
    with pytest.raises(EpochOver, match="a later run of the source writes the table"):
        run(1, "of b", "b")


def test_a_stream_may_wait_longer_than_a_write_is_retried(table: Table, run: Run) -> None:
    run(0, "new", timeoutSeconds="600")
    assert table.scan().to_pylist() == [{"id": 0, "note": "new"}]


def test_a_batch_waits_for_the_masters_as_long_as_its_tasks_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark makes a writer for each batch, in a new process after a pause of a minute. A stream ended if the masters
    were away for longer than a user waits who has mistyped an address."""
    waited: list[float] = []

    def none_answers(addresses: Sequence[str], *, timeout_s: float, **_others: object) -> Client:
        waited.append(timeout_s)
        raise Unavailable("no master answered in time")

    monkeypatch.setattr(table_access, "_clients", {})
    monkeypatch.setattr(table_access, "connect", none_answers)
    with pytest.raises(Unavailable, match=r"no master answered in time; check the option 'masters'"):
        stream(timeoutSeconds="90")
    assert waited == [90.0]


def test_a_batch_that_has_only_rejects_is_complete_when_it_runs_again(
    table: Table, make_table: MadeTable, run: Run
) -> None:
    """No tablet of the table had a row of the batch, so none knew that it was complete. The table of rejects did, and
    refused the rejects: each start of the query failed, after the driver was killed before its record of the batch."""
    rejects = make_table("rejects", rejects_table.definition(), [*rejects_table.KEY])
    options = {"rejectsTable": "rejects", "failOnRowErrors": "false"}
    for _ in range(2):
        run(7, b"\xff", **options)
    assert [row["code"] for row in rejects.scan().to_pylist()] == ["BAD_VALUE"]
    run(8, "good", **options)
    assert table.scan().to_pylist() == [{"id": 8, "note": "good"}]


def test_a_batch_during_which_the_table_is_created_anew_runs_again(
    table: Table, make_table: MadeTable, run: Run, in_task: InTask
) -> None:
    """A part of the batch was in the table that was dropped, and the batch counted as written."""
    in_task(3, "run")
    writer, notes = stream(), pa.array(["new"])
    messages = [writer.write(iter([pa.RecordBatch.from_arrays([pa.array([1]), notes], GIVEN.names)]))]
    anew = make_table("readings", COLUMNS, ["id"])
    anew._table._location = msgspec.structs.replace(anew._table._location, table_id="another")
    messages.append(writer.write(iter([pa.RecordBatch.from_arrays([pa.array([2]), notes], GIVEN.names)])))
    with pytest.raises(TableReplaced):
        writer.commit(messages, 3)
    run(3, "again")
    assert anew.scan(order="key").to_pylist() == [{"id": 2, "note": "new"}, {"id": 3, "note": "again"}]


def test_a_batch_before_the_last_one_is_refused_because_its_rows_may_be_others(table: Table, run: Run) -> None:
    """Spark repeats the last batch only. With a checkpoint that is a copy of an older one, a batch has a number that is
    complete and rows that are not, and they were skipped without an error."""
    for number in range(3):
        run(number, "first", "a")
    run(2, "again")
    with pytest.raises(CheckpointBehind, match=r"batch 1 .*'spark/q1'.* later one .*'readings'.* checkpoint"):
        run(1, "other rows")
    run(3, "next")
    assert [row["note"] for row in table.scan(order="key").to_pylist()] == [*["first"] * 3, "next"]


@pytest.fixture
def run_tasks(in_task: InTask) -> Callable[..., None]:
    """Returns a function that runs a batch in a run of its own, with a task for each list of keys."""
    runs = count(100)

    def run_tasks(number: int, *tasks: Sequence[int]) -> None:
        in_task(number, f"run {next(runs)}")
        writer, found = stream(), []
        for keys in tasks:
            columns = [pa.array(keys, pa.int64()), pa.array([f"batch {number}"] * len(keys), pa.string())]
            found.append(writer.write(iter([pa.RecordBatch.from_arrays(columns, GIVEN.names)])))
        writer.commit(found, number)

    return run_tasks


@pytest.mark.parametrize("others", [[1, 2, 3, 4], [1, 2]], ids=["more", "fewer"])
def test_a_batch_with_the_number_of_a_complete_one_and_other_rows_is_refused(
    table: Table, run_tasks: Callable[..., None], others: Sequence[int]
) -> None:
    """A checkpoint is copied after batch 4. The original writes batch 5, and the copy plans batch 5 with other offsets.
    It was skipped, so the rows that only the copy had never arrived."""
    run_tasks(4, [0])
    run_tasks(5, [1, 2], [3])
    for _ in range(2):
        with pytest.raises(
            BatchDiffers, match=rf"batch 5 .*'spark/q1' .*'readings' .* than the {len(others)} .*'source'"
        ):
            run_tasks(5, others)
    assert {row["id"] for row in table.scan().to_pylist()} == {0, 1, 2, 3}


def test_a_batch_that_runs_again_in_other_tasks_is_skipped_also_after_a_copy_with_more_rows_was_refused(
    table: Table, run_tasks: Callable[..., None]
) -> None:
    run_tasks(5, [1, 2], [3])
    with pytest.raises(BatchDiffers):
        run_tasks(5, [1, 2, 3, 4])
    table.delete({"id": 2})
    run_tasks(5, [3, 1], [], [2])
    run_tasks(6, [7])
    run_tasks(6, [], [7])
    assert {row["id"] for row in table.scan().to_pylist()} == {1, 3, 7}


def test_other_rows_of_the_same_number_are_not_noticed(table: Table, run_tasks: Callable[..., None]) -> None:
    """The page *Write streams exactly once* says so: values may differ in a batch that rightly runs again."""
    run_tasks(5, [1, 2])
    run_tasks(5, [3, 4])
    assert {row["id"] for row in table.scan().to_pylist()} == {1, 2}


def test_a_batch_is_repeated_if_the_driver_ends_between_the_number_of_its_rows_and_its_completion(
    table: Table, run_tasks: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(stream_writer, "complete_job", killed)
        run_tasks(5, [1, 2])
    table.delete({"id": 1})
    run_tasks(5, [2], [1])
    run_tasks(5, [1, 2])
    assert {row["id"] for row in table.scan().to_pylist()} == {1, 2}


def test_a_batch_that_repeats_a_key_warns(
    table: Table, run_tasks: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    run_tasks(5, [1, 2, 1])
    assert "warning: at least 1 rows for table 'readings' have the key of another row" in capsys.readouterr().err


def test_a_stream_with_a_name_and_a_job_with_the_same_name_are_two_sources(table: Table, run: Run) -> None:
    run(0, "new", source="weather")
    assert table.epoch("weather", 0).begin() and table.epoch("weather/upsert", 0).begin()
    assert not table.epoch("weather/stream-upsert", 0).begin()


def test_a_task_that_spark_does_not_tell_its_batch_fails(table: Table) -> None:
    with pytest.raises(PluginError, match=r"its query and batch \(sql.streaming.queryId, streaming.sql.batchId\)"):
        stream().write(iter([]))
