"""A whole job against tables in memory: what the driver checks first, and what it does when all tasks have written."""

from __future__ import annotations

import json
from datetime import datetime
from threading import Barrier
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from stelae.client import LaterEpoch, Table
from stelae.host import source_epochs
from stelae.spi.errors import SchemaMismatch, StelaeError, Unavailable
from stelae_spark_sink import overwrite, rejects_table
from stelae_spark_sink.job_sources import rejects_fence
from stelae_spark_sink.json_filters import to_json
from stelae_spark_sink.task_result import RowsNotWritten, TableReplaced
from stelae_spark_sink.task_writer import EpochOver
from tests.unit.spark_sink.conftest import MadeTable
from tests.unit.spark_sink.jobs import COLUMNS, GIVEN, WHERE, held, job, tasks


@pytest.fixture
def table(make_table: MadeTable) -> Table:
    """The table of the job, with rows of three days."""
    made = make_table("readings", COLUMNS, ["id"])
    made.insert([(n, n % 3, "old") for n in range(30)])
    return made


@pytest.fixture
def rejects(make_table: MadeTable) -> Table:
    """A table of rejects."""
    return make_table("rejects", rejects_table.definition(), [*rejects_table.KEY])


def tablets_of(table: Table) -> Any:
    return table._table._tablets


def others(day: int = 2) -> dict[int, tuple[int, Any]]:
    return {n: (n % 3, "old") for n in range(30) if n % 3 != day}


def test_replace_where_replaces_only_the_rows_of_its_filters(table: Table) -> None:
    writer = job(overwrite=True, replaceWhere=WHERE)
    messages = tasks(writer, [(2, 2, "new"), (100, 2, "new")], [])
    assert len(held(table)) == 31, "nothing is deleted before all tasks have written"
    writer.commit(messages)
    assert held(table) == {**others(), 2: (2, "new"), 100: (2, "new")}


def test_a_row_that_others_move_into_the_filters_during_the_job_stays(table: Table) -> None:
    writer = job(overwrite=True, replaceWhere=WHERE)
    messages = tasks(writer, [(2, 2, "new")])
    table.update({"id": 3, "day": 2})
    table.insert((200, 2, "theirs"))
    writer.commit(messages)
    assert held(table) == {**others(), 2: (2, "new"), 3: (2, "old"), 200: (2, "theirs")}


@pytest.mark.parametrize("wall", [1, 1 << 62], ids=["behind", "ahead"])
def test_rows_of_others_stay_whatever_the_clock_of_the_driver_says(
    table: Table, monkeypatch: pytest.MonkeyPatch, wall: int
) -> None:
    """The clock gave the end of the changes, so rows of others were deleted, or their reads were refused."""
    monkeypatch.setattr(table._table, "_wall_timestamp", lambda: wall)
    writer = job(overwrite=True)
    messages = tasks(writer, [(1, 1, "new")])
    table.upsert((2, 2, "theirs"))
    table._table._writer.written.clear()  # The other client is another process.
    writer.commit(messages)
    assert held(table) == {1: (1, "new"), 2: (2, "theirs")}
    assert all(at is None or at < 1 << 62 for tablet in tablets_of(table) for _, at, _ in tablet.pages)


@pytest.mark.parametrize("read", [0, 1])
def test_a_row_that_others_write_before_the_deletes_stays(
    table: Table, monkeypatch: pytest.MonkeyPatch, read: int
) -> None:
    """The row is written after the keys of the old rows were read, or after the changes of the job were."""
    monkeypatch.setattr(overwrite, "TABLETS_AT_ONCE", 1)
    writer = job(overwrite=True)
    messages = tasks(writer, [(1, 1, "new")])
    keys, calls = overwrite._keys, []

    def keys_and_a_write(*args: Any) -> Any:
        found = keys(*args)
        calls.append(found)
        if len(calls) == read + 1:
            table.upsert((others_row(), 2, "theirs"))
        return found

    def others_row() -> int:
        """A row of the tablet whose rows are deleted first."""
        return next(int(n) for n in calls[0].column("id").to_pylist() if n != 1)

    monkeypatch.setattr(overwrite, "_keys", keys_and_a_write)
    writer.commit(messages)
    assert held(table) == {1: (1, "new"), others_row(): (2, "theirs")}


