"""The rows that a benchmark writes, and the comparison of what was read with them."""

from __future__ import annotations

from stelae.spi.rows import RowBatch
from stelae.spi.schema import Column, Schema
from stelae_bench.rows import COLUMNS, KEY, WRITER_SHIFT, RowSource
from stelae_bench.verify import Verification, VerifyTally


def keys(writer: int, *places: int) -> list[int]:
    return [(writer << WRITER_SHIFT) + place for place in places]


def test_rows_have_eight_mixed_columns_that_fit_their_schema() -> None:
    columns = tuple(Column(id=n, **column) for n, column in enumerate(COLUMNS, start=1))
    schema = Schema(version=1, columns=columns, key=(1,))
    source = RowSource(0, seed=1)
    rows = [source.next() for _ in range(5000)]
    assert len(COLUMNS) == 8
    assert len({column["type"] for column in COLUMNS}) == 7
    assert (COLUMNS[0]["name"],) == KEY
    assert len(RowBatch.from_equal_rows(schema.layout, [tuple(row.values()) for row in rows])) == 5000


def test_no_key_is_given_twice_by_one_writer_or_by_two() -> None:
    sources = [RowSource(writer, seed=1) for writer in range(3)]
    taken = [source.next()["id"] for source in sources for _ in range(10_000)]
    assert len(set(taken)) == len(taken)
    assert [source.count for source in sources] == [10_000] * 3


def test_the_same_seed_gives_the_same_rows_and_another_seed_others() -> None:
    def rows(seed: int) -> list[dict[str, object]]:
        source = RowSource(2, seed)
        return [source.next() for _ in range(100)]

    assert rows(5) == rows(5)
    assert rows(5) != rows(6)


def test_every_acknowledged_row_that_is_read_once_is_fine() -> None:
    found = Verification({0: 3, 7: 2})
    found.add(keys(7, 1, 0))
    found.add(keys(0, 0, 2, 1))
    assert found.tally() == VerifyTally(read=5, missing=0, unexpected=0)


def test_a_row_that_was_not_read_is_missing() -> None:
    found = Verification({0: 3, 7: 2})
    found.add(keys(0, 0, 2) + keys(7, 0, 1))
    assert found.tally() == VerifyTally(read=4, missing=1, unexpected=0)


def test_a_row_read_twice_or_never_written_is_unexpected() -> None:
    found = Verification({0: 2})
    found.add(keys(0, 0, 1, 1, 2) + keys(1, 0) + [-1])
    assert found.tally() == VerifyTally(read=6, missing=0, unexpected=4)
