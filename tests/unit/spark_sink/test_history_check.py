"""The tablets of a table keep their history since different times: one that is idle keeps more of it."""

from __future__ import annotations

import pytest

from stelae.client import Table
from stelae_spark_sink import data_source
from stelae_spark_sink.backup.increments import CannotContinue, older_rows
from stelae_spark_sink.options import BadOption
from tests.unit.spark_sink.backups import backup
from tests.unit.spark_sink.conftest import MASTERS, MadeTable

COLUMNS = [{"name": "id", "type": "int64"}, {"name": "note", "type": "string", "nullable": True}]
RANGES = {"range": {"columns": ["id"], "ranges": [{"from": [n], "until": [n + 10]} for n in (0, 10, 20)]}}


@pytest.fixture
def table(make_table: MadeTable) -> Table:
    """A table of three ranges. Only the first one, which is idle, can still be read as of the first row's time."""
    made = make_table("readings", COLUMNS, ["id"], partition=RANGES)
    made.insert([(1, "old"), (11, "old"), (21, "old")])
    now = made.latest()
    made.upsert([(11, "new"), (21, "new")])
    for tablet, floor in zip(made._table._tablets, (0, now + 1, now + 2), strict=True):
        tablet.store.set_history_floor(floor)  # type: ignore[attr-defined]
    return made


def floors(table: Table) -> list[int]:
    return [tablet.store.history_floor for tablet in table._table._tablets]  # type: ignore[attr-defined]


def test_a_backup_is_not_continued_if_one_tablet_keeps_its_history_no_more(table: Table) -> None:
    """The idle tablet answered first. The tasks failed then, and did so in each further incremental backup."""
    parent = backup("p", 0, at=max(floors(table)) - 2, time="then").manifest
    with pytest.raises(CannotContinue, match=r"is of then, and its history is kept since 1970.*; take a full backup"):
        older_rows(table, parent, 1.0)
    parent = backup("p", 0, at=max(floors(table)), time="then").manifest
    assert older_rows(table, parent, 1.0) == {}


def test_a_time_that_one_tablet_keeps_no_more_is_refused_before_a_task_runs(table: Table) -> None:
    """Each load failed in its tasks, with the advice to load the table again."""
    given = {"masters": MASTERS, "table": "readings"}
    for at, is_kept in ((max(floors(table)) - 1, False), (max(floors(table)), True)):
        options = {**given, "timestampAsOf": f"{at:09}"}
        reader = data_source.reader(options, data_source.schema(options))
        if is_kept:
            assert len(reader.partitions()) == 3
            continue
        with pytest.raises(BadOption, match=r"'timestampAsOf' is .*, and table 'readings' keeps its history since"):
            reader.partitions()
