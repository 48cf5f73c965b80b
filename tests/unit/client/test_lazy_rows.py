"""Rows that are made while they are taken, and the results of their lists."""

from __future__ import annotations

from itertools import count, islice

import pandas as pd
import pyarrow as pa

from stelae.client.failures import FAILURES_MAX, RowFailure, WriteResult, combined
from stelae.client.lazy_rows import LIST_ROWS, TABLE_BYTES, is_lazy, lists_of_rows


def test_only_what_somebody_makes_on_demand_is_lazy() -> None:
    table = pa.table({"id": [1]})
    for given in ([1], (1,), {"id": 1}, "text", 7, pd.DataFrame({"id": [1]}), pd.Series([1]), table, table.to_reader()):
        assert not is_lazy(given), given
    for lazy in (iter([1]), ({"id": n} for n in range(3)), map(int, "123")):
        assert is_lazy(lazy), lazy


def test_no_more_rows_are_taken_than_one_list_has() -> None:
    asked = count()
    taken = lists_of_rows(next(asked) for _ in range(2 * LIST_ROWS + 1))
    assert next(taken) == [*range(LIST_ROWS)] and next(asked) == LIST_ROWS
    assert [len(part) for part in taken] == [LIST_ROWS, 1]
    assert [*lists_of_rows(iter(()))] == []


def test_batches_become_tables_of_a_few_megabytes() -> None:
    batch = pa.record_batch({"id": pa.array(range(TABLE_BYTES // 24 + 1), pa.int64())})
    made = [*lists_of_rows(islice(iter(lambda: batch, None), 7))]
    assert [part.num_rows // len(batch) for part in made] == [3, 3, 1]


def failed(row: int) -> RowFailure:
    return RowFailure(table="t", kind="insert", row=row, code="NOT_FOUND", reason="-")


def test_results_of_lists_are_numbered_through_and_bounded() -> None:
    one = WriteResult(rows=10, failed=1, failures=(failed(3),), counts={"NOT_FOUND": 1}, timestamp=5)
    failures, counts = tuple(map(failed, range(FAILURES_MAX))), {"NOT_FOUND": FAILURES_MAX - 1, "BAD_VALUE": 1}
    two = WriteResult(rows=20, failed=FAILURES_MAX, failures=failures, counts=counts, timestamp=4)
    both = combined(one, two)
    assert both.counts == {"NOT_FOUND": FAILURES_MAX, "BAD_VALUE": 1}
    assert (both.rows, both.failed, both.timestamp) == (30, FAILURES_MAX + 1, 5)
    assert [failure.row for failure in both.failures] == [3, *range(10, 10 + FAILURES_MAX - 1)]


def test_nothing_combined_is_what_follows() -> None:
    empty = WriteResult(rows=0, failed=0, failures=(), timestamp=0)
    one = WriteResult(rows=10, failed=1, failures=(failed(3),), timestamp=5)
    assert combined(empty, one) == one == combined(one, empty)
