"""An overwrite of which rows cannot be written: which old rows are removed, and what a repeated job does."""

from __future__ import annotations

import pytest

from stelae.client import Table
from stelae_spark_sink import batch_writer, rejects_table
from stelae_spark_sink.task_result import RowsNotWritten
from tests.unit.spark_sink.conftest import MadeTable
from tests.unit.spark_sink.jobs import COLUMNS, WHERE, Rows, held, job, tasks

NIGHT = {"source": "nightly", "epoch": "1", "failOnRowErrors": "false"}
KEPT = "old rows with the keys of these rows stay; the others were removed"


@pytest.fixture
def table(make_table: MadeTable) -> Table:
    """The table of the job, with old rows."""
    made = make_table("readings", COLUMNS, ["id"])
    made.insert([(n, n % 3, "old") for n in range(6)])
    return made


@pytest.mark.parametrize("with_rejects", [False, True])
def test_old_rows_are_removed_except_those_of_the_refused_rows(
    table: Table, make_table: MadeTable, capsys: pytest.CaptureFixture[str], with_rejects: bool
) -> None:
    """None was removed, the log did not say so, and a repeated job was skipped: the table was old and new together."""
    make_table("rejects", rejects_table.definition(), [*rejects_table.KEY])
    options = {**NIGHT, "rejectsTable": "rejects"} if with_rejects else NIGHT
    parts: list[Rows] = [[(1, 1, "new"), (2, None, "no day")], [(7, 1, "new"), (8, None, "no day")]]
    writer = job(overwrite=True, **options)
    writer.commit(tasks(writer, *parts))
    new = {1: (1, "new"), 2: (2, "old"), 7: (1, "new")}
    assert held(table) == new
    said = capsys.readouterr().err
    assert "2 of 4 rows are written" in said and "BAD_VALUE" in said and KEPT in said
    again = job(overwrite=True, **options)
    again.commit(tasks(again, *parts))
    assert held(table) == new and "is complete in table 'readings'" in capsys.readouterr().err


def test_a_row_outside_of_replace_where_keeps_its_old_row(table: Table) -> None:
    writer = job(overwrite=True, replaceWhere=WHERE, failOnRowErrors="false")
    writer.commit(tasks(writer, [(2, 1, "outside"), (8, 2, "new")]))
    assert held(table) == {0: (0, "old"), 1: (1, "old"), 2: (2, "old"), 3: (0, "old"), 4: (1, "old"), 8: (2, "new")}


def test_a_job_with_too_many_refused_rows_fails_and_is_completed_by_a_repeated_one(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_writer, "REFUSED_KEYS_MAX", 1)
    writer = job(overwrite=True, **NIGHT)
    messages = tasks(writer, [(1, 1, "new"), (2, None, "no day"), (3, None, "no day")])
    with pytest.raises(RowsNotWritten, match=r"no old row was removed, because more than .*run the job again"):
        writer.commit(messages)
    assert held(table) == {1: (1, "new"), **{n: (n % 3, "old") for n in (0, 2, 3, 4, 5)}}
    again = job(overwrite=True, **NIGHT)
    again.commit(tasks(again, [(1, 1, "new"), (2, 2, "corrected")]))
    assert held(table) == {1: (1, "new"), 2: (2, "corrected")}


def test_a_job_that_writes_no_row_removes_none(table: Table, make_table: MadeTable) -> None:
    """As with filters that are those of another day. A repeated job does the same."""
    rejects = make_table("rejects", rejects_table.definition(), [*rejects_table.KEY])
    for _ in range(2):
        writer = job(overwrite=True, replaceWhere=WHERE, rejectsTable="rejects", **NIGHT)
        with pytest.raises(RowsNotWritten, match="no old row was removed, because no new one is written"):
            writer.commit(tasks(writer, [(7, 1, "outside")]))
    assert len(held(table)) == 6 and len(rejects.scan().to_pylist()) == 1


def test_a_job_that_fails_says_that_no_old_row_was_removed(table: Table) -> None:
    writer = job(overwrite=True)
    with pytest.raises(RowsNotWritten, match=r"(?s)BAD_VALUE.*no old row was removed\nset the option"):
        writer.commit(tasks(writer, [(1, 1, "new"), (2, None, "no day")]))
    assert len(held(table)) == 6


def test_a_refused_key_that_does_not_fit_the_table_keeps_no_row(make_table: MadeTable) -> None:
    """The types of the keys differ, and one of the values is none of the table's."""
    narrow = [{**COLUMNS[0], "type": "int32"}, *COLUMNS[1:]]
    table = make_table("readings", narrow, ["id"])
    table.insert([(n, 0, "old") for n in range(5)])
    writer = job(overwrite=True, failOnRowErrors="false")
    writer.commit(tasks(writer, [(1, 1, "new"), (2, None, "no day"), (1 << 40, 1, "no key"), (3, None, "no day")]))
    assert held(table) == {1: (1, "new"), 2: (0, "old"), 3: (0, "old")}
