"""Drafts: what a load in key order leaves to the flush, and what ends a draft without harm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from stelae.spi.write import OpKind
from stelae.testing.conformance.store_harness import Replica, StoreHarness, delete, insert, upsert
from stelae.testing.conformance.store_model import Op, Row
from stelae_store_columnar import ColumnarStore, draft
from stelae_store_columnar.block_writer import BlockWriter
from stelae_store_columnar.config import ColumnarConfig

ENTRIES, ROWS = 12, 100


def rows_of(entry: int) -> list[Row]:
    return [(n, f"n{n}", n) for n in range(entry * ROWS, (entry + 1) * ROWS)]


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many rows each call has given to a block so far."""
    found: list[int] = []
    add = BlockWriter.add

    def counted(writer: BlockWriter, versions: Any) -> None:
        found.append(len(versions))
        add(writer, versions)

    monkeypatch.setattr(BlockWriter, "add", counted)
    monkeypatch.setattr(draft, "DRAFT_BYTES", 4000)
    yield found


def loaded(*then: Op) -> Replica:
    replica = StoreHarness(ColumnarStore, lambda: ColumnarConfig(row_group_rows=64)).replica()
    for entry in range(ENTRIES):
        replica.insert(*rows_of(entry))
    for op in then:
        replica.write(op)
    return replica


def test_a_flush_after_a_load_in_key_order_encodes_the_last_rows_only(added: list[int]) -> None:
    replica = loaded()
    before = sum(added)
    assert before >= (ENTRIES - 6) * ROWS
    assert not [path for path in replica.disk.tree() if path.endswith(".parquet")], "nothing is written before a flush"
    replica.flush()
    assert sum(added) == ENTRIES * ROWS
    expected = [row for entry in range(ENTRIES) for row in rows_of(entry)]
    assert replica.rows() == expected
    replica.crash()
    assert replica.rows() == expected


@pytest.mark.parametrize(
    "then", [upsert((5, "late", 0)), delete((5,)), insert((-5, "below", 0)), Op(OpKind.UPDATE, [(5, 9)], (1, 3))]
)
def test_rows_that_are_not_above_all_others_make_a_draft_useless_and_nothing_else(added: list[int], then: Op) -> None:
    drafted, plain = loaded(then), loaded(then)
    plain.store._upkeep._merger._draft = draft.Draft()  # type: ignore[attr-defined]
    before = sum(added)
    drafted.flush()
    assert sum(added) - before >= ENTRIES * ROWS
    plain.flush()
    assert drafted.rows() == plain.rows()
    assert drafted.store.checksum() == plain.store.checksum()
    assert len(drafted.disk.tree()) == len(plain.disk.tree())
    drafted.insert(*rows_of(ENTRIES))
    drafted.flush()
    assert drafted.rows()[-ROWS:] == rows_of(ENTRIES)
