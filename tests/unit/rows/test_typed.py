"""Rows read with their types: what fits is the same batch as without, and what does not is left to the other way."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stelae.rows.batcher import Batcher
from stelae.rows.limits import RANGES
from stelae.rows.operation_encoding import ROW_FORM_ROWS_LIMIT, operation, sequence_ranges_of
from stelae.rows.plain_schema import schema_from_plain
from stelae.rows.typed_rows import TypedRows
from stelae.spi.errors import CallerError, SchemaMismatch
from stelae.spi.ids import ClientId
from stelae.spi.payload import WritePayload, decode_payload
from stelae.spi.rows import RowBatch
from stelae.spi.write import OpKind, SequenceRange, digests_of

TYPES = ("int8", "int64", "double", "bool", "string", "binary", "date", "timestamp")
SCHEMA = schema_from_plain(
    {
        "columns": [
            {"name": "id", "type": "int64"},
            *({"name": kind, "type": kind, "nullable": kind != "int8"} for kind in TYPES),
        ],
        "key": ["id"],
    }
)
GOOD = (7, -8, 1 << 40, 1.5, True, "text", b"bytes", 18_000, 1_700_000_000_000_000)
INTEGERS = (0, -129, 127, 1 << 62, 1 << 63, (1 << 64) - 1, (1 << 53) + 1)
EDGES = tuple(edge + step for edges in RANGES.values() for edge in edges for step in (-1, 0, 1))
FLOATS = (1.0, 1.5, -0.0, 1e300, float("inf"), float("nan"))
OTHERS = (None, True, "", "x", b"", b"x", [1], {}, datetime(2020, 1, 1, tzinfo=UTC))
VALUES = (*INTEGERS, *EDGES, *FLOATS, *OTHERS)


def run_of(*rows: tuple[Any, ...]) -> SequenceRange:
    (run,) = sequence_ranges_of((n, operation(OpKind.UPSERT, [row])) for n, row in enumerate(rows, start=1))
    return run


def payload(run: SequenceRange, *, typed: bool) -> WritePayload:
    """What the batcher makes of a run, with and without types."""
    batcher = Batcher(SCHEMA)
    if not typed:
        batcher._check_columns(run.kind, run.columns)[1]._decoder = None
    batcher.add(ClientId("c"), 1, run, digests_of(run), None)
    ((body, _),) = batcher.build()
    return decode_payload(body)


def test_rows_that_fit_are_read_and_built_as_they_are() -> None:
    typed = TypedRows(SCHEMA.layout)
    found = typed.decode(run_of(GOOD, GOOD))
    assert found == [[GOOD], [GOOD]]
    assert typed.build([GOOD, GOOD]).arrow.equals(RowBatch.from_equal_rows(SCHEMA.layout, [GOOD, GOOD]).arrow)


@pytest.mark.parametrize("place", range(len(GOOD)))
@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_of_any_type_in_any_column_gives_what_it_gives_without_types(place: int, value: Any) -> None:
    row = (*GOOD[:place], value, *GOOD[place + 1 :])
    run = run_of(GOOD, row, GOOD)
    assert payload(run, typed=True) == payload(run, typed=False)


@given(st.lists(st.tuples(*[st.sampled_from((good, good, *VALUES)) for good in GOOD]), min_size=1, max_size=8))
def test_rows_of_any_values_give_what_they_give_without_types(rows: list[tuple[Any, ...]]) -> None:
    run = run_of(*rows)
    assert payload(run, typed=True) == payload(run, typed=False)


@pytest.mark.parametrize("row", [GOOD[:-1], (*GOOD, 1), ()])
def test_a_row_of_another_width_is_left_to_the_other_way(row: tuple[Any, ...]) -> None:
    assert TypedRows(SCHEMA.layout).decode(run_of(GOOD, row)) is None


@pytest.mark.parametrize("kind", ["float", "decimal(9,2)"])
def test_types_that_need_a_closer_look_are_read_without(kind: str) -> None:
    plain = {"columns": [{"name": "id", "type": "int64"}, {"name": "v", "type": kind}], "key": ["id"]}
    assert TypedRows(schema_from_plain(plain).layout).decode(run_of((1, 2))) is None


def test_a_number_out_of_range_is_no_batch() -> None:
    with pytest.raises(SchemaMismatch):
        TypedRows(SCHEMA.layout).build([(7, 128, *GOOD[2:])])


def test_too_many_rows_in_one_operation_are_refused() -> None:
    many = [GOOD] * (ROW_FORM_ROWS_LIMIT + 1)
    (run,) = sequence_ranges_of([(1, operation(OpKind.UPSERT, many))])
    with pytest.raises(CallerError, match="Arrow"):
        TypedRows(SCHEMA.layout).decode(run)
