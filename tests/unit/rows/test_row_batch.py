"""Row batches: values in and out, and bytes from strangers."""

from __future__ import annotations

import random
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stelae.rows.declared_size import check_declared_size
from stelae.rows.plain_schema import schema_from_plain, schema_to_plain
from stelae.spi.errors import Corrupt, SchemaMismatch, TooLarge
from stelae.spi.rows import RowBatch, to_array
from stelae.spi.schema import Column, Layout

SCHEMA = schema_from_plain(
    {
        "columns": [
            {"name": "id", "type": "int64"},
            {"name": "name", "type": "string", "nullable": True},
            {"name": "count", "type": "int32", "default": 7},
        ],
        "key": ["id"],
    }
)
ROWS = [(1, "a", 1), (2, None, 2), (3, "c", 3)]


def test_importing_the_module_does_not_import_pyarrow() -> None:
    script = "import sys, stelae.spi.store; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == 0


def test_rows_come_back_through_bytes() -> None:
    batch = RowBatch.from_equal_rows(SCHEMA.layout, ROWS)
    back = RowBatch.from_ipc(SCHEMA.layout, batch.to_ipc())
    assert back.to_rows() == ROWS
    assert len(back) == 3
    assert back.nbytes > 0


def test_no_rows_come_back_as_no_rows() -> None:
    batch = RowBatch.from_equal_rows(SCHEMA.layout, [])
    assert RowBatch.from_ipc(SCHEMA.layout, batch.to_ipc()).to_rows() == []


def test_slices_and_filters() -> None:
    batch = RowBatch.from_equal_rows(SCHEMA.layout, ROWS)
    assert batch.slice(1).to_rows() == ROWS[1:]
    assert batch.slice(0, 2).to_rows() == ROWS[:2]
    assert batch.filter([True, False, True]).to_rows() == [ROWS[0], ROWS[2]]
    assert RowBatch.from_ipc(SCHEMA.layout, batch.slice(1, 1).to_ipc()).to_rows() == ROWS[1:2]


def test_another_layout_takes_columns_by_id_and_fills_what_is_absent() -> None:
    batch = RowBatch.from_equal_rows(SCHEMA.project((1,)), [(5,), (6,)])
    assert batch.select(SCHEMA.layout).to_rows() == [(5, None, 7), (6, None, 7)]
    assert batch.select(batch.layout) is batch
    with pytest.raises(SchemaMismatch):
        RowBatch.from_equal_rows(SCHEMA.project((2,)), [("a",)]).select(SCHEMA.layout)


def test_natural_values_become_plain_ones() -> None:
    columns = [{"name": t, "type": t} for t in ("date", "timestamp", "decimal(6,2)")]
    layout = schema_from_plain({"columns": columns, "key": ["date"]}).layout
    natural = (date(1970, 1, 3), datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "1.5")
    plain = (2, 1_000_000, Decimal("1.50"))
    assert RowBatch.from_equal_rows(layout, [natural, plain]).to_rows() == [plain, plain]


def test_infinity_fits_a_float() -> None:
    layout = schema_from_plain({"columns": [{"name": "k", "type": "float"}], "key": ["k"]}).layout
    values = [(float("inf"),), (float("-inf"),), (3.4028234663852886e38,)]
    assert RowBatch.from_equal_rows(layout, values).to_rows() == values


@pytest.mark.parametrize("rows", [[(1, "a")], [(1, "a", 1), (1, "a", 1, 1)], [()]])
def test_rows_of_another_width_are_refused(rows: list[tuple[Any, ...]]) -> None:
    with pytest.raises(SchemaMismatch, match="values"):
        RowBatch.from_equal_rows(SCHEMA.layout, rows)


