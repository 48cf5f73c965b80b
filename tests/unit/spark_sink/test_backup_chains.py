"""Chains of backups, and where the values of a restored table come from."""

from __future__ import annotations

import pytest

from stelae.spi.errors import SchemaMismatch
from stelae.spi.schema import Column, Schema
from stelae_spark_sink.backup.chains import Backup, BrokenChain, NoBackup, chain, latest, superfluous
from stelae_spark_sink.backup.restore_plan import ColumnSource, column_sources, epoch_of, interim_name

from .backups import ID, NOTE, at_second, backup

FULL = backup("full", 10)
FIRST = backup("first", 20, FULL)
SECOND = backup("second", 30, FIRST)
OTHER = backup("other", 25, FULL)
NEXT_FULL = backup("next", 40)
ALL = [SECOND, FULL, NEXT_FULL, OTHER, FIRST]


@pytest.mark.parametrize(
    ("second", "expected"),
    [(10, FULL), (19, FULL), (20, FIRST), (29, OTHER), (30, SECOND), (99, NEXT_FULL), (None, NEXT_FULL)],
)
def test_the_latest_backup_at_a_time_or_before_is_chosen(second: int | None, expected: Backup) -> None:
    assert latest(ALL, "readings", None if second is None else at_second(second)) is expected


def test_a_chain_begins_with_a_full_backup_and_leaves_out_other_branches() -> None:
    assert chain(ALL, SECOND) == [FULL, FIRST, SECOND]
    assert chain(ALL, OTHER) == [FULL, OTHER]
    assert chain(ALL, NEXT_FULL) == [NEXT_FULL]


def test_a_table_without_a_backup_is_named_with_those_that_have_one() -> None:
    with pytest.raises(NoBackup, match="no backup of a table 'reading'; tables with backups: readings"):
        latest(ALL, "reading")
    with pytest.raises(NoBackup, match="tables with backups: none"):
        latest([], "readings")


def test_a_time_before_the_first_backup_names_the_first_one() -> None:
    with pytest.raises(NoBackup, match=r"has no backup of 2026-.*09\.0+Z or before; the first is of 2026-.*10\.0+Z"):
        latest(ALL, "readings", at_second(9))


def test_a_chain_without_one_of_its_parents_is_broken() -> None:
    with pytest.raises(BrokenChain, match=r"of 2026-.*30\.0+Z continues one of 2026-.*20\.0+Z, which is missing"):
        chain([FULL, SECOND], SECOND)


@pytest.mark.parametrize("fields", [{"at": at_second(11)}, {"table_id": "t2"}])
def test_a_parent_of_another_time_or_table_breaks_the_chain(fields: dict[str, object]) -> None:
    with pytest.raises(BrokenChain, match="does not continue"):
        chain([backup("full", 10, **fields), FIRST], FIRST)


def test_backups_that_continue_each_other_are_no_chain() -> None:
    one = backup("one", 10, backup("two", 20))
    two = backup("two", 20, one)
    with pytest.raises(BrokenChain, match="does not continue"):
        chain([one, two], two)


@pytest.mark.parametrize(
    ("second", "expected"),
    [(41, [SECOND, OTHER, FIRST, FULL]), (40, [OTHER]), (31, [OTHER]), (30, []), (20, []), (0, [])],
)
def test_backups_are_superfluous_if_no_restore_to_a_time_or_later_reads_them(
    second: int, expected: list[Backup]
) -> None:
    found = superfluous(ALL, at_second(second))
    assert found == expected
    left = [one for one in ALL if one not in found]
    for time in range(second, 45):
        if time >= 10:
            before, after = (latest(backups, "readings", at_second(time)) for backups in (ALL, left))
            assert chain(ALL, before) == chain(left, after)


def test_backups_without_a_full_one_after_them_are_superfluous_if_another_branch_is_continued() -> None:
    assert superfluous([FULL, FIRST, OTHER], at_second(99)) == [FIRST]
    assert superfluous([], at_second(99)) == []


def test_the_last_backup_of_each_table_stays_with_what_it_continues() -> None:
    old = backup("old", 1, table_id="t2", table="other")
    older = backup("older", 0, table_id="t2", table="other")
    assert superfluous([*ALL, older, old], at_second(99)) == [SECOND, OTHER, FIRST, FULL, older]


def test_nothing_is_superfluous_if_a_chain_that_stays_is_broken() -> None:
    with pytest.raises(BrokenChain):
        superfluous([FULL, SECOND, NEXT_FULL], at_second(30))


def test_a_chain_of_two_keys_is_refused() -> None:
    other = backup("child", 20, FULL, schema=Schema(1, (Column(id=1, name="id", type="int32"), NOTE), (1,)))
    with pytest.raises(SchemaMismatch, match="different keys"):
        chain([FULL, other], other)


def test_the_last_backup_of_a_table_under_each_of_its_names_is_kept() -> None:
    """The one under the old name was removed, and a restore under that name found none."""
    old, last, renamed = backup("old", 5), backup("last", 10), backup("renamed", 20, table="renamed")
    assert superfluous([old, last, renamed], at_second(30)) == [old]


def test_the_columns_of_a_restored_table_are_found_by_id_and_filled_in_older_backups() -> None:
    """``note`` is renamed, ``unit`` is added and its default changes, ``level`` is dropped and added again."""
    gone, again = (Column(id=n, name="level", type="int32", nullable=True) for n in (3, 5))
    unit = Column(id=4, name="unit", type="string", default="C")
    renamed = Column(id=2, name="text", type="string", nullable=True)
    full = backup("a", 1, schema=Schema(1, (ID, NOTE, gone), (1,)))
    first = backup("b", 2, full, schema=Schema(2, (ID, renamed, gone, unit), (1,)), older={4: "C"})
    later = Column(id=4, name="unit", type="string", default="K")
    last = backup("c", 3, first, schema=Schema(3, (ID, renamed, later, again), (1,)), older={5: None})
    chained = [one.manifest for one in (full, first, last)]
    assert column_sources(chained, 0) == [
        ColumnSource("id", "int64", "id"),
        ColumnSource("text", "string", "note"),
        ColumnSource("unit", "string", "", "C"),
        ColumnSource("level", "int32", "", None),
    ]
    assert column_sources(chained, 1)[2:] == [
        ColumnSource("unit", "string", "unit"),
        ColumnSource("level", "int32", "", None),
    ]
    assert [one.stored_as for one in column_sources(chained, 2)] == ["id", "text", "unit", "level"]


def test_epochs_rise_along_a_chain_and_deletes_come_first() -> None:
    order = [epoch_of(number, deletes=deletes) for number in range(3) for deletes in (True, False)]
    assert order == sorted(set(order))


def test_an_interim_name_depends_on_the_backup_and_fits() -> None:
    assert interim_name("readings", "0123456789abcdef") == "readings.restoring-0123456789ab"
    assert len(interim_name("n" * 256, "0" * 32)) == 256
