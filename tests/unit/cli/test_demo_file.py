"""A file of the user's, as the demo loads it."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from stelae.cli.demo_file import ROWS_MIN, BadSource, from_file

ROWS = ROWS_MIN


def test_every_type_that_a_table_can_store_becomes_plain_values(tmp_path: Path) -> None:
    path = tmp_path / "my figures.parquet"
    columns = {
        "id": pa.array(range(ROWS), pa.uint32()),
        "day": pa.array([date(1970, 1, 2)] * ROWS),
        "time": pa.array([datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)] * ROWS, pa.timestamp("ms", "UTC")),
        "price": pa.array([Decimal("1.50")] * ROWS, pa.decimal128(9, 2)),
        "kind": pa.array(["a"] * ROWS).dictionary_encode(),
        "nothing": pa.nulls(ROWS),
    }
    parquet.write_table(pa.table(columns), path)
    found = from_file(path, ["id"])
    assert found.table == "my figures"
    assert [column["type"] for column in found.columns] == [
        "int64",
        "date",
        "timestamp",
        "decimal(9,2)",
        "string",
        "string",
    ]
    assert [column["nullable"] for column in found.columns] == [False, True, True, True, True, True]
    number, day, time_us, price, kind, nothing = found.rows[7]
    assert (number, day, time_us, kind, nothing) == (7, 1, 1_000_000, "a", None)
    assert Decimal(price) == Decimal("1.50")
    assert found.keys()[7] == (7,)


def test_times_finer_than_a_table_stores_are_refused_instead_of_cut(tmp_path: Path) -> None:
    path = tmp_path / "fine.parquet"
    times = pa.array([1] * ROWS, pa.timestamp("ns"))
    parquet.write_table(pa.table({"id": range(ROWS), "time": times}), path)
    with pytest.raises(BadSource, match=r"column 'time' of .* cannot be stored as timestamp"):
        from_file(path, ["id"])


def test_a_file_of_too_few_rows_for_the_kills_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "few.csv"
    path.write_text("id\n" + "\n".join(map(str, range(ROWS_MIN - 1))) + "\n")
    with pytest.raises(BadSource, match=f"has {ROWS_MIN - 1} rows, too few"):
        from_file(path, ["id"])
