"""Batches from plain rows: what does not fit is refused, and found."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stelae.rows.batch_building import Misfit, build_batch, misfits
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.errors import SchemaMismatch
from stelae.spi.schema import Column

PAIR = schema_from_plain({"columns": [{"name": "k", "type": "int8"}, {"name": "c", "type": "string"}], "key": ["k"]})


def column(column_type: str, *, nullable: bool = False) -> Column:
    return Column(id=1, name="c", type=column_type, nullable=nullable)


@pytest.mark.parametrize(
    ("column_type", "value"),
    [
        ("bool", 1),
        ("int8", 128),
        ("int32", 1.0),
        ("int32", 1.5),
        ("int32", True),
        ("int32", "1"),
        ("int64", 2**63),
        ("int64", Decimal(1)),
        ("float", 1e39),
        ("double", 2**60 + 1),
        ("double", True),
        ("double", "1.5"),
        ("string", b"x"),
        ("string", 5),
        ("string", "\ud800"),
        ("string", ["x"]),
        ("binary", "x"),
        ("date", 1.0),
        ("date", datetime(2020, 1, 1, 5, tzinfo=UTC)),
        ("date", 2**31),
        ("timestamp", 1.5),
        ("timestamp", date(2020, 1, 1)),
        ("decimal(5,2)", 1.5),
        ("decimal(5,2)", Decimal("1.555")),
        ("decimal(5,2)", Decimal("1000")),
        ("decimal(5,2)", "NaN"),
        ("decimal(5,2)", "one"),
        ("int8", None),
        ("int8", {}),
    ],
)
def test_a_value_that_would_change_or_does_not_fit_is_refused(column_type: str, value: Any) -> None:
    layout = schema_from_plain(
        {"columns": [{"name": "k", "type": "int8"}, {"name": "c", "type": column_type}], "key": ["k"]}
    ).layout
    good = build_batch(layout, [(1, _some(column_type))]).to_rows()[0]
    with pytest.raises(Misfit, match=rf"row 1, column 'c': expected {column_type[:3]}") as caught:
        build_batch(layout, [good, (2, value)])
    assert (caught.value.row, caught.value.column) == (1, "c")


def _some(column_type: str) -> Any:
    texts = {"string": "x", "binary": b"x", "bool": True, "float": 1.5, "double": 1.5}
    return texts.get(column_type, 1)


@pytest.mark.parametrize(
    ("rows", "fact"),
    [
        ([(1, "a"), (2,)], "row 1 has 1 values; expected 2"),
        ([(1, "a", 1), (2, "b")], "row 0 has 3 values; expected 2"),
        ([()], "row 0 has 0 values; expected 2"),
    ],
)
def test_a_row_of_another_width_is_refused_by_its_place(rows: list[tuple[Any, ...]], fact: str) -> None:
    with pytest.raises(SchemaMismatch, match=f"^{fact}$"):
        build_batch(PAIR.layout, rows)


@given(st.lists(st.sampled_from([1, "x", None, 2**70, 1.5]), min_size=1, max_size=40))
def test_every_misfit_is_found_and_no_other(values: list[Any]) -> None:
    fits = {type(v) is int and v < 2**70 for v in values}
    found = misfits(column("int32"), values)
    assert found == [p for p, v in enumerate(values) if not (type(v) is int and v < 2**70)]
    assert bool(found) == (False in fits)
