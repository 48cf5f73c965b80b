"""Planted bugs in lookups of the columnar store: the checks of the suite that must fail with each of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from stelae.spi.store import FoundBatch
from stelae.testing.conformance.store import StoreConformance, StoreHarness
from stelae_store_columnar import ColumnarStore, found_keys, point_lookup
from stelae_store_columnar.begun_row import BegunRow
from stelae_store_columnar.completed_rows import CompletedRows
from stelae_store_columnar.found_keys import ManyKeys
from stelae_store_columnar.plain_rows import PlainRows
from stelae_store_columnar.point_lookup import PointLookup
from stelae_store_columnar.short_read import ShortRead
from stelae_store_columnar.sorted_rows import SortedRows
from tests.conformance.test_store_columnar import tiny
from tests.conformance.test_store_columnar_bugs import ALTERED, Check, no_cache


def looks_past_deletions(self: SortedRows, key: Any, last: int, inner: Any = SortedRows.newest_first) -> Any:
    deleted = self.rows.marks.deleted
    return (place for place in inner(self, key, last) if deleted is None or not deleted.at(place))


def takes_the_newest_version_as_it_is(
    self: BegunRow, columns: Any, place: int, stamp: int, given: Any, inner: Any = BegunRow.take
) -> bool:
    inner(self, columns, place, stamp, given)
    return True


def prefers_the_completed_row(self: BegunRow, row: Any, inner: Any = BegunRow.fill) -> None:
    self._lacking |= {1, 2}
    inner(self, row)


def looks_up_whatever_the_time(
    self: PointLookup, state: Any, at: Any, *given: Any, inner: Any = PointLookup.__init__, **named: Any
) -> None:
    inner(self, state, None, *given, **named)


def completes_no_row_from_an_older_source(
    self: PointLookup, source: Any, key: Any, last: int, position: int, inner: Any = PointLookup._decides
) -> bool:
    if position in self._begun:
        return False
    return bool(inner(self, source, key, last, position))


def forgets_some_keys(row_group: Any, key: Any, inner: Any = point_lookup.may_hold) -> bool:
    return key % 3 > 0 and bool(inner(row_group, key))


def takes_a_completed_row_for_any_time(
    self: CompletedRows, key: Any, until: int, inner: Any = CompletedRows.get
) -> Any:
    return inner(self, key, 1 << 62)


def sees_nothing_after_a_completed_row(
    self: CompletedRows, key: Any, until: int, inner: Any = CompletedRows.get
) -> Any:
    found = inner(self, key, until)
    return found and found._replace(stamp=until + 1)


def completed_rows_of_any_schema(
    self: CompletedRows, cache: Any, state: Any, inner: Any = CompletedRows.__init__
) -> None:
    inner(self, cache, state)
    self._schema_version = 0


def short_scans_take_completed_rows_of_any_time(self: ShortRead, *given: Any, inner: Any = ShortRead.__init__) -> None:
    inner(self, *given)
    self._until = 1 << 62


def batch_with_the_rows_of_other_keys(self: ManyKeys, unread: Any, inner: Any = ManyKeys.result) -> FoundBatch:
    self._of_taken, self._of_rows = self._of_rows, self._of_taken
    return inner(self, unread)


def batch_without_the_rows_put_together(self: ManyKeys, position: int, row: Any) -> None:
    pass


def batch_with_nulls_for_columns_that_were_added(self: PlainRows, places: Any, adapter: Any, layout: Any) -> Any:
    columns = self.versions.columns
    nulls = {column.id: pa.nulls(len(self.versions), column.data_type.arrow()) for column in layout.columns}
    arrays = [columns.get(column_id, nulls[column_id]) for column_id in layout.ids]
    return pa.RecordBatch.from_arrays(arrays, schema=layout.arrow).take(pa.array(places, pa.int64()))


def batch_of_different_keys_for_repeated_ones(found: FoundBatch, different: Any, keys: Any) -> FoundBatch:
    more = [-1] * (len(keys) - len(different))
    return FoundBatch(found.schema, found.rows, [*found.positions, *more], found.unread)


BUGS: list[tuple[Any, str, Any, Check]] = [
    (
        SortedRows,
        "newest_first",
        looks_past_deletions,
        StoreConformance.test_a_deleted_row_is_not_found_wherever_its_versions_are,
    ),
    (
        BegunRow,
        "take",
        takes_the_newest_version_as_it_is,
        StoreConformance.test_rows_of_partial_updates_have_the_values_of_all_of_them,
    ),
    (
        BegunRow,
        "fill",
        prefers_the_completed_row,
        StoreConformance.test_each_of_many_updates_between_reads_of_a_row_is_seen,
    ),
    (
        PointLookup,
        "_decides",
        completes_no_row_from_an_older_source,
        StoreConformance.test_rows_of_partial_updates_have_the_values_of_all_of_them,
    ),
    (
        PointLookup,
        "__init__",
        looks_up_whatever_the_time,
        StoreConformance.test_each_key_has_its_row_or_none_in_the_order_of_the_keys,
    ),
    (
        point_lookup,
        "may_hold",
        forgets_some_keys,
        StoreConformance.test_many_keys_in_any_order_are_found_among_many_rows,
    ),
    (
        ManyKeys,
        "result",
        batch_with_the_rows_of_other_keys,
        StoreConformance.test_rows_of_partial_updates_have_the_values_of_all_of_them,
    ),
    (
        ManyKeys,
        "put",
        batch_without_the_rows_put_together,
        StoreConformance.test_rows_of_partial_updates_have_the_values_of_all_of_them,
    ),
    (
        PlainRows,
        "taken",
        batch_with_nulls_for_columns_that_were_added,
        StoreConformance.test_many_rows_of_earlier_schemas_have_what_a_scan_shows,
    ),
    (
        point_lookup,
        "_repeated",
        batch_of_different_keys_for_repeated_ones,
        StoreConformance.test_each_key_has_its_row_or_none_in_the_order_of_the_keys,
    ),
    (
        CompletedRows,
        "get",
        takes_a_completed_row_for_any_time,
        StoreConformance.test_each_of_many_updates_between_reads_of_a_row_is_seen,
    ),
    (
        CompletedRows,
        "get",
        sees_nothing_after_a_completed_row,
        StoreConformance.test_each_of_many_updates_between_reads_of_a_row_is_seen,
    ),
    (
        CompletedRows,
        "__init__",
        completed_rows_of_any_schema,
        StoreConformance.test_each_of_many_updates_between_reads_of_a_row_is_seen,
    ),
    (
        ShortRead,
        "__init__",
        short_scans_take_completed_rows_of_any_time,
        StoreConformance.test_each_of_many_updates_between_reads_of_a_row_is_seen,
    ),
]
"""Where, what, its replacement, and the check that must fail."""


@pytest.mark.long
@pytest.mark.parametrize(("owner", "name", "bug", "check"), BUGS, ids=[b[2].__name__ for b in BUGS])
def test_the_suite_catches_a_planted_bug_of_lookups(
    owner: Any, name: str, bug: Any, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(found_keys, "TAKE_MIN", 1)
    config = tiny if owner in (BegunRow, CompletedRows, ShortRead) else no_cache
    check(StoreConformance(), StoreHarness(ColumnarStore, config))
    monkeypatch.setattr(owner, name, bug)
    with pytest.raises((AssertionError, IndexError)):
        check(StoreConformance(), StoreHarness(ColumnarStore, config))


@pytest.mark.long
@pytest.mark.parametrize(("owner", "name", "bug"), [bug[:3] for bug in BUGS], ids=[bug[2].__name__ for bug in BUGS])
def test_runs_of_an_altered_table_look_up_between_the_writes(
    owner: Any, name: str, bug: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(found_keys, "TAKE_MIN", 1)
    monkeypatch.setattr(owner, name, bug)
    with pytest.raises(AssertionError):
        ALTERED(StoreConformance(), StoreHarness(ColumnarStore, tiny))
