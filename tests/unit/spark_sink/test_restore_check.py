"""A restored table is compared with the one that was backed up."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from stelae.client import Table
from stelae.spi.errors import StorageError
from stelae_spark_sink.backup import restore_job
from stelae_spark_sink.backup.manifest import TableTotal
from stelae_spark_sink.backup.restore_job import RestoreOptions
from stelae_spark_sink.backup.row_checks import RowCounts
from tests.unit.spark_sink.backups import backup
from tests.unit.spark_sink.conftest import MASTERS, MadeTable

OPTIONS = RestoreOptions(
    masters=MASTERS,
    table="readings",
    name="restored",
    at=None,
    replace=False,
    keep_s=0.0,
    replicas=None,
    timeout_s=1.0,
    progress=False,
)
TOTAL = TableTotal(rows=3, checksum=-9)
FULL = backup("full", 0, total=TOTAL)
CHAINED = backup("next", 1, FULL, total=TOTAL)


@pytest.fixture
def table(make_table: MadeTable) -> Table:
    """The interim table."""
    columns = [{"name": "id", "type": "int64"}, {"name": "note", "type": "string", "nullable": True}]
    return make_table("restored.restoring-1", columns, ["id"])


def check(table: Table, of: Any, found: RowCounts, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(restore_job, "counts_of_table", lambda *_: found)
    monkeypatch.setattr(restore_job, "JobProgress", lambda *_: nullcontext())
    return restore_job._check_rows(Any, table, of.manifest, OPTIONS)  # type: ignore[arg-type]


@pytest.mark.parametrize("of", [FULL, CHAINED], ids=["full", "chain"])
@pytest.mark.parametrize(
    ("found", "fact"),
    [
        (RowCounts(2, 0, -9), "has 2 rows, and the table had 3 at 2026-06-01"),
        (RowCounts(3, 0, 9), "has other values than the table had at 2026-06-01"),
    ],
)
def test_a_restored_table_with_other_rows_or_values_keeps_its_interim_name(
    table: Table, monkeypatch: pytest.MonkeyPatch, of: Any, found: RowCounts, fact: str
) -> None:
    """From a chain, rows were counted and compared with nothing."""
    with pytest.raises(StorageError, match=rf"{fact}.*it keeps the name 'restored\.restoring-1': drop it"):
        check(table, of, found, monkeypatch)


@pytest.mark.parametrize("of", [FULL, CHAINED, backup("next", 1, FULL)], ids=["full", "chain", "not counted"])
def test_a_restored_table_that_is_equal_or_was_not_counted_returns_its_rows(
    table: Table, monkeypatch: pytest.MonkeyPatch, of: Any
) -> None:
    assert check(table, of, RowCounts(3, 0, -9), monkeypatch) == 3
