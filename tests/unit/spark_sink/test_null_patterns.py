"""With ``ignoreNull``, rows are divided so that a null leaves its column alone."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.write import OpKind
from stelae_spark_sink.null_patterns import columns_left_alone, divided

NAMES = ("id", "a", "b", "c")


def schema_of(key_type: str = "int64") -> Any:
    columns = [
        {"name": "id", "type": key_type},
        {"name": "a", "type": "int64", "nullable": True},
        {"name": "b", "type": "string", "nullable": True},
        {"name": "c", "type": "int64"},
    ]
    return schema_from_plain({"columns": columns, "key": ["id"]})


SCHEMA = schema_of()


def rows_of(*rows: tuple[Any, ...]) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip(NAMES, row, strict=True)) for row in rows],
        pa.schema({"id": pa.int64(), "a": pa.int64(), "b": pa.string(), "c": pa.int64()}),
    )


def test_rows_without_nulls_stay_as_they_are() -> None:
    rows = rows_of((1, 1, "x", 1), (2, 2, "y", 2))
    found = divided(rows, SCHEMA, OpKind.UPSERT)
    assert found.parts == [rows] and found.original([1]) == [1]


def test_rows_with_the_same_nulls_are_written_together_without_these_columns() -> None:
    rows = rows_of((1, None, "x", 1), (2, 2, "y", 2), (3, None, "z", 3), (4, None, None, 4))
    found = divided(rows, SCHEMA, OpKind.UPSERT)
    assert sorted((tuple(part.column_names), part["id"].to_pylist()) for part in found.parts) == [
        (("id", "a", "b", "c"), [2]),
        (("id", "b", "c"), [1, 3]),
        (("id", "c"), [4]),
    ]
    order = [number for part in found.parts for number in part["id"].to_pylist()]
    assert [rows["id"][number].as_py() for number in found.original(range(4))] == order


def test_rows_with_one_key_keep_their_order() -> None:
    rows = rows_of((1, None, "x", 1), (1, 2, "y", 2), (1, None, "z", 3))
    found = divided(rows, SCHEMA, OpKind.UPSERT)
    assert [part["b"].to_pylist() for part in found.parts] == [["x"], ["y"], ["z"]]
    assert found.original([2]) == [2]


def test_zero_and_minus_zero_are_one_key() -> None:
    rows = pa.table({"id": [5.0, 0.0, -0.0], "a": pa.array([2, None, 2], pa.int64()), "c": [1, 2, 3]})
    found = divided(rows, schema_of("double"), OpKind.UPSERT)
    assert [part["c"].to_pylist() for part in found.parts] == [[1], [2], [3]]


@pytest.mark.parametrize(
    ("kind", "columns"), [(OpKind.UPSERT, ["a", "b"]), (OpKind.INSERT, ["a", "b"]), (OpKind.UPDATE, ["a", "b", "c"])]
)
def test_a_null_in_a_column_that_the_write_needs_is_left_to_be_refused(kind: OpKind, columns: list[str]) -> None:
    assert columns_left_alone(SCHEMA, kind) == columns


@pytest.mark.parametrize("keys", [1000, 40])
def test_any_rows_come_out_once_with_their_values(keys: int) -> None:
    rng = random.Random(keys)
    rows = rows_of(*[(rng.randrange(keys), rng.choice([None, n]), rng.choice([None, str(n)]), n) for n in range(300)])
    found = divided(rows, SCHEMA, OpKind.UPSERT)
    numbers = [number for part in found.parts for number in part["c"].to_pylist()]
    assert sorted(numbers) == [*range(300)]
    assert [*found.original(range(300))] == numbers
    for part in found.parts:
        assert not any(column.null_count for column in part.columns)
        for row in part.to_pylist():
            assert {**dict.fromkeys(NAMES), **row} == rows.slice(row["c"], 1).to_pylist()[0]
    for key in range(keys):
        of_key = [n for n in numbers if rows["id"][n].as_py() == key]
        assert of_key == sorted(of_key)
