"""How many rows of chunks in memory are put together at a time, foretold and done."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from stelae_store_columnar import memtable
from stelae_store_columnar.memtable import ColumnarMemtable
from stelae_store_columnar.versions import RowVersions

TYPES = {1: pa.int64()}
MOST = 64


def add(part: ColumnarMemtable, first: int, count: int) -> None:
    """Append a chunk of keys that rise from ``first``."""
    keys = pa.array(range(first, first + count), pa.int64())
    stamps, schemas = pa.repeat(pa.scalar(5, pa.int64()), count), pa.repeat(pa.scalar(1, pa.int32()), count)
    versions = RowVersions(keys, stamps, None, schemas, {1: keys})
    part.append(versions, keys.to_pylist(), 8 * count, 5, deleted=False, bottom=False)


@pytest.mark.parametrize("seed", range(5))
def test_what_settles_within_a_bound_puts_no_more_rows_together(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    put_together: list[int] = []

    def merged(chunks: tuple[memtable.MemoryChunk, ...], types: object) -> memtable.MemoryChunk:
        put_together.append(sum(map(len, chunks)))
        return real(chunks, TYPES)

    real = memtable.merged_chunk
    monkeypatch.setattr(memtable, "merged_chunk", merged)
    rng, part, within = random.Random(seed), ColumnarMemtable(), 0
    for number in range(400):
        count = 1 + int(rng.random() ** 3 * 20)
        foretold = part.merges_within(count, MOST)
        add(part, int(rng.random() * 1000) if number % 2 else 1000 * number, count)
        part.merge_small_chunks(TYPES)
        largest = max(put_together, default=0)
        put_together.clear()
        assert foretold == (largest <= MOST)
        within += foretold
    assert 200 < within < 400, "both answers were met"
