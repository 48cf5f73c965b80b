"""One key with many versions: the history is shortened before a row group of it gets too large, and nothing else is
lost."""

from __future__ import annotations

import random
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.errors import TooOld
from stelae.spi.scan import ScanSpec
from stelae.spi.schema import Schema
from stelae.spi.write import OpKind
from stelae.testing.conformance.store_harness import SCHEMA, HarnessReplica, StoreHarness
from stelae.testing.conformance.store_model import Op, StoreModel
from stelae_store_columnar import ColumnarStore, view
from stelae_store_columnar.config import ColumnarConfig
from stelae_store_columnar.history_floor import HistoryFloor

TEXT = 1000
"""Characters of a value."""

KEY_BYTES_MAX = 64 << 10


def small() -> ColumnarConfig:
    return ColumnarConfig(key_history_bytes_max=KEY_BYTES_MAX, level0_blocks_min=2, level0_blocks_max=3)


def replica(config: ColumnarConfig | None = None, schema: Schema = SCHEMA) -> HarnessReplica:
    return StoreHarness(ColumnarStore, small if config is None else lambda: config).replica(schema)


def stored_bytes(one: HarnessReplica) -> int:
    """The bytes of all versions in row groups."""
    store = one.store
    assert isinstance(store, ColumnarStore)
    return sum(group.index.size_bytes for live in store._state.levels.blocks for group in live.row_groups)


def operations(seed: int, hot: int) -> Iterator[Op]:
    """Writes of which most are of one key, by all kinds of operations, and the others of its neighbours."""
    rng = random.Random(seed)
    yield Op(OpKind.UPSERT, [(number, "neighbour", 1) for number in range(10)])
    while True:
        text = chr(97 + rng.randrange(26)) * TEXT
        number = hot if rng.random() < 0.9 else rng.randrange(10)
        draw = rng.random()
        if draw < 0.7:
            yield Op(OpKind.UPSERT, [(number, text, rng.randrange(100))])
        elif draw < 0.9:
            yield Op(OpKind.UPDATE_IGNORE, [(number, text)], (1, 2))
        elif draw < 0.95:
            yield Op(OpKind.UPDATE_IGNORE, [(number, rng.randrange(100))], (1, 3))
        else:
            yield Op(OpKind.DELETE_IGNORE, [(number,)])


def agrees(one: HarnessReplica, model: StoreModel) -> None:
    """Every time at or above the floor is as in the model, and every time below it is refused."""
    floor = one.store.history_floor
    times = [timestamp for timestamp, _ in model.history]
    for at in {None, floor, *(time for time in times if time >= floor)}:
        assert one.rows(at) == model.rows(at), at
    for at in [time for time in times if time < floor][-3:]:
        with pytest.raises(TooOld):
            one.rows(at)
    for after in [time for time in times if time >= floor][:3]:
        changed, deleted = model.changed(after, times[-1])
        rows, keys = [], []
        for changes in one.store.diff(after, times[-1], ScanSpec(order="key")):
            rows += changes.changed.to_rows()
            keys += changes.deleted.to_rows()
        assert (sorted(rows), len(keys)) == (sorted(changed), len(deleted))


@pytest.mark.parametrize("seed", range(4))
def test_a_key_with_many_versions_shortens_the_history_and_no_more(seed: int) -> None:
    one, model = replica(), StoreModel(SCHEMA)
    rng = random.Random(seed)
    for number, op in enumerate(operations(seed, hot=seed * 3), start=1):
        one.write(op)
        model.apply(10 * number, [op])
        draw = rng.random()
        if draw < 0.03:
            one.flush()
        elif draw < 0.06:
            one.compact()
        elif draw < 0.07:
            one.flush()
            one.crash(seed)
        if number % 100 == 0:
            agrees(one, model)
        if number == 400:
            break
    one.flush()
    one.compact()
    agrees(one, model)
    floor = one.store.history_floor
    assert 0 < floor < model.history[-1][0]
    assert stored_bytes(one) <= 2 * KEY_BYTES_MAX, "or what is below the floor was kept"
    one.crash(seed)
    assert one.store.history_floor == floor
    agrees(one, model)


def test_many_keys_of_the_same_size_keep_their_history() -> None:
    one = replica()
    for number in range(200):
        one.write(Op(OpKind.UPSERT, [(key, "x" * TEXT, number) for key in range(20)]))
        if number % 20 == 19 and number < 59:
            one.flush()
            one.compact()
            assert one.store.history_floor == 0
    one.flush()
    one.compact()
    assert one.store.history_floor > 0


def test_what_is_left_is_the_newest_half_of_the_limit() -> None:
    one = replica()
    for _ in range(100):
        one.write(Op(OpKind.UPSERT, [(1, "x" * TEXT, 1)]))
    one.flush()
    one.compact()
    kept = 100 - one.store.history_floor // 10
    # A version in memory counts for more than its text: its key, its timestamp and what finds it.
    assert KEY_BYTES_MAX // 3 <= kept * TEXT <= KEY_BYTES_MAX // 2


def test_a_shorter_history_is_logged_with_the_store(caplog: pytest.LogCaptureFixture) -> None:
    one = replica()
    for _ in range(100):
        one.write(Op(OpKind.UPSERT, [(1, "x" * TEXT, 1)]))
    one.flush()
    (line,) = [record.getMessage() for record in caplog.records if "history shortened" in record.getMessage()]
    assert "store=/data/t" in line and f"floor={one.store.history_floor}" in line


def test_a_read_puts_no_more_than_the_newest_versions_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "LARGE_STEP_BYTES", 1000)
    one, model = replica(ColumnarConfig(level0_blocks_min=50, level0_blocks_max=60)), StoreModel(SCHEMA)
    for number, op in enumerate(operations(9, hot=5), start=1):
        one.write(op)
        model.apply(10 * number, [op])
        if number % 10 == 0:
            one.flush()
        if number == 155:
            break
    agrees(one, model)
    sizes = []
    ordered = pa.concat_arrays
    monkeypatch.setattr(pa, "concat_arrays", lambda arrays: sizes.append(sum(map(len, arrays))) or ordered(arrays))
    one.rows(1000)
    assert max(sizes) < 100


@pytest.mark.parametrize(
    ("types", "key"),
    [
        (["int8"], (-3,)),
        (["string"], ("a",)),
        (["binary"], (b"",)),
        (["decimal(12,2)"], (Decimal("-1.25"),)),
        (["timestamp"], (1_767_225_600_000_000,)),
        (["string", "int64"], ("a", 1)),
    ],
)
def test_the_history_of_a_key_of_any_type_is_bounded(types: list[str], key: tuple[Any, ...]) -> None:
    names = [f"k{place}" for place in range(len(types))]
    columns = [{"name": name, "type": one} for name, one in zip(names, types, strict=True)]
    columns.append({"name": "v", "type": "string"})
    one = replica(schema=schema_from_plain({"columns": columns, "key": names}))
    for _ in range(100):
        one.write(Op(OpKind.UPSERT, [(*key, "x" * TEXT)]))
    one.flush()
    one.compact()
    assert one.store.history_floor > 0 and len(one.rows()) == 1


def test_the_floor_does_not_go_back() -> None:
    floor = HistoryFloor(7, 100, "/data/t")
    floor.raise_to(5)
    assert floor.timestamp == 7
    floor.raise_to(9)
    assert floor.timestamp == 9