def test_nulls_where_none_may_be_are_corrupt_unless_allowed() -> None:
    loose = schema_from_plain({"columns": [{"name": "k", "type": "int8"}, {"name": "n", "type": "int8"}], "key": ["k"]})
    plain = schema_to_plain(loose)
    plain["columns"][1]["nullable"] = True
    data = RowBatch.from_equal_rows(schema_from_plain(plain).layout, [(1, None)]).to_ipc()
    with pytest.raises(Corrupt, match="'n'"):
        RowBatch.from_ipc(loose.layout, data)
    assert RowBatch.from_ipc(loose.layout, data, allow_nulls=True).to_rows() == [(1, None)]


def test_a_batch_above_the_limit_is_refused_with_both_sizes() -> None:
    batch = RowBatch.from_equal_rows(SCHEMA.layout, [(n, "x" * 90, n) for n in range(100)])
    data = batch.to_ipc()
    check_declared_size(data, "a batch", len(data))
    with pytest.raises(TooLarge) as caught:
        check_declared_size(data, "a batch", 9_000)
    assert 9_000 == caught.value.size_bytes_max < caught.value.size_bytes <= len(data)


@given(st.binary(max_size=200))
def test_bytes_that_are_no_batch_are_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt):
        RowBatch.from_ipc(SCHEMA.layout, data)
    with pytest.raises(Corrupt):
        check_declared_size(data, "a batch", 1 << 20)


def test_damaged_batches_are_corrupt_or_rows_but_never_a_crash() -> None:
    rows = [(n, f"name {n}" if n % 3 else None, n) for n in range(30)]
    whole = RowBatch.from_equal_rows(SCHEMA.layout, rows).to_ipc()
    rng = random.Random(1)
    refused = 0
    for _ in range(3000):
        data = bytearray(whole)
        for _ in range(1 + int(rng.random() * 4)):
            data[int(rng.random() * len(data))] = rng.getrandbits(8)
        cut = len(data) if rng.random() < 0.7 else int(rng.random() * len(data))
        try:
            check_declared_size(bytes(data[:cut]), "a batch", 1 << 20)
            batch = RowBatch.from_ipc(SCHEMA.layout, bytes(data[:cut]))
            assert len(batch.to_rows()) == len(batch)
        except (Corrupt, TooLarge):
            refused += 1
    assert 300 < refused < 3000


def test_a_batch_of_another_layout_is_corrupt() -> None:
    other = schema_from_plain({"columns": [{"name": "k", "type": "int8"}], "key": ["k"]})
    data = RowBatch.from_equal_rows(other.layout, [(1,)]).to_ipc()
    with pytest.raises(Corrupt):
        RowBatch.from_ipc(SCHEMA.layout, data)


ANY_TYPE = ("int8", "int64", "float", "double", "bool", "decimal(5,2)", "string", "binary", "date", "timestamp")
ANY_VALUE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 65), 1 << 65),
    st.integers(-200, 200),
    st.floats(),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.decimals(allow_nan=False, allow_infinity=False, places=1, min_value=-2000, max_value=2000),
    st.dates(),
    st.sampled_from(["1.5", "x", "1e9"]),
)


@given(st.data())
def test_rows_fit_together_exactly_if_each_column_fits_alone(data: st.DataObject) -> None:
    """The quick way for rows and the thorough one for a column accept the same values, as the same ones."""
    types = data.draw(st.lists(st.tuples(st.sampled_from(ANY_TYPE), st.booleans()), min_size=1, max_size=4))
    layout = Layout(
        tuple(Column(id=n, name=f"c{n}", type=kind, nullable=nullable) for n, (kind, nullable) in enumerate(types, 1))
    )
    rows = data.draw(st.lists(st.tuples(*[ANY_VALUE] * len(types)), min_size=1, max_size=4))
    try:
        arrays = [
            to_array(column, values) for column, values in zip(layout.columns, zip(*rows, strict=True), strict=True)
        ]
    except SchemaMismatch:
        with pytest.raises(SchemaMismatch):
            RowBatch.from_equal_rows(layout, rows)
    else:
        assert RowBatch.from_equal_rows(layout, rows).to_ipc() == RowBatch.from_arrays(layout, arrays).to_ipc()
