"""What the driver plans and says when a table is read, over tablets in memory."""

from __future__ import annotations

import pickle
from datetime import date

import pytest

from stelae.client import ScanToken, Table, to_datetime
from stelae.client.token_division import TOKENS_MIN
from stelae_spark_sink import data_source
from stelae_spark_sink.table_reader import SHOWN_COLUMNS_MAX, TableReader, TokenPartition
from tests.unit.spark_sink.conftest import MASTERS, MadeTable

TABLETS = 200
COLUMNS = [{"name": "id", "type": "int64"}, {"name": "day", "type": "date"}]


@pytest.fixture
def table(make_table: MadeTable) -> Table:
    """A table of three tablets."""
    return make_table("readings", COLUMNS, ["id"])


def planned(**options: str) -> TableReader:
    given = {"masters": MASTERS, "table": "readings", **options}
    reader = data_source.reader(given, data_source.schema(given))
    assert isinstance(reader, TableReader)
    return reader


def test_the_log_of_the_driver_has_what_is_read(table: Table, capsys: pytest.CaptureFixture[str]) -> None:
    """No plan of Spark shows the option ``where``, so that a user could not see whether it took effect."""
    table.insert([(1, date(2026, 6, 1))])
    at = table.latest()
    planned(where='[["day", ">=", "2026-06-01"]]', columns="day", timestampAsOf=f"{at:09}").partitions()
    planned(timestampAsOf=f"{at:09}").partitions()
    read = f"stelae: table 'readings' is read as of {to_datetime(at).isoformat()}: 3 partitions, columns"
    assert capsys.readouterr().err.splitlines() == [
        f"""{read} day, where [["day", ">=", {{"date": "2026-06-01"}}]]""",
        f"{read} id, day",
    ]


def test_a_wide_table_has_a_short_line(make_table: MadeTable, capsys: pytest.CaptureFixture[str]) -> None:
    make_table("readings", [{"name": f"c{n}", "type": "int64"} for n in range(300)], ["c0"])
    values = ", ".join(map(str, range(1000)))
    planned(where=f'[["c1", "in", [{values}]]]').partitions()
    line = capsys.readouterr().err
    assert f", and {300 - SHOWN_COLUMNS_MAX} more, where" in line and len(line) < 800


@pytest.mark.parametrize("wall", [1, 1 << 62], ids=["behind", "ahead"])
def test_a_query_sees_the_acknowledged_rows_whatever_the_clock_of_the_driver_says(
    table: Table, monkeypatch: pytest.MonkeyPatch, wall: int
) -> None:
    table.insert([(n, date(2026, 6, 1)) for n in range(10)])
    table._table._writer.written.clear()  # Another client has written them.
    monkeypatch.setattr(table._table, "_wall_timestamp", lambda: wall)
    reader = planned()
    parts = reader.partitions()
    assert sorted(n for part in parts for batch in reader.read(part) for n in batch.column("id").to_pylist()) == [
        *range(10)
    ]
    times = {ScanToken.from_bytes(part.token).at for part in parts if isinstance(part, TokenPartition)}
    assert len(times) == 1 and all(at is not None and 1 < at < 1 << 62 for at in times)


def test_a_table_of_many_small_tablets_is_read_exactly_by_fewer_partitions(make_table: MadeTable) -> None:
    partition = {"hash": [{"columns": ["id"], "buckets": TABLETS}]}
    table = make_table("readings", COLUMNS, ["id"], partition=partition)
    assert len(planned().partitions()) < TABLETS, "empty tablets are put together, too"
    table.insert([(n, date(2026, 6, 1 + n % 30)) for n in range(400)])
    for where, expected in (
        ("[]", [*range(400)]),
        ('[["day", "=", "2026-06-05"]]', [*range(4, 400, 30)]),
        ('[["id", "in", [7, 250]]]', [7, 250]),
    ):
        reader = pickle.loads(pickle.dumps(planned(where=where)))
        parts = reader.partitions()
        tokens = [ScanToken.from_bytes(part.token) for part in parts if isinstance(part, TokenPartition)]
        visited = [tablet for token in tokens for tablet in token.tablet_ids]
        assert len(visited) == len({*visited})
        if len(visited) == TABLETS:
            assert TOKENS_MIN <= len(parts) < TABLETS / 2
        rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
        assert sorted((row["id"], row["day"]) for row in rows) == [(n, date(2026, 6, 1 + n % 30)) for n in expected]
