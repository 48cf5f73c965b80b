"""Row groups that are handed on as they are stored: only where that is what a reader sees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from stelae.rows.keys import encode_key
from stelae.rows.plain_schema import schema_from_plain, schema_to_plain
from stelae.spi.errors import Corrupt
from stelae.spi.scan import Compare, Order, ScanSpec
from stelae.spi.schema import Layout, Schema
from stelae.spi.write import OpKind
from stelae.testing.conformance.store_harness import SCHEMA, HarnessReplica, StoreHarness, delete, insert, upsert
from stelae.testing.conformance.store_model import Op
from stelae_store_columnar import ColumnarStore, block_writer
from stelae_store_columnar.levels import RowGroupSlice
from stelae_store_columnar.sources import SourceSlice
from stelae_store_columnar.view import ColumnarView
from stelae_store_memory import MemoryStore
from tests.conformance.test_store_columnar import tiny
from tests.unit.store_columnar.stored import read_as_stored

ROWS = [(n, f"name {n}", n) for n in range(40)]


def calm() -> Any:
    """Small row groups that nobody merges."""
    return replace(tiny(), block_rows_max=1000, level0_blocks_min=900, level0_blocks_max=999)


@pytest.fixture
def replica() -> HarnessReplica:
    """Forty rows in ten plain row groups of one block."""
    made = StoreHarness(ColumnarStore, calm).replica()
    made.insert(*ROWS)
    made.flush()
    return made


def widened(schema: Schema, *, default: int | None) -> Schema:
    plain = schema_to_plain(schema)
    plain["version"] += 1
    plain["columns"].append({"id": 9, "name": "added", "type": "int32", "nullable": True, "default": default})
    return schema_from_plain(plain)


def test_a_table_in_blocks_is_handed_on_whole(replica: HarnessReplica) -> None:
    assert read_as_stored(replica.store) == (ROWS, 40)
    assert read_as_stored(replica.store, order=Order.ANY) == (ROWS, 40)
    assert read_as_stored(replica.store, columns=(3, 1)) == ([(n, n) for n in range(40)], 40)


def test_pieces_have_no_more_rows_and_bytes_than_asked_for_and_are_of_one_block(replica: HarnessReplica) -> None:
    assert read_as_stored(replica.store, rows_max=10) == (ROWS, 40)
    replica.insert(*((n, "more", 0) for n in range(40, 80)))
    replica.flush()
    with replica.store.scan(ScanSpec(order=Order.KEY)) as cursor:
        counts = []
        while (piece := cursor.next_stored(1000, 1 << 30)) is not None:  # type: ignore[attr-defined]
            counts.append(piece.row_count)
    assert counts == [40, 40]
    assert read_as_stored(replica.store, bytes_max=0)[1] == 0
    assert read_as_stored(replica.store, rows_max=3) == ([*ROWS, *((n, "more", 0) for n in range(40, 80))], 0)


def test_row_groups_that_are_smaller_than_a_step_are_handed_on_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_writer, "ROW_GROUP_BYTES_MAX", 60)
    config = replace(calm(), row_group_rows=8)
    made = StoreHarness(ColumnarStore, lambda: config).replica()
    made.insert(*ROWS)
    made.flush()
    assert read_as_stored(made.store, rows_max=20) == (ROWS, 40)
    assert made.rows(order=Order.KEY_DESCENDING) == ROWS[::-1]
    newer_in_memory(made)
    rows, handed_on = read_as_stored(made.store)
    assert rows == made.rows() and 20 < handed_on < 40


def test_a_few_columns_take_fewer_bytes_than_all(replica: HarnessReplica) -> None:
    def rows_of(**spec: Any) -> int:
        with replica.store.scan(ScanSpec(order=Order.KEY, **spec)) as cursor:
            piece = cursor.next_stored(1000, 300)  # type: ignore[attr-defined]
            return 0 if piece is None else int(piece.row_count)

    assert 0 < rows_of() < rows_of(columns=(1,))


def test_a_limit_ends_with_the_last_row_group_that_it_holds_whole() -> None:
    many = [(n, f"name {n}", n) for n in range(1200)]
    made = StoreHarness(ColumnarStore, calm).replica()
    made.insert(*many)
    made.flush()
    assert read_as_stored(made.store, limit=1102) == (many[:1102], 1100)


def test_a_scan_of_few_rows_is_decoded(replica: HarnessReplica) -> None:
    assert read_as_stored(replica.store, limit=10) == (ROWS[:10], 0)
    assert read_as_stored(replica.store, limit=0) == ([], 0)


def test_what_has_a_filter_or_goes_backwards_is_decoded(replica: HarnessReplica) -> None:
    assert read_as_stored(replica.store, predicates=(Compare(3, ">=", 20),)) == (ROWS[20:], 0)
    assert read_as_stored(replica.store, order=Order.KEY_DESCENDING) == (ROWS[::-1], 0)


def test_renamed_columns_are_found_dropped_ones_left_out_and_new_ones_null(replica: HarnessReplica) -> None:
    plain = schema_to_plain(SCHEMA)
    plain["version"] = 2
    plain["columns"] = [plain["columns"][0], {**plain["columns"][1], "name": "a.b"}]
    replica.change_schema(schema_from_plain(plain))
    assert read_as_stored(replica.store) == ([row[:2] for row in ROWS], 40)
    replica.change_schema(widened(replica.schema, default=None))
    assert read_as_stored(replica.store) == ([(*row[:2], None) for row in ROWS], 40)
    assert read_as_stored(replica.store, columns=(9,)) == ([(None,)] * 40, 40)
    replica.insert((100, "x", 5))
    replica.flush()
    assert read_as_stored(replica.store)[0][-1] == (100, "x", 5)


def test_names_that_look_like_paths_are_names() -> None:
    columns = [{"name": "a", "type": "int64"}, {"name": "a.b", "type": "int64"}, {"name": "a.b.c", "type": "int64"}]
    made = StoreHarness(ColumnarStore, calm).replica(schema_from_plain({"columns": columns, "key": ["a"]}))
    made.insert(*((n, n + 1, n + 2) for n in range(20)))
    made.flush()
    assert read_as_stored(made.store, columns=(2, 1)) == ([(n + 1, n) for n in range(20)], 20)


@pytest.mark.parametrize("kind", ["string", "double", "decimal(20,3)", "date", "timestamp", "bool", "binary", "float"])
def test_every_type_comes_back_as_it_was(kind: str) -> None:
    given: dict[str, Callable[[int], Any]] = {
        "string": lambda n: f"ü{n % 3}", "binary": lambda n: bytes([n]), "bool": lambda n: n % 2 == 0,
        "decimal(20,3)": lambda n: f"{n}.125",
    }  # fmt: skip
    columns = [{"name": "id", "type": "string"}, {"name": "v", "type": kind, "nullable": True}]
    made = StoreHarness(ColumnarStore, calm).replica(schema_from_plain({"columns": columns, "key": ["id"]}))
    made.insert(*((f"k{n:02}", None if n % 7 == 3 else given.get(kind, lambda n: n)(n)) for n in range(40)))
    made.flush()
    assert read_as_stored(made.store) == (made.rows(), 40)


# -- what is not plain -----------------------------------------------------------------------------


def newer_in_memory(replica: HarnessReplica) -> None:
    replica.write(upsert((13, "newer", 0)))


def partial_in_memory(replica: HarnessReplica) -> None:
    replica.write(Op(OpKind.UPDATE, [(13, 99)], (1, 3)))


def deleted_in_memory(replica: HarnessReplica) -> None:
    replica.write(delete((13,)))


def between_in_memory(replica: HarnessReplica) -> None:
    replica.write(delete((13,)))
    replica.flush()
    replica.write(insert((13, "again", 0)))


def newer_in_another_block(replica: HarnessReplica) -> None:
    replica.write(upsert((13, "newer", 0)))
    replica.flush()


def deleted_in_another_block(replica: HarnessReplica) -> None:
    replica.write(delete((13,)))
    replica.flush()


def history_in_the_group(replica: HarnessReplica) -> None:
    replica.insert((100, "old", 0), *((n, "x", 0) for n in range(101, 112)))
    replica.write(upsert((100, "new", 1)))
    replica.flush()


def deletion_in_the_group(replica: HarnessReplica) -> None:
    replica.insert(*((n, "x", 0) for n in range(100, 112)))
    replica.flush()
    replica.write(delete((100,)), insert(*((n, "y", 0) for n in range(112, 120))))
    replica.flush()


def column_with_a_default(replica: HarnessReplica) -> None:
    replica.change_schema(widened(replica.schema, default=5))


CASES: list[tuple[Callable[[HarnessReplica], None], int | None]] = [
    *((case, None) for case in (newer_in_memory, partial_in_memory, deleted_in_memory, between_in_memory)),
    *((case, None) for case in (newer_in_another_block, deleted_in_another_block)),
    *((case, None) for case in (history_in_the_group, deletion_in_the_group, column_with_a_default)),
    (lambda _: None, 5),
]


def any_pieces(_: ColumnarView, parts: Sequence[SourceSlice], __: Layout) -> list[RowGroupSlice]:
    """What would be handed on by somebody who does not ask whether it may."""
    return [part for part in parts if isinstance(part, RowGroupSlice)][:1]


@pytest.mark.parametrize(("case", "at"), CASES)
def test_what_is_not_plain_is_decoded_and_would_be_wrong_otherwise(
    replica: HarnessReplica, case: Callable[[HarnessReplica], None], at: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    case(replica)
    rows, handed_on = read_as_stored(replica.store, at)
    assert rows == replica.rows(at)
    assert handed_on < 40 or len(rows) > 40
    monkeypatch.setattr(ColumnarView, "plain_row_groups", any_pieces)
    with pytest.raises((AssertionError, Corrupt)):
        assert read_as_stored(replica.store, at)[0] == rows


def test_a_row_that_only_one_group_has_keeps_none_of_the_others_from_being_handed_on(replica: HarnessReplica) -> None:
    newer_in_memory(replica)
    assert read_as_stored(replica.store)[1] == 36


@pytest.mark.parametrize("field", ["key_from", "key_until", "after"])
def test_a_range_that_cuts_a_group_decodes_that_one(
    replica: HarnessReplica, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = {field: encode_key(SCHEMA, (18,))}
    expected = {"key_from": ROWS[18:], "key_until": ROWS[:18], "after": ROWS[19:]}[field]
    rows, handed_on = read_as_stored(replica.store, **bound)
    assert (rows, handed_on) == (expected, len(expected) // 4 * 4)
    monkeypatch.setattr(ColumnarView, "plain_row_groups", any_pieces)
    with pytest.raises(AssertionError):
        assert read_as_stored(replica.store, **bound)[0] == expected


def test_what_a_merge_under_way_has_taken_from_a_block_is_not_handed_on_again() -> None:
    config = replace(tiny(), block_rows_max=1000, level0_blocks_min=1, level0_blocks_max=99, merge_step_rows=64)
    made = StoreHarness(ColumnarStore, lambda: config).replica()
    for turn in range(3):
        made.write(upsert(*((n, f"t{turn}", n) for n in range(turn, 400, 1 + turn))))
        made.flush()
    before = made.rows()
    for _ in range(20):
        assert read_as_stored(made.store)[0] == before
        made.compact(1)
    made.compact()
    made.store.set_history_floor(10_000)
    made.compact()
    assert read_as_stored(made.store) == (before, len(before))


def test_damage_on_disk_is_an_error_that_names_the_place(replica: HarnessReplica) -> None:
    (path,) = [path for path in replica.disk.tree() if path.endswith(".parquet")]
    replica.disk.damage(path, 40)
    with pytest.raises(Corrupt) as caught:
        read_as_stored(replica.store)
    assert caught.value.path == path and caught.value.offset is not None


def test_a_cursor_hands_on_what_was_merged_away_and_nothing_once_it_is_closed(replica: HarnessReplica) -> None:
    replica.write(upsert(*ROWS))
    replica.flush()
    made = StoreHarness(ColumnarStore, lambda: replace(calm(), level0_blocks_min=1)).replica()
    for start in (0, 20):
        made.insert(*ROWS[start : start + 20])
        made.flush()
    with made.store.scan(ScanSpec(order=Order.KEY)) as cursor:
        made.store.set_history_floor(10_000)
        made.write(upsert(*ROWS))
        made.flush()
        made.compact()
        piece = cursor.next_stored(1000, 1 << 30)  # type: ignore[attr-defined]
        assert piece is not None and piece.row_count == 20 and piece.footer()
    assert cursor.next_stored(1000, 1 << 30) is None  # type: ignore[attr-defined]
    assert cursor.next_batch() is None


# -- whatever happened -----------------------------------------------------------------------------

KEYS = st.integers(0, 60)
ACTIONS = st.one_of(
    st.tuples(st.just("insert"), KEYS, st.integers(1, 30)),
    st.tuples(st.just("upsert"), KEYS, st.integers(1, 6)),
    st.tuples(st.just("update"), KEYS, st.integers(1, 3)),
    st.tuples(st.just("delete"), KEYS, st.integers(1, 3)),
    st.tuples(st.sampled_from(["flush", "flush", "compact", "widen", "crash", "floor"]), KEYS, st.just(0)),
)


@given(
    base=st.integers(0, 70),
    actions=st.lists(ACTIONS, max_size=10),
    ago=st.integers(0, 60),
    rows_max=st.integers(3, 60),
    limit=st.none() | st.integers(0, 50),
    low=st.none() | KEYS,
)
def test_rows_that_are_handed_on_are_those_of_the_memory_store(
    base: int, actions: list[tuple[str, int, int]], ago: int, rows_max: int, limit: int | None, low: int | None
) -> None:
    mine, other = StoreHarness(ColumnarStore, tiny).replica(), StoreHarness(MemoryStore).replica()
    for one in (mine, other):
        one.insert(*((n, f"n{n}", n) for n in range(base)))
    mine.flush()
    floor = 0
    for action, key, count in actions:
        width = len(mine.schema.columns) - 3
        if action in ("insert", "upsert"):
            rows = [(n, f"n{n}", n, *[key] * width) for n in range(key, key + count)]
            kind = OpKind.INSERT_IGNORE if action == "insert" else OpKind.UPSERT
            ops = [Op(kind, rows)]
        elif action == "update":
            ops = [Op(OpKind.UPDATE_IGNORE, [(n, -n) for n in range(key, key + count)], (1, 3))]
        elif action == "delete":
            ops = [Op(OpKind.DELETE_IGNORE, [(n,) for n in range(key, key + count)])]
        else:
            ops = []
        for one in (mine, other):
            if ops:
                one.write(*ops)
            if action == "widen" and not width:
                one.change_schema(widened(one.schema, default=key if key % 2 else None))
            if action == "floor":
                floor = max(floor, 10 * len(one.log) - key)
                one.store.set_history_floor(floor)
        if action == "flush":
            mine.flush()
        if action == "compact":
            mine.compact(1 + key % 5)
        if action == "crash":
            mine.crash(key)
    at = max(floor, 10 * len(mine.log) - ago)
    bound = {} if low is None else {"key_from": encode_key(mine.schema, (low,))}
    for when in (None, at):
        rows, handed_on = read_as_stored(mine.store, when, rows_max=rows_max, limit=limit, **bound)
        assert rows == other.rows(when, limit=limit, **bound)
        event(f"handed on: {handed_on > 0}")
