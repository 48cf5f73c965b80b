"""Keys that divide a tablet: the parts have about the size that was asked for, in memory, in blocks, and in both."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from stelae.rows.plain_schema import schema_from_plain
from stelae.testing.conformance.store_harness import HarnessReplica, insert
from stelae_store_columnar import ColumnarStore
from stelae_store_columnar.config import ColumnarConfig

INT_MAX = 2**63 - 1
ROWS = 20_000
TEXT = "x" * 100


def replica_of(key_type: str) -> HarnessReplica:
    columns = [{"name": "id", "type": key_type}, {"name": "text", "type": "string"}]
    schema = schema_from_plain({"columns": columns, "key": ["id"]})
    return HarnessReplica(ColumnarStore, ColumnarConfig(row_group_rows=1000), {1: schema})


def fill(replica: HarnessReplica, key: Any, first: int) -> None:
    """Write every second row, in entries that a leader would accept."""
    for start in range(first, ROWS, 4000):
        replica.write(insert(*((key(n), TEXT) for n in range(start, min(ROWS, start + 4000), 2))))


@pytest.mark.parametrize("flushed", ["nothing", "half", "all"])
@pytest.mark.parametrize("key_type", ["int64", "string"])
def test_parts_have_about_the_size_that_was_asked_for(key_type: str, flushed: str) -> None:
    def key(n: int) -> Any:
        return INT_MAX - n if key_type == "int64" else f"{n:08}"

    replica = replica_of(key_type)
    fill(replica, key, 0)
    if flushed != "nothing":
        replica.flush()
    fill(replica, key, 1)
    if flushed == "all":
        replica.flush()
    whole = sum(len(row[1]) for row in replica.rows())
    bytes_max = whole // 8
    keys = replica.store.split_keys(None, None, bytes_max)
    assert 6 <= len(keys) + 1 <= 12
    sizes = [
        sum(len(row[1]) for row in replica.rows(key_from=low, key_until=high))
        for low, high in pairwise((None, *keys, None))
    ]
    assert sum(sizes) == whole
    assert max(sizes) <= 2 * bytes_max
    assert replica.store.split_keys(None, None, 100 * whole) == []


def test_an_empty_store_has_no_keys() -> None:
    assert replica_of("int64").store.split_keys(None, None, 1 << 20) == []