def test_rows_are_removed_from_several_tablets_at_once(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tablet by tablet, a table of thousands of tablets was waited for thousands of times."""
    writer = job(overwrite=True)
    messages = tasks(writer, [(1, 1, "new")])
    keys, all_are_here = overwrite._keys, Barrier(len(tablets_of(table)))

    def keys_when_all_are_here(*args: Any) -> Any:
        all_are_here.wait(30)
        return keys(*args)

    monkeypatch.setattr(overwrite, "_keys", keys_when_all_are_here)
    writer.commit(messages)
    assert held(table) == {1: (1, "new")}


def test_more_rows_than_one_delete_takes_are_deleted(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overwrite, "DELETE_ROWS_MAX", 4)
    writer = job(overwrite=True)
    writer.commit(tasks(writer, [(1, 1, "new")]))
    assert held(table) == {1: (1, "new")}


def test_each_tablet_is_read_at_the_time_before_an_overwriting_job(table: Table) -> None:
    """A tablet whose clock was behind gave rows of the job that time or a lower one, and they counted as old."""
    writer = job(overwrite=True)
    for tablet in tablets_of(table):
        assert tablet.pages[-1][1] == writer._overwritten_at


def test_a_time_of_numpy_in_replace_where_is_that_time(make_table: MadeTable) -> None:
    """It was taken for microseconds, which made it a thousand times as large, and all rows were deleted."""
    columns = [{"name": "id", "type": "int64"}, {"name": "at", "type": "timestamp"}]
    table = make_table("readings", columns, ["id"])
    table.insert([(year, datetime(year, 1, 1)) for year in (2020, 2021, 2022)])
    where = to_json(("at", "<", np.datetime64("2021-01-01", "ns")))  # As ``write_table`` does.
    given = StructType([StructField("id", LongType()), StructField("at", TimestampType())])
    writer = job(given, overwrite=True, replaceWhere=where)
    when = pa.array([datetime(2020, 6, 1)], pa.timestamp("us", "UTC"))
    writer.commit([writer.write(iter([pa.RecordBatch.from_arrays([pa.array([2019]), when], ["id", "at"])]))])
    assert sorted(row["id"] for row in table.scan(["id"]).to_pylist()) == [2019, 2021, 2022]


def test_a_row_outside_of_the_filters_fails_the_job_and_nothing_is_deleted(table: Table) -> None:
    writer = job(overwrite=True, replaceWhere=WHERE)
    with pytest.raises(RowsNotWritten, match=r"(?s)1 of 2 rows are written.*OUTSIDE_REPLACE_WHERE") as error:
        writer.commit(tasks(writer, [(2, 2, "new"), (100, 1, "new")]))
    assert "id=100, day=1" in str(error.value)
    assert held(table) == {**{n: (n % 3, "old") for n in range(30)}, 2: (2, "new")}


def test_a_job_that_was_killed_before_its_deletes_is_completed_by_the_next(table: Table) -> None:
    tasks(job(overwrite=True, replaceWhere=WHERE, source="s", epoch="1"), [(2, 2, "new")], [(100, 2, "half")])
    again = job(overwrite=True, replaceWhere=WHERE, source="s", epoch="1")
    again.commit(tasks(again, [(2, 2, "new"), (100, 2, "new")]))
    assert held(table) == {**others(), 2: (2, "new"), 100: (2, "new")}
    table.insert((300, 2, "later"))
    third = job(overwrite=True, replaceWhere=WHERE, source="s", epoch="1")
    third.commit(tasks(third, [(2, 2, "new"), (100, 2, "new")]))
    assert 300 in held(table), "a job that is complete deletes nothing when it runs again"


def test_the_epoch_is_complete_in_the_table_of_rejects_behind_the_job(table: Table, rejects: Table) -> None:
    options = {
        "operation": "insert",
        "source": "s",
        "epoch": "3",
        "rejectsTable": "rejects",
        "failOnRowErrors": "false",
    }
    writer = job(**options)
    writer.commit(tasks(writer, [(1, 0, "new"), (50, 0, "new")]))
    assert len(rejects.scan().to_pylist()) == 1
    assert not rejects.epoch(*rejects_fence(writer._fence, "readings")).begin()
    again = job(**options)
    again.commit(tasks(again, [(2, 0, "new")]))
    assert len(rejects.scan().to_pylist()) == 1


def test_a_job_that_has_only_rejects_is_complete_when_it_runs_again(table: Table, rejects: Table) -> None:
    """Its epoch was over in the table of rejects and not in the table of the job, so each repetition of it failed."""
    for _ in range(2):
        writer = job(source="s", epoch="3", rejectsTable="rejects", failOnRowErrors="false")
        writer.commit(tasks(writer, [(100, None, "no day")]))
    assert len(rejects.scan().to_pylist()) == 1 and len(held(table)) == 30


def test_two_operations_of_one_source_and_epoch_are_both_written(table: Table) -> None:
    """``foreachBatch`` merges a change feed with two writes. The second one was skipped."""
    upserts = job(source="feed", epoch="0")
    upserts.commit(tasks(upserts, [(1, 1, "new")]))
    keys = StructType([StructField("id", LongType())])
    for ids, left in (([2], 29), ([3], 29)):
        deletes = job(keys, source="feed", epoch="0", operation="delete_ignore")
        deletes.commit([deletes.write(iter([pa.RecordBatch.from_arrays([pa.array(ids)], ["id"])]))])
        assert len(held(table)) == left, "each of them is written once"
    assert held(table)[1] == (1, "new") and 2 not in held(table)


def test_two_tables_of_one_source_share_a_table_of_rejects(table: Table, make_table: MadeTable) -> None:
    """The epoch was over in the table of rejects, which has one tablet, when the second table was written."""
    rejects = make_table("rejects", rejects_table.definition(), [*rejects_table.KEY], partition={})
    make_table("stations", COLUMNS, ["id"]).insert((1, 1, "taken"))
    options = {"source": "weather", "epoch": "7", "operation": "insert"}
    for _ in range(2):  # Spark starts the query again, and repeats the batch.
        for name in ("readings", "stations"):
            writer = job(table=name, rejectsTable="rejects", failOnRowErrors="false", **options)
            writer.commit(tasks(writer, [(1, 1, "new"), (200, 2, "new")]))
    found = rejects.scan().to_pylist()
    assert sorted((row["table"], row["source"]) for row in found) == [("readings", "weather"), ("stations", "weather")]


@pytest.mark.parametrize("size", [1 << 10, 70 << 10, 300 << 10])
def test_a_row_that_is_too_large_for_a_cell_is_in_the_table_of_rejects(table: Table, rejects: Table, size: int) -> None:
    """From 64 KiB the table refused it, which failed the job, and each repetition of it."""
    writer = job(rejectsTable="rejects", failOnRowErrors="false", operation="insert")
    writer.commit(tasks(writer, [(1, 1, "x" * size), (200, 2, "fine")]))
    (found,) = rejects.scan().to_pylist()
    assert 200 in held(table) and (found["row"] is None) == (size > 64 << 10)
    assert ("does not take the row: column 'row'" in found["reason"]) == (size == 70 << 10)


def test_text_that_is_not_utf8_is_in_the_table_of_rejects(table: Table, rejects: Table) -> None:
    writer = job(rejectsTable="rejects", failOnRowErrors="false")
    raw = pa.array([b"fine", b"\xff\xfe"], pa.binary())
    note = pa.Array.from_buffers(pa.string(), 2, raw.buffers())
    rows = pa.RecordBatch.from_arrays([pa.array([200, 201]), pa.array([2, 2]), note], GIVEN.names)
    writer.commit([writer.write(iter([rows]))])
    (found,) = rejects.scan().to_pylist()
    assert 200 in held(table) and json.loads(found["row"]) == {"id": 201, "day": 2, "note": "//4="}


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_time_beyond_the_year_9999_is_in_the_table_of_rejects(
    make_table: MadeTable, rejects: Table, overwrite: bool
) -> None:
    """``timestamp'9999-12-31 23:59:59'`` of a session in New York is in the year 10000 in UTC."""
    table = make_table("readings", [{"name": "id", "type": "int64"}, {"name": "at", "type": "timestamp"}], ["id"])
    given = StructType([StructField("id", LongType()), StructField("at", TimestampType())])
    outside = {"replaceWhere": '["id", ">", 1]'} if overwrite else {}
    writer = job(given, overwrite=overwrite, rejectsTable="rejects", failOnRowErrors="false", **outside)
    late = 253_402_318_799_000_000
    times = pa.array([late, 0], pa.int64()).view(pa.timestamp("us", "UTC"))
    writer.commit([writer.write(iter([pa.RecordBatch.from_arrays([pa.array([1, 2]), times], given.names)]))])
    (found,) = rejects.scan().to_pylist()
    assert table.scan(["id"]).to_pylist() == [{"id": 2}] and json.loads(found["row"]) == {"id": 1, "at": late}


@pytest.mark.parametrize("end", ["abort", "commit"])
def test_a_task_of_a_job_that_has_failed_changes_nothing_any_more(table: Table, end: str) -> None:
    failed = job(operation="update")
    if end == "abort":
        failed.abort([None])
    else:
        with pytest.raises(RowsNotWritten):
            failed.commit(tasks(failed, [(999, 0, "no such row")]))
    again = job()
    again.commit(tasks(again, [(1, 1, "new")]))
    with pytest.raises(EpochOver):
        tasks(failed, [(1, 1, "old")])
    assert held(table)[1] == (1, "new")


def test_a_task_of_a_failed_job_with_a_source_may_write_because_a_repeated_job_does(table: Table) -> None:
    failed = job(source="s", epoch="1")
    failed.abort([None])
    again = job(source="s", epoch="1")
    again.commit(tasks(again, [(1, 1, "new")]))
    assert held(table)[1] == (1, "new")


def test_a_failed_job_that_is_repeated_after_the_next_one_is_refused_and_not_taken_for_complete(table: Table) -> None:
    job(source="s", epoch="1").abort([None])
    following = job(source="s", epoch="2")
    following.commit(tasks(following, [(1, 1, "new")]))
    assert job(source="s", epoch="2")._is_complete
    with pytest.raises(LaterEpoch, match="epoch 1 of source 's/upsert' is not written"):
        job(source="s", epoch="1")


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_job_without_a_source_does_not_take_a_place_among_the_sources_for_days(
    table: Table, rejects: Table, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr(source_epochs, "SOURCES_MAX", 4)  # It is 65 536.
    for number in range(4):
        writer = job(rejectsTable="rejects", operation="insert_ignore")
        if end == "commit":
            writer.commit(tasks(writer, [(n, 0, str(number)) for n in range(100, 120)]))
        else:
            writer.abort([None])
    for tablet in (*tablets_of(table), *(tablets_of(rejects) if end == "abort" else ())):
        sources, now = tablet._results.sources, tablet.clock.now()
        assert not sources.have_room_for([job()._fence], lambda now=now: now)
        assert sources.have_room_for([job()._fence], lambda now=now: now + source_epochs.ENDED_AGE_MAX)


def test_a_job_that_fails_while_no_tablet_answers_says_that_its_tasks_may_write(
    table: Table, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = job()
    for tablet in tablets_of(table):
        monkeypatch.setattr(tablet, "error", Unavailable("no leader"))
    failed.abort([None])
    assert "a task of the job that is still alive may write: tablet readings-0" in capsys.readouterr().err


@pytest.mark.parametrize("more", [{}, {"source": "s", "epoch": "1"}, {"overwrite": True}], ids=["job", "source", "all"])
def test_a_job_may_wait_longer_than_a_write_is_retried(table: Table, rejects: Table, more: dict[str, Any]) -> None:
    """The client refused the timeout when the job was committed, after all rows were written."""
    writer = job(timeoutSeconds="600", rejectsTable="rejects", failOnRowErrors="false", **more)
    writer.commit(tasks(writer, [(1, 1, "new")]))
    assert held(table)[1] == (1, "new")


def test_a_job_that_fails_names_the_table_of_rejects_and_a_repeated_one_adds_nothing(
    table: Table, rejects: Table
) -> None:
    for _ in range(2):
        writer = job(operation="insert", source="s", epoch="3", rejectsTable="rejects")
        with pytest.raises(RowsNotWritten, match="1 are not, see table 'rejects'"):
            writer.commit(tasks(writer, [(1, 0, "new"), (50, 0, "new")]))
    assert len(rejects.scan().to_pylist()) == 1


@pytest.mark.parametrize(
    ("overwrite", "options", "words"),
    [
        (False, {"replaceWhere": WHERE}, "'replaceWhere' applies to overwrite: set mode"),
        (True, {"replaceWhere": "[]"}, "expected at least one filter"),
        (True, {"replaceWhere": '[["days", "=", 2]]'}, "no column 'days'"),
        (True, {"replaceWhere": '[["day", "=", "two"]]'}, "in a filter, column 'day': expected int64"),
        (True, {"ignoreNull": "true"}, "'ignoreNull' does not apply to overwrite"),
        (True, {"operation": "insert"}, "'operation' does not apply to overwrite"),
        (False, {"ignoreNull": "true", "operation": "delete"}, "'ignoreNull' does not apply to delete"),
        (False, {"rejectsTable": "readings"}, "'readings' cannot store rejects: it needs the columns table string"),
    ],
)
def test_options_that_do_not_fit_are_refused_before_a_task_runs(
    table: Table, overwrite: bool, options: dict[str, str], words: str
) -> None:
    with pytest.raises(StelaeError, match=words):
        job(overwrite=overwrite, **options)


@pytest.mark.parametrize(
    ("field", "words"),
    [
        (StructField("notes", StringType()), "no column 'notes'; the table has: id, day, note; did you mean 'note'"),
        (StructField("note", LongType()), "column 'note': expected string"),
    ],
)
def test_a_column_that_does_not_fit_is_refused_before_a_task_runs(table: Table, field: StructField, words: str) -> None:
    """The columns were checked by the first batch of each task only."""
    with pytest.raises(SchemaMismatch, match=f"upsert into table 'readings': {words}.*has: id int64, day int64"):
        job(StructType([*GIVEN.fields[:2], field]))


@pytest.mark.parametrize("change", ["required", "type", "key", "not null"])
def test_a_table_of_rejects_with_other_columns_is_refused(table: Table, make_table: MadeTable, change: str) -> None:
    columns, key = rejects_table.definition(), [*rejects_table.KEY]
    match change:
        case "required":
            columns.append({"name": "more", "type": "int64"})
        case "type":
            columns[2]["type"] = "int32"
        case "key":
            key = key[:3]
        case _:
            columns[-1]["nullable"] = False
    make_table("rejects", columns, key)
    with pytest.raises(SchemaMismatch, match=r"create one with stelae\.spark\.create_rejects_table"):
        job(rejectsTable="rejects")


def test_a_table_of_rejects_may_have_columns_of_its_owner(table: Table, make_table: MadeTable) -> None:
    extra = {"name": "seen", "type": "timestamp", "nullable": True}
    make_table("rejects", [*rejects_table.definition(), extra], [*rejects_table.KEY])
    job(rejectsTable="rejects")


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_table_that_is_created_anew_while_a_job_writes_it_fails_the_job(
    table: Table, make_table: MadeTable, overwrite: bool
) -> None:
    """As by a restore that replaces it. The job said that all rows are written, and half of them were in the table that
    was dropped; an overwrite deleted rows of the new one."""
    table._table._location = msgspec.structs.replace(table._table._location, table_id="t1")
    writer = job(overwrite=overwrite)
    messages = tasks(writer, [(1, 1, "new")])
    anew = make_table("readings", COLUMNS, ["id"])
    anew._table._location = msgspec.structs.replace(anew._table._location, table_id="t2")
    anew.insert((7, 0, "restored"))
    messages += tasks(writer, [(2, 2, "new")])
    with pytest.raises(TableReplaced, match=r"'readings' was dropped and created anew while a job wrote it.*job again"):
        writer.commit(messages)
    assert 7 in held(anew)
