"""The partitions of change feeds in Spark, over tablets in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable

from stelae.client import Table
from stelae.client.token_division import TOKENS_MIN
from stelae_spark_sink import data_source
from stelae_spark_sink.change_reader import ChangeStreamReader, FeedHistoryExpired
from tests.unit.spark_sink.conftest import MASTERS, MadeTable

COLUMNS = [{"name": "id", "type": "int64"}, {"name": "note", "type": "string", "nullable": True}]
TABLETS, ROWS = 200, 400


@pytest.fixture
def table(make_table: MadeTable) -> Table:
    """A table of many small tablets, with a row in most of them."""
    made = make_table("readings", COLUMNS, ["id"], partition={"hash": [{"columns": ["id"], "buckets": TABLETS}]})
    made.insert([(n, "first") for n in range(ROWS)])
    return made


def options(**more: str) -> dict[str, str]:
    return {"masters": MASTERS, "table": "readings", "readChangeFeed": "true", **more}


def rows(reader: Any, partitions: Sequence[InputPartition]) -> list[tuple[int, str]]:
    batches = [batch for part in partitions for batch in reader.read(part)]
    return sorted((row["id"], row["note"]) for batch in batches for row in batch.to_pylist())


def test_a_batch_of_a_stream_reads_small_tablets_together(table: Table) -> None:
    """It had one task for each tablet with changes: 3 600 for a table that a batch query reads in 113."""
    given = options()
    reader = data_source.stream_reader(given, data_source.schema(given))
    assert isinstance(reader, ChangeStreamReader)
    ends = [reader.initialOffset()]
    for note in ("first", "second"):
        table.upsert([(n, note) for n in range(ROWS)])
        ends.append(reader.latestOffset(ends[-1], ReadAllAvailable()))
        parts = reader.partitions(*ends[-2:])
        assert TOKENS_MIN <= len(parts) < 100
        assert rows(reader, parts) == [(n, note) for n in range(ROWS)]


def test_the_changes_between_two_times_are_read_from_small_tablets_together(table: Table) -> None:
    given = options(startingTimestamp=f"{table.latest():09}")
    reader = data_source.reader(given, data_source.schema(given))
    table.upsert([(n, "second") for n in range(ROWS)])
    parts = reader.partitions()
    assert TOKENS_MIN <= len(parts) < 100
    assert rows(reader, parts) == [(n, "second") for n in range(ROWS)]


def test_history_that_expires_between_the_plan_and_a_task_is_an_error_with_the_next_step(table: Table) -> None:
    given = options(startingTimestamp=f"{table.latest():09}")
    reader = data_source.reader(given, data_source.schema(given))
    table.upsert([(n, "second") for n in range(ROWS)])
    parts, floor = reader.partitions(), table.latest()
    for tablet in table._table._tablets:
        tablet.store.set_history_floor(floor)  # type: ignore[attr-defined]
    with pytest.raises(FeedHistoryExpired, match="Set 'startingTimestamp' to a later time and accept the gap"):
        rows(reader, parts)
