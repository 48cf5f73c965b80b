"""Whole numbers that JSON lines write with a point or an exponent, as pandas writes integers beside nulls."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.write import OpKind
from stelae_transfer.dry_run import check_chunk
from stelae_transfer.json_reader import JsonReader
from tests.unit.transfer.test_readers import rows, write

COLUMNS = [{"name": "id", "type": "int64"}, {"name": "i", "type": "int8", "nullable": True}]
DECIMAL = {"name": "m", "type": "decimal(10,2)", "nullable": True}
LINES = ["1.0", "1e2", "-128.0", "1.5", "128.0", "1e400", "9007199254740993.0"]


@pytest.mark.parametrize("more", [[], [DECIMAL]], ids=["without a decimal", "with one"])
def test_the_other_columns_of_a_table_do_not_decide_what_an_integer_column_takes(
    tmp_path: Path, more: list[dict[str, object]]
) -> None:
    """Every such row was bad if the table had a decimal column: expected int8, got Decimal('1.0')."""
    schema = schema_from_plain({"columns": [*COLUMNS, *more], "key": ["id"]})
    path = write(tmp_path / "a.jsonl", "\n".join(f'{{"id": {n}.0, "i": {i}}}' for n, i in enumerate(LINES, 1)))
    with closing(JsonReader(path)) as reader:
        (chunk,) = reader.chunks(schema, ["id", "i"], 0)
    assert [row.row for row in check_chunk(schema, OpKind.UPSERT, chunk)] == [4, 5, 6, 7]
    assert {number: row["i"] for number, row in rows([chunk]).items() if number < 4} == {1: 1, 2: 100, 3: -128}


def test_a_decimal_column_still_takes_every_digit(tmp_path: Path) -> None:
    schema = schema_from_plain({"columns": [{"name": "id", "type": "int64"}, DECIMAL], "key": ["id"]})
    path = write(tmp_path / "a.jsonl", '{"id": 1.0, "m": 12345678.90}\n{"id": 2, "m": 0.005}')
    with closing(JsonReader(path)) as reader:
        (chunk,) = reader.chunks(schema, ["id", "m"], 0)
    assert [(row.row, "Decimal('0.005')" in row.reason) for row in check_chunk(schema, OpKind.UPSERT, chunk)] == [
        (2, True)
    ]
    assert str(rows([chunk])[1]["m"]) == "12345678.90"
