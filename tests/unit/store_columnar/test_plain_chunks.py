"""Rows in memory that are handed on without being sorted: only where nothing can hide one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from stelae.spi.scan import Compare, Order, ScanSpec
from stelae.spi.write import OpKind
from stelae.testing.conformance.store_harness import HarnessReplica, StoreHarness, delete, upsert
from stelae.testing.conformance.store_model import Op
from stelae_store_columnar import ColumnarStore, cursor
from stelae_store_columnar.memory_chunks import MemoryChunk
from stelae_store_columnar.version_resolver import VersionResolver
from stelae_store_columnar.view import ColumnarView
from tests.conformance.test_store_columnar import tiny

ROWS = [(n, f"name {n}", n) for n in range(100)]


def calm() -> Any:
    return replace(tiny(), level0_blocks_min=900, level0_blocks_max=999)


@pytest.fixture
def replica() -> HarnessReplica:
    """A hundred rows in memory, in runs that came out of order."""
    made = StoreHarness(ColumnarStore, calm).replica()
    for start in (60, 0, 80, 20, 40):
        made.insert(*ROWS[start : start + 20])
    return made


@pytest.fixture
def resolved(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many sources were put together, each time that rows were sorted and chosen."""
    found: list[int] = []
    visible = VersionResolver.visible

    def counting(resolver: VersionResolver, parts: Any, at: int | None) -> Any:
        found.append(len(parts))
        return visible(resolver, parts, at)

    monkeypatch.setattr(VersionResolver, "visible", counting)
    return found


def test_runs_that_do_not_overlap_are_not_sorted(replica: HarnessReplica, resolved: list[int]) -> None:
    assert replica.rows() == ROWS
    assert replica.rows(order=Order.KEY_DESCENDING) == ROWS[::-1]
    assert replica.rows(50, columns=(2,)) == [(row[1],) for row in ROWS]
    assert resolved == []


def test_they_stand_between_row_groups_of_blocks(replica: HarnessReplica, resolved: list[int]) -> None:
    replica.flush()
    for start in (200, 120):
        replica.insert(*((n, "x", n) for n in range(start, start + 20)))
    assert [row[0] for row in replica.rows()] == [*range(100), *range(120, 140), *range(200, 220)]
    assert resolved == []


def twice_in_a_chunk(replica: HarnessReplica) -> None:
    replica.write(upsert((200, "old", 0), (201, "x", 0)), upsert((200, "new", 0)))


def partial(replica: HarnessReplica) -> None:
    replica.write(Op(OpKind.UPDATE, [(13, 99)], (1, 3)))


def deletion(replica: HarnessReplica) -> None:
    replica.write(delete((13,)))


def newer(replica: HarnessReplica) -> None:
    replica.write(upsert((13, "newer", 0)))


def newer_than_a_block(replica: HarnessReplica) -> None:
    replica.flush()
    newer(replica)


@pytest.mark.parametrize(
    ("case", "at"),
    [
        *((case, None) for case in (twice_in_a_chunk, partial, deletion, newer, newer_than_a_block)),
        (lambda _: None, 35),
    ],
)
def test_what_is_not_plain_is_resolved_and_would_be_wrong_otherwise(
    replica: HarnessReplica, case: Callable[[HarnessReplica], None], at: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {row[0]: row for row in ROWS}
    case(replica)
    rows = replica.rows(at)
    expected = {
        twice_in_a_chunk: {**before, 200: (200, "new", 0), 201: (201, "x", 0)},
        partial: {**before, 13: (13, "name 13", 99)},
        deletion: {key: row for key, row in before.items() if key != 13},
        newer: {**before, 13: (13, "newer", 0)},
        newer_than_a_block: {**before, 13: (13, "newer", 0)},
    }.get(case, {n: before[n] for n in (*range(20), *range(60, 100))})
    assert rows == [expected[key] for key in sorted(expected)]

    def side_by_side(_: ColumnarView, parts: Any) -> Any:
        return sorted(parts, key=lambda part: part.bounds)

    monkeypatch.setattr(MemoryChunk, "is_plain", lambda *_: True)
    monkeypatch.setattr(ColumnarView, "_disjoint", side_by_side)
    assert replica.rows(at) != rows


def test_a_batch_is_filled_from_several_runs_as_far_as_is_asked_for(replica: HarnessReplica) -> None:
    def sizes(rows_max: int, **spec: Any) -> list[int]:
        with replica.store.scan(ScanSpec(order=Order.KEY, **spec)) as opened:
            return [len(batch) for batch in iter(lambda: opened.next_batch(rows_max), None)]

    assert sizes(1000) == [100]
    assert sizes(30) == [30, 30, 30, 10]
    assert sizes(30, limit=50) == [30, 20]
    # With a filter it is bounded how many rows are looked at for one batch.
    found = sizes(30, predicates=(Compare(3, ">=", 90),))
    assert sum(found) == 10 and 3 <= len(found) <= 5


def test_a_batch_of_large_rows_is_bounded_by_their_bytes(
    replica: HarnessReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursor, "BATCH_BYTES_MAX", 300)
    with replica.store.scan(ScanSpec(order=Order.KEY)) as opened:
        batches = [*iter(lambda: opened.next_batch(1000), None)]
    assert [row for batch in batches for row in batch.to_rows()] == ROWS
    assert max(len(batch) for batch in batches) < 40
