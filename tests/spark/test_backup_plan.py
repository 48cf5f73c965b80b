"""What a backup reads, against a cluster without a JVM: when it continues an earlier one, and when it cannot."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from stelae.client import AddColumn, AddRange, Client, DropColumn, DropRange, RenameTable, Table
from stelae.spi.errors import TooOld
from stelae_spark_sink.backup.backup_job import BackupPlan, manifest_of, plan_backup
from stelae_spark_sink.backup.chains import Backup, NoBackup
from stelae_spark_sink.backup.increments import CannotContinue
from stelae_spark_sink.backup.manifest import Kind, time_text
from stelae_spark_sink.backup.row_checks import RowCounts
from stelae_spark_sink.options import SourceOptions, Use

COLUMNS = {"day": "int32", "id": "int64", "note": "string"}
RANGES = {"range": {"columns": ["day"], "ranges": [{"from": [0], "until": [10]}, {"from": [10], "until": [20]}]}}
WAIT_S = 60.0
LONG_AGO = 1 << 60
_numbers = itertools.count()


class Backups:
    """The backups of one table, kept in memory. Stands in for ``BackupRoot``."""

    path = "/backups"

    def __init__(self, masters: str) -> None:
        self._masters = masters
        self.found: list[Backup] = []

    def backups_of(self, table_id: str) -> Sequence[Backup]:
        return [one for one in self.found if one.manifest.table_id == table_id]

    def plan(self, table: str, kind: Kind | None = None) -> BackupPlan:
        options = SourceOptions({"masters": self._masters, "table": table}, Use.READ)
        return plan_backup(self, options, kind)  # type: ignore[arg-type]

    def back_up(self, table: str) -> Backup:
        plan = self.plan(table)
        self.found.append(Backup(f"/backups/{len(self.found)}", manifest_of(plan, (), RowCounts())))
        return self.found[-1]


@pytest.fixture
def backups(masters: str) -> Backups:
    """No backups yet."""
    return Backups(masters)


@pytest.fixture
def table(client: Client) -> Table:
    """A table of two ranges with a row in each."""
    created = client.create_table(f"planned-{next(_numbers)}", COLUMNS, ["day", "id"], partition=RANGES, replicas=1)
    created.insert([(1, 1, "a"), (11, 2, "b")])
    return created


def rows(plan: BackupPlan) -> list[Any]:
    found = [tuple(one.values()) for token in plan.tokens for one in plan.table.open(token).to_pylist()]
    return sorted(found, key=lambda values: values[:2])


def test_the_first_backup_is_full_and_the_next_has_what_changed_since(table: Table, backups: Backups) -> None:
    plan = backups.plan(table.name)
    assert (plan.kind, plan.deleted, rows(plan)) == (Kind.FULL, "", [(1, 1, "a"), (11, 2, "b")])
    backups.back_up(table.name)
    table.delete([(1, 1)])
    table.upsert([(12, 3, "c")])
    plan = backups.plan(table.name)
    assert (plan.kind, plan.deleted) == (Kind.INCREMENTAL, "is_deleted")
    assert rows(plan) == [(1, 1, None, True), (12, 3, "c", False)]
    assert backups.plan(table.name, Kind.FULL).kind is Kind.FULL


def test_a_table_without_changes_has_an_empty_incremental_backup_with_a_later_time(
    table: Table, backups: Backups
) -> None:
    first, second = backups.back_up(table.name), backups.back_up(table.name)
    plan = backups.plan(table.name)
    assert first.manifest.at < second.manifest.at < plan.at and rows(plan) == []


def test_an_incremental_backup_without_an_earlier_one_is_refused(table: Table, backups: Backups) -> None:
    with pytest.raises(NoBackup, match="has no backup in /backups to continue; take a full backup: stelae-spark"):
        backups.plan(table.name, Kind.INCREMENTAL)


def test_a_renamed_table_is_continued_and_a_new_table_of_the_name_is_not(
    client: Client, table: Table, backups: Backups
) -> None:
    name = table.name
    backups.back_up(name)
    client.alter_table(name, RenameTable(f"{name}-renamed"))
    client.create_table(name, COLUMNS, ["day", "id"], replicas=1)
    assert backups.plan(f"{name}-renamed").kind is Kind.INCREMENTAL
    assert backups.plan(name).kind is Kind.FULL


def test_an_added_column_is_kept_with_the_value_that_older_rows_have(
    client: Client, table: Table, backups: Backups
) -> None:
    backups.back_up(table.name)
    client.alter_table(table.name, AddColumn("unit", "string", default="C"), DropColumn("note"))
    table.refresh()
    table.insert({"day": 2, "id": 9, "unit": "K"})
    plan = backups.plan(table.name)
    assert {column.name: column.in_older_rows for column in plan.columns} == {"day": None, "id": None, "unit": "C"}
    assert rows(plan) == [(2, 9, "K", False)]


def test_a_column_added_to_a_table_that_was_empty_makes_the_backup_full(
    client: Client, table: Table, backups: Backups
) -> None:
    table.delete([(1, 1), (11, 2)])
    backups.back_up(table.name)
    client.alter_table(table.name, AddColumn("unit", "string", default="C"))
    assert backups.plan(table.name).kind is Kind.FULL


def test_a_column_that_is_added_while_a_backup_begins_is_in_it_with_the_values_of_its_time(
    client: Client, table: Table, backups: Backups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup that knew the columns before it chose its time would lose values that were written in between."""
    latest = Table.latest

    def altered(opened: Table, *, timeout_s: float) -> int:
        changed = client.alter_table(table.name, AddColumn("unit", "string", default="C"))
        changed.insert({"day": 2, "id": 9, "unit": "K"})
        at = latest(opened, timeout_s=timeout_s)
        changed.insert({"day": 2, "id": 10, "unit": "F"})
        return at

    monkeypatch.setattr(Table, "latest", altered)
    plan = backups.plan(table.name)
    assert [column.name for column in plan.columns] == ["day", "id", "note", "unit"]
    assert rows(plan) == [(1, 1, "a", "C"), (2, 9, None, "K"), (11, 2, "b", "C")]


