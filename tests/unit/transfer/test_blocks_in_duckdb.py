"""What the how-to says of DuckDB and blocks holds: the rows as they are, and as they were at a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from stelae.spi.scan import Order, ScanSpec
from stelae.testing.conformance.store_harness import HarnessReplica, delete, upsert
from tests.unit.store_columnar.test_read_by_others import EXAMPLES, PAGE, readings

__all__ = ["readings"]


def asked(folder: Path, condition: str = "") -> list[tuple[Any, ...]]:
    """The rows that the page's query gives, in key order."""
    text = dict(EXAMPLES)["DuckDB"].replace("/srv/n1/data", str(folder))
    if condition:
        assert "QUALIFY" in text
        text = text.replace("QUALIFY", f"{condition}\nQUALIFY")
    return sorted(duckdb.connect().sql(text).fetchall())


def scanned(replica: HarnessReplica, at: int | None) -> list[tuple[Any, ...]]:
    with replica.store.scan(ScanSpec(order=Order.KEY), at) as cursor:
        return [tuple(row.values()) for batch in cursor for row in batch.arrow.to_pylist()]


def test_the_query_gives_the_rows_as_they_are(readings: HarnessReplica, tmp_path: Path) -> None:
    found = asked(tmp_path)
    assert len(found) == 38 and found == scanned(readings, None)


def test_with_the_condition_of_the_page_it_gives_the_rows_as_they_were(
    readings: HarnessReplica, tmp_path: Path
) -> None:
    condition = "WHERE _stelae_timestamp >> 12 <= epoch_us(TIMESTAMP '2026-11-20')"
    assert f"`{condition}`" in PAGE
    readings.write(upsert((1, None, "7.00", "changed"), (100, None, None, None)), timestamp=(2_000_000 << 12) + 3)
    readings.flush()
    readings.write(delete((2,), (3,), (4,)), timestamp=3_000_000 << 12)
    readings.flush()
    times = {t for path in tmp_path.glob("readings/*.parquet") for t in timestamps(path)}
    seen = []
    for time_us in sorted({time >> 12 for time in times}):
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)
        mine = condition.replace("2026-11-20", moment.strftime("%Y-%m-%d %H:%M:%S.%f"))
        found = asked(tmp_path, mine)
        assert found == scanned(readings, (time_us + 1 << 12) - 1)
        seen.append(len(found))
    assert seen == [38, 39, 36]


def timestamps(path: Path) -> list[int]:
    return list(pc.unique(pq.read_table(path)["_stelae_timestamp"]).to_pylist())


@pytest.mark.parametrize("name", ["_stelae_timestamp", "_stelae_deleted", "_stelae_schema"])
def test_the_query_leaves_our_own_columns_out(readings: HarnessReplica, tmp_path: Path, name: str) -> None:
    text = dict(EXAMPLES)["DuckDB"].replace("/srv/n1/data", str(tmp_path))
    assert name not in duckdb.connect().sql(text).columns
