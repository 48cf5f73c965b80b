"""The rows of one task, against tables in memory: nulls, rejects, ``replaceWhere``, later epochs, two attempts."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from stelae.client import Table
from stelae.client.table import AsyncTable
from stelae.spi.errors import Unavailable
from stelae.spi.write import SourceFence, checked_fence
from stelae_spark_sink import rejects_table, task_writer
from stelae_spark_sink.job_sources import rejects_fence
from stelae_spark_sink.options import SourceOptions, Use
from stelae_spark_sink.task_result import TaskResult
from stelae_spark_sink.task_writer import EpochOver, TaskFailed, write_task
from tests.unit.spark_sink.conftest import MASTERS, MadeTable

COLUMNS = [
    {"name": "id", "type": "int64"},
    {"name": "station", "type": "string", "nullable": True},
    {"name": "celsius", "type": "double", "nullable": True, "default": 1.5},
]
FENCE = checked_fence("job", 4)
Rows = list[tuple[int, str | None, float | None]]


@pytest.fixture
def table(make_table: MadeTable) -> Table:
    """The table of the job."""
    return make_table("readings", COLUMNS, ["id"])


@pytest.fixture
def rejects(make_table: MadeTable) -> Table:
    """A table of rejects."""
    return make_table("rejects", rejects_table.definition(), [*rejects_table.KEY])


def options(**more: str) -> SourceOptions:
    return SourceOptions({"masters": MASTERS, "table": "readings", **more}, Use.WRITE)


def batch(rows: Rows) -> pa.RecordBatch:
    names = [column["name"] for column in COLUMNS]
    types = [pa.int64(), pa.string(), pa.float64()]
    arrays = [pa.array([row[n] for row in rows], kind) for n, kind in enumerate(types)]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def write(rows: Rows, fence: SourceFence = FENCE, **more: str) -> TaskResult:
    return write_task(options(**more), fence, [batch(rows)])


def held(table: Table) -> dict[int, tuple[Any, ...]]:
    return {row["id"]: (row["station"], row["celsius"]) for row in table.scan().to_pylist()}


# -- ignoreNull ------------------------------------------------------------------------------------


def test_a_null_overwrites_a_value_unless_nulls_are_ignored(table: Table) -> None:
    table.insert([(1, "Oslo", 3.0), (2, "Bergen", 4.0)])
    write([(1, None, 5.0)])
    write([(2, None, 5.0)], ignoreNull="true")
    assert held(table) == {1: (None, 5.0), 2: ("Bergen", 5.0)}


def test_rows_with_different_nulls_are_written_in_one_batch_and_new_rows_get_defaults(table: Table) -> None:
    table.insert([(1, "Oslo", 3.0), (2, "Bergen", 4.0), (3, "Voss", 5.0)])
    result = write([(1, None, 9.0), (2, "x", None), (3, None, None), (4, "new", None)], ignoreNull="true")
    assert (result.rows, result.failed) == (4, 0)
    assert held(table) == {1: ("Oslo", 9.0), 2: ("x", 4.0), 3: ("Voss", 5.0), 4: ("new", 1.5)}


@pytest.mark.parametrize("operation", ["insert", "insert_ignore"])
def test_an_insert_gives_the_default_where_nulls_are_ignored(table: Table, operation: str) -> None:
    write([(1, None, None)], operation=operation)
    write([(2, None, None)], operation=operation, ignoreNull="true")
    assert held(table) == {1: (None, None), 2: (None, 1.5)}


def test_an_update_of_nothing_but_the_key_finds_its_row_or_fails(table: Table) -> None:
    table.insert((1, "Oslo", 3.0))
    result = write([(1, None, None), (2, None, None)], operation="update", ignoreNull="true")
    assert (result.failed, len(result.samples)) == (1, 1)
    assert "NOT_FOUND" in result.samples[0] and "id=2" in result.samples[0]
    assert held(table) == {1: ("Oslo", 3.0)}


# -- rejects ---------------------------------------------------------------------------------------


def rejected(rejects: Table) -> list[tuple[str, int, str, str, Any]]:
    found = rejects.scan(order="key").to_pylist()
    return sorted((r["source"], r["epoch"], r["operation"], r["code"], json.loads(r["row"])["id"]) for r in found)


def test_every_row_that_is_not_written_is_in_the_table_of_rejects_with_the_reason(table: Table, rejects: Table) -> None:
    table.insert([(n, "old", None) for n in range(0, 3000, 2)])
    result = write([(n, None, n / 2) for n in range(3000)], operation="insert", rejectsTable="rejects")
    assert (result.rows, result.failed) == (3000, 1500)
    assert rejected(rejects) == [("job", 4, "insert", "ALREADY_PRESENT", n) for n in range(0, 3000, 2)]
    one = rejects.scan(limit=1).to_pylist()[0]
    assert one["table"] == "readings" and one["reason"] == "a row with this key exists"
    row = json.loads(one["row"])
    assert row == {"id": row["id"], "station": None, "celsius": row["id"] / 2}
    assert result.rejects_tablets


def test_a_task_that_runs_again_with_other_batches_writes_each_reject_once(table: Table, rejects: Table) -> None:
    table.insert([(n, "old", None) for n in range(0, 100, 2)])
    rows: Rows = [(n, "new", 1.0) for n in range(100)]
    write(rows, operation="insert", rejectsTable="rejects")
    write(rows[::-1][:50], operation="insert", rejectsTable="rejects")
    write(rows[::-1][50:], operation="insert", rejectsTable="rejects")
    assert len(rejected(rejects)) == 50


def test_rejects_have_the_values_of_their_rows_where_nulls_are_ignored(table: Table, rejects: Table) -> None:
    write([(n, "s" if n % 2 else None, None) for n in range(20)], operation="update", ignoreNull="true",
          rejectsTable="rejects")  # fmt: skip
    found = {json.loads(row["row"])["id"]: json.loads(row["row"])["station"] for row in rejects.scan().to_pylist()}
    assert found == {n: "s" if n % 2 else None for n in range(20)}


def test_a_reject_that_is_too_long_has_its_reason_without_the_row(
    table: Table, rejects: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rejects_table, "ROW_BYTES_MAX", 100)
    write([(1, "x" * 100, None), (2, "x", None)], operation="update", rejectsTable="rejects")
    found = {row["row"]: row["reason"] for row in rejects.scan().to_pylist()}
    assert found.keys() == {None, '{"id": 2, "station": "x", "celsius": null}'}
    assert "there is no row with this key; the row has 141 bytes as JSON, too many" in found[None]


def test_rejects_that_cannot_be_written_fail_the_task(
    table: Table, rejects: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tablet in rejects._table._tablets:
        monkeypatch.setattr(tablet, "error", Unavailable("no leader"))
    with pytest.raises(Unavailable, match=r"1 of 1 rejects could not be written to table 'rejects'.*repeated"):
        write([(1, None, None)], operation="update", rejectsTable="rejects")


# -- replaceWhere ----------------------------------------------------------------------------------

COLD = '["celsius", "<", 0]'


def test_rows_outside_of_the_filters_are_not_written(table: Table, rejects: Table) -> None:
    rows: Rows = [(1, "a", -1.0), (2, "b", 0.0), (3, "c", None), (4, "d", float("nan")), (5, "e", -2.0)]
    result = write(rows, replaceWhere=COLD, rejectsTable="rejects")
    assert (result.rows, result.failed) == (5, 3)
    assert "OUTSIDE_REPLACE_WHERE: the filters of the option 'replaceWhere' do not hold" in result.samples[0]
    assert [*held(table)] == [1, 5]
    assert [one[3:] for one in rejected(rejects)] == [("OUTSIDE_REPLACE_WHERE", n) for n in (2, 3, 4)]


def test_a_task_whose_rows_are_all_outside_writes_nothing(table: Table) -> None:
    assert write([(1, "a", 1.0)], replaceWhere=COLD).failed == 1
    assert held(table) == {}


# -- failures that pass ----------------------------------------------------------------------------


def test_a_row_of_a_new_range_fails_the_task_while_no_master_answers(make_table: MadeTable) -> None:
    """Without failOnRowErrors, the row was dropped and the batch completed."""
    ranges = {"range": {"columns": ["id"], "ranges": [{"from": [0], "until": [10]}]}}
    table = make_table("readings", COLUMNS, ["id"], partition=ranges)

    async def down(timeout_s: float) -> bool:
        raise Unavailable("no master answered in time")

    table._table._writer.refresh = down
    with pytest.raises(TaskFailed, match=r"1 of 2 rows of a batch are not written.*no master answered"):
        write([(1, "a", None), (12, "of a range that was added", None)], failOnRowErrors="false")


def test_a_repeated_insert_whose_row_cannot_be_read_now_fails_the_task(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def down(*_: Any) -> Any:
        raise Unavailable("no replica answered in time")

    write([(1, "a", None), (2, "b", None)], operation="insert")
    monkeypatch.setattr(AsyncTable, "_find_rows", down)
    with pytest.raises(TaskFailed, match="2 of 2 rows of a batch are not written"):
        write([(1, "a", None), (2, "b", None)], operation="insert", failOnRowErrors="false")


# -- epochs and attempts ---------------------------------------------------------------------------


def test_a_task_that_meets_a_later_epoch_fails_and_writes_nothing_more(table: Table) -> None:
    """Half of the rows are written when the next run of the source begins."""

    def rows() -> Iterator[pa.RecordBatch]:
        yield batch([(n, "old run", 0.0) for n in range(task_writer.WRITE_ROWS)])
        table.epoch("job", 5).begin()
        table.epoch("job", 5).upsert([(n, "new run", 1.0) for n in range(10)])
        yield batch([(n, "old run", 0.0) for n in range(20)])

    with pytest.raises(
        EpochOver, match=r"STALE_EPOCH.*a later run of the source writes the table, and this one cannot"
    ):
        write_task(options(), FENCE, rows())
    found = held(table)
    assert len(found) == task_writer.WRITE_ROWS
    assert [found[n][0] for n in (0, 9, 10)] == ["new run", "new run", "old run"]


def test_a_task_whose_epoch_is_over_in_the_table_of_rejects_fails(table: Table, rejects: Table) -> None:
    rejects.epoch(*rejects_fence(checked_fence("job", 5), "readings")).begin()
    with pytest.raises(EpochOver):
        write([(1, None, None)], operation="update", rejectsTable="rejects")


@pytest.mark.parametrize("operation", ["insert", "upsert", "update", "delete"])
def test_two_attempts_of_a_task_at_once_have_the_effect_of_one(
    table: Table, rejects: Table, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    """As with speculation: both write, batch by batch, with the same identity. Neither may fail a row of the other."""
    monkeypatch.setattr(task_writer, "WRITE_ROWS", 50)
    if operation != "insert":
        table.insert([(n, "old", None) for n in range(1000)])
    rows: Rows = [(n, "new", float(n)) for n in range(1000)]
    turn = threading.Barrier(2, timeout=30)
    results: list[TaskResult] = []

    def attempt(order: Callable[[Rows], Rows]) -> None:
        def batches() -> Iterator[pa.RecordBatch]:
            for start in range(0, 1000, 50):
                turn.wait()
                yield batch(order(rows)[start : start + 50])

        results.append(write_task(options(operation=operation, rejectsTable="rejects"), FENCE, batches()))

    orders: list[Callable[[Rows], Rows]] = [lambda found: found, lambda found: found[200:] + found[:200]]
    threads = [threading.Thread(target=attempt, args=(order,)) for order in orders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [(result.rows, result.failed) for result in results] == [(1000, 0)] * 2
    assert held(table) == ({} if operation == "delete" else {n: ("new", float(n)) for n in range(1000)})
    assert rejected(rejects) == []