def test_rows_of_an_added_range_are_among_the_changes(client: Client, table: Table, backups: Backups) -> None:
    backups.back_up(table.name)
    client.alter_table(table.name, AddRange(table.key_range(20, 30)))
    table.insert([(25, 4, "d")])
    plan = backups.plan(table.name)
    assert rows(plan) == [(25, 4, "d")]
    assert plan.table.partition["range"]["ranges"][-1] == {"from": [20], "until": [30]}


def test_a_range_that_the_parent_does_not_have_is_read_whole_whatever_the_times_of_its_rows(
    client: Client, table: Table, backups: Backups
) -> None:
    """The clock of the leader of the new range was behind, so its rows are from before the time of the parent."""
    parent = backups.back_up(table.name)
    client.alter_table(table.name, AddRange(table.key_range(20, 30)))
    table.insert([(25, 4, "d")])
    backups.found = [changed(parent, at=table.latest())]
    table.upsert([(12, 3, "c")])
    assert rows(backups.plan(table.name)) == [(12, 3, "c", False), (25, 4, "d")]


def test_rows_of_a_range_that_the_parent_does_not_have_do_not_show_what_older_rows_have(
    client: Client, table: Table, backups: Backups
) -> None:
    table.delete([(1, 1), (11, 2)])
    parent = backups.back_up(table.name)
    added = AddColumn("unit", "string", default="C")
    client.alter_table(table.name, AddRange(table.key_range(20, 30)), added).insert((25, 4, "d", "K"))
    backups.found = [changed(parent, at=table.latest())]
    assert backups.plan(table.name).kind is Kind.FULL, "the table of the parent had no rows"


@pytest.mark.parametrize("again", [False, True])
def test_after_a_dropped_range_only_a_full_backup_is_possible(
    client: Client, table: Table, backups: Backups, again: bool
) -> None:
    """The rows of a dropped range are not among the changes, even if the range is added again."""
    backups.back_up(table.name)
    span = table.key_range(0, 10)
    client.alter_table(table.name, DropRange(span))
    if again:
        client.alter_table(table.name, AddRange(span))
    with pytest.raises(CannotContinue, match=r"a range of table 'planned-.*' was dropped since .*; take a full backup"):
        backups.plan(table.name)
    assert rows(backups.plan(table.name, Kind.FULL)) == [(11, 2, "b")]


def changed(backup: Backup, **fields: Any) -> Backup:
    return Backup(backup.folder, msgspec.structs.replace(backup.manifest, **fields))


def wait_for_floor(table: Table) -> None:
    """Wait until the maintenance of a new tablet has raised its history floor."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        try:
            table.scan(at=LONG_AGO).to_pylist()
        except TooOld:
            return
        time.sleep(0.02)
    pytest.fail("the history floor was not raised")


def test_after_the_history_has_expired_only_a_full_backup_is_possible(table: Table, backups: Backups) -> None:
    backups.found = [changed(backups.back_up(table.name), at=LONG_AGO, time=time_text(LONG_AGO))]
    wait_for_floor(table)
    fact = r"is of 1978-.*, and its history is kept since 20.*; take a full backup.*history_retention_s"
    with pytest.raises(CannotContinue, match=fact):
        backups.plan(table.name)
    assert backups.plan(table.name, Kind.FULL).kind is Kind.FULL


def test_a_last_backup_without_its_parent_is_not_continued(table: Table, backups: Backups) -> None:
    orphan = changed(backups.back_up(table.name), kind=Kind.INCREMENTAL, parent="gone", since=9)
    backups.found = [orphan]
    with pytest.raises(CannotContinue, match=r"continues one of 1970-.*, which is missing; .* take a full backup"):
        backups.plan(table.name)


def test_large_tablets_are_read_in_several_parts(client: Client, masters: str, backups: Backups) -> None:
    name = f"planned-{next(_numbers)}"
    created = client.create_table(name, COLUMNS, ["day", "id"], replicas=1)
    backups.back_up(name)
    created.insert([(1, n, "x" * 500) for n in range(12_000)])
    options = SourceOptions({"masters": masters, "table": name, "targetPartitionBytes": "1m"}, Use.READ)
    for kind in (None, Kind.FULL):
        plan = plan_backup(backups, options, kind)  # type: ignore[arg-type]
        assert len(plan.tokens) > 3 and len(rows(plan)) == 12_000
