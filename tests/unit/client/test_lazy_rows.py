"""Rows that are made while they are taken, and the results of their lists."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from stelae.client import lazy_rows
from stelae.client.failures import FAILURES_MAX, RowFailure, WriteResult, combined, tell_result
from stelae.client.lazy_rows import LIST_ROWS, TABLE_BYTES, is_lazy, lists_of_rows
from stelae.client.loop_thread import LoopThread
from stelae.client.sync_client import Table
from stelae.client.table import AsyncTable
from stelae.client.write_methods import write_in_thread
from stelae.spi.errors import CallerError
from stelae.spi.write import OpKind
from tests.unit.client.tablets import MemoryTable, one_column


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


def test_an_error_of_a_later_list_tells_the_results_of_all_rows_before_it() -> None:
    empty = WriteResult(rows=0, failed=0, failures=(), timestamp=0)
    one = WriteResult(rows=10, failed=1, failures=(failed(3),), timestamp=5)
    error = CallerError("it ends here")
    tell_result(error, empty)
    assert vars(error)["result"] == empty and str(error) == "it ends here"
    for text in (["1 of the 10 rows before", "row 3"], ["2 of the 20 rows before", "row 3", "row 13"]):
        tell_result(error, one)
        lines = str(error).splitlines()
        assert lines[0] == "it ends here" and len(lines) == len(text) + 1
        assert all(line.strip().startswith(part) for line, part in zip(lines[1:], text, strict=True))


def test_the_error_of_an_iterator_tells_the_rows_that_failed_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The results of the lists before were lost, and so were the rows that had been taken for the next list."""
    monkeypatch.setattr(lazy_rows, "LIST_ROWS", 2)

    def rows() -> Iterator[dict[str, Any]]:
        yield from ({"id": n, "value": 1.5} for n in (1, 2, 2, 3, 4))
        raise ValueError("no more rows")

    async def opened() -> AsyncTable:
        return MemoryTable(one_column("value", "double")).table

    loop_thread = LoopThread()
    try:
        table = loop_thread.run(opened())
        with pytest.raises(ValueError, match="no more rows") as caught:
            write_in_thread(loop_thread, table, OpKind.INSERT, rows(), "raise", 30.0, FAILURES_MAX)
    finally:
        loop_thread.close()
    result: WriteResult = vars(caught.value)["result"]
    assert (result.rows, [(f.row, f.code) for f in result.failures]) == (5, [(2, "ALREADY_PRESENT")])
    assert caught.value.__notes__[0].startswith("1 of the 5 rows before were not written, the other 4 are written")


def test_what_was_taken_from_an_iterator_that_raises_is_not_lost() -> None:
    batch = pa.record_batch({"id": [1]})

    def broken(item: Any) -> Iterator[Any]:
        yield from (item, item)
        raise ValueError("no more rows")

    for item, expected in ((7, [7, 7]), (batch, pa.Table.from_batches([batch, batch]))):
        taken = lists_of_rows(broken(item))
        assert next(taken) == expected
        with pytest.raises(ValueError, match="no more rows"):
            next(taken)


def test_keys_are_made_in_the_thread_of_the_caller_and_may_be_read_with_the_same_client() -> None:
    """The read of a generator of keys met "a synchronous call from the client's own thread would wait for itself"."""
    loop_thread = LoopThread()
    try:
        table = Table(loop_thread, loop_thread.run(_made()).table)
        table.insert([{"id": n, "value": n} for n in range(9)])
        found = table.get_many(row["id"] for batch in table.scan() for row in batch.to_pylist())
        assert sorted(row["id"] for row in found if row is not None) == [*range(9)]
    finally:
        loop_thread.close()


async def _made() -> MemoryTable:
    return MemoryTable(one_column("value", "int64"))
