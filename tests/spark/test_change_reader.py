"""The readers of the change feed against a cluster, without a JVM: batches, offsets of streams, and their errors."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from stelae.client import AddColumn, AddRange, ChangesExpired, Client, DropRange, RangeDropped, Table, to_datetime
from stelae.client.feed_round import RoundPlanner
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.spi.errors import StelaeError
from stelae_spark_sink import data_source
from stelae_spark_sink.change_reader import ChangeReader, ChangeStreamReader, FeedHistoryExpired, FeedRangeDropped

COLUMNS = [{"name": "id", "type": "int64"}, {"name": "text", "type": "string", "nullable": True}]
HASHED = {"hash": [{"columns": ["id"], "buckets": 3}]}
RANGED = {"range": {"columns": ["id"], "ranges": [{"from": 0, "until": 100}]}}
ALL = ReadAllAvailable()

Copy = dict[int, Any]


@pytest.fixture
def table(client: Client, request: pytest.FixtureRequest) -> Iterator[Table]:
    """An empty table of three tablets."""
    name = f"feed{abs(hash(request.node.name))}"
    yield client.create_table(name, COLUMNS, "id", partition=HASHED)
    client.drop_table(name)


@pytest.fixture(scope="module")
def one_row(client: Client) -> Table:
    """A table of one row, which no test changes."""
    table = client.create_table("feed_one_row", COLUMNS, "id")
    table.insert((1, "first"))
    return table


def given(masters: str, table: Table, **options: str) -> dict[str, str]:
    return {"masters": masters, "table": table.name, "readChangeFeed": "true", **options}


def stream(masters: str, table: Table, **options: str) -> ChangeStreamReader:
    """A reader of a stream as the driver has it."""
    options = given(masters, table, **options)
    reader = data_source.stream_reader(options, data_source.schema(options))
    assert isinstance(reader, ChangeStreamReader)
    return reader


def rows(reader: Any, partitions: Sequence[InputPartition]) -> list[dict[str, Any]]:
    """The rows of all tasks, each of which gets its own copy of the reader."""
    task = pickle.loads(pickle.dumps(reader))
    return [row for part in partitions for batch in task.read(part) for row in batch.to_pylist()]


def batch(masters: str, table: Table, **options: str) -> list[dict[str, Any]]:
    options = given(masters, table, **options)
    reader = data_source.reader(options, data_source.schema(options))
    assert isinstance(reader, ChangeReader)
    return rows(reader, reader.partitions())


def apply(copy: Copy, changes: Sequence[dict[str, Any]]) -> None:
    for change in changes:
        if change["_change_type"] == "delete":
            del copy[change["id"]]
        else:
            copy[change["id"]] = change["text"]


def contents(table: Table) -> Copy:
    return {row["id"]: row["text"] for row in table.scan().to_pylist()}


def test_a_batch_has_the_changes_between_two_times(masters: str, table: Table) -> None:
    table.insert([(n, "old") for n in range(30)])
    since = table.latest()
    table.upsert([(n, "new") for n in range(10)])
    table.delete([(n,) for n in range(10, 15)])
    until = table.latest()
    table.upsert([(n, "later") for n in range(30)])
    times = {"startingTimestamp": str(since), "endingTimestamp": str(until)}
    found = batch(masters, table, **times)
    assert sorted((row["id"], row["text"], row["_change_type"]) for row in found) == [
        *((n, "new", "upsert") for n in range(10)),
        *((n, None, "delete") for n in range(10, 15)),
    ]
    assert {row["_commit_version"] for row in found} == {until}
    assert {str(row["_commit_timestamp"].tzinfo) for row in found} == {"UTC"}
    imaged = batch(masters, table, columns="id,_change_type", beforeImages="true", **times)
    assert [list(row) for row in imaged[:1]] == [["id", "_change_type", "_commit_version", "_commit_timestamp"]]
    types = [row["_change_type"] for row in imaged]
    assert {name: types.count(name) for name in types} == {"update_preimage": 10, "update_postimage": 10, "delete": 5}
    assert len(batch(masters, table, startingTimestamp=str(until))) == 30


@pytest.mark.parametrize("rows_max", [None, 7])
def test_the_batches_of_a_stream_applied_to_a_copy_give_the_table(
    masters: str, table: Table, rows_max: int | None
) -> None:
    table.insert([(n, "first") for n in range(20)])
    options = {} if rows_max is None else {"maxRowsPerTrigger": str(rows_max)}
    copy, batches, reader = Copy(), 0, stream(masters, table, **options)
    limit = reader.getDefaultReadLimit()
    assert limit == (ALL if rows_max is None else ReadMaxRows(rows_max))
    start = reader.initialOffset()
    for turn in range(3):
        while (end := json.loads(json.dumps(reader.latestOffset(start, limit)))) != start:
            found = rows(reader, reader.partitions(start, end))
            assert found == rows(reader, reader.partitions(start, end)), "a batch that runs again has the same rows"
            assert len({row["id"] for row in found}) == len(found) <= (rows_max or 20)
            apply(copy, found)
            start = end
            batches += bool(found)  # A batch without rows moves on past a new leader's first entry, or a long pause.
        assert copy == contents(table)
        table.upsert([(n, f"turn {turn}") for n in range(turn, 20, 2)])
        table.delete_ignore([(turn,)])
        reader = stream(masters, table, **options)
    assert batches == 3 if rows_max is None else batches >= 6


def test_a_run_that_takes_what_is_available_now_ends_there(masters: str, table: Table) -> None:
    table.insert([(n, "first") for n in range(20)])
    reader = stream(masters, table)
    reader.prepareForTriggerAvailableNow()
    table.insert([(n, "later") for n in range(20, 30)])
    start, found = reader.initialOffset(), []
    while (end := reader.latestOffset(start, ReadMaxRows(15))) != start:
        found.append(rows(reader, reader.partitions(start, end)))
        start = end
    assert [len(one) for one in found] == [15, 5]
    assert len(rows(reader, reader.partitions(start, stream(masters, table).latestOffset(start, ALL)))) == 10


@pytest.fixture
def ranged(client: Client, request: pytest.FixtureRequest) -> Iterator[Table]:
    """A table with the range of keys from 0 to 100, and ten rows."""
    table = client.create_table(f"ranged{abs(hash(request.node.name))}", COLUMNS, "id", partition=RANGED)
    table.insert([(n, "first") for n in range(10)])
    yield table
    client.drop_table(table.name)


def test_a_range_that_is_added_between_two_batches_is_followed(masters: str, client: Client, ranged: Table) -> None:
    reader = stream(masters, ranged)
    ends = [reader.latestOffset(reader.initialOffset(), ALL)]
    client.alter_table(ranged.name, AddRange(range=ranged.key_range(100, 200))).insert([(150, "added")])
    ends.append(reader.latestOffset(ends[-1], ALL))
    assert [row["id"] for row in rows(reader, reader.partitions(*ends))] == [150]


def test_a_range_that_is_dropped_and_added_again_fails_the_stream_and_the_same_batch_that_runs_again(
    masters: str, client: Client, ranged: Table
) -> None:
    """The copy kept the rows of the dropped range for good. The batch that ran again was empty. There was no error."""
    reader = stream(masters, ranged)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    parts = reader.partitions(start, end)
    assert len(rows(reader, parts)) == 10
    whole = ranged.key_range(0, 100)
    client.alter_table(ranged.name, AddRange(range=ranged.key_range(100, 200)), DropRange(range=whole))
    client.alter_table(ranged.name, AddRange(range=whole)).insert([(5, "again")])
    expected = f"a range of table '{ranged.name}' was dropped.*'failOnDroppedRanges' to false"
    begun = stream(masters, ranged)  # The driver was killed, and starts again from its log of offsets.
    reads: Sequence[Callable[[], Any]] = (
        lambda: reader.latestOffset(end, ALL),
        lambda: reader.latestOffset(end, ReadMaxRows(5)),
        lambda: begun.partitions(start, end),
        lambda: rows(begun, parts),
        lambda: batch(masters, ranged, startingTimestamp=json.dumps(end)),
    )
    for read in reads:
        with pytest.raises(FeedRangeDropped, match=expected):
            read()
    with pytest.raises(RangeDropped, match="fail_on_dropped_ranges=False"):
        list(client.table(ranged.name).changes(json.dumps(end)))
    partial = client.table(ranged.name).changes(json.dumps(end), fail_on_dropped_ranges=False)
    assert [row["id"] for found in partial for row in found.to_pylist()] == [5]
    reader = stream(masters, ranged, failOnDroppedRanges="false")
    assert rows(reader, reader.partitions(start, end)) == rows(reader, parts) == [], (
        "the rows are gone with their range"
    )
    last = reader.latestOffset(end, ALL)
    assert [row["id"] for row in rows(reader, reader.partitions(end, last))] == [5]
    assert begun.latestOffset(last, ALL) == last


def test_a_stream_reads_the_columns_of_its_start_when_the_table_is_altered(
    masters: str, client: Client, table: Table
) -> None:
    table.insert([(1, "first")])
    reader = stream(masters, table)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    client.alter_table(table.name, AddColumn("more", "int64", nullable=True)).insert({"id": 2, "more": 5})
    last = reader.latestOffset(end, ALL)
    (found,) = rows(reader, reader.partitions(end, last))
    assert list(found) == ["id", "text", "_change_type", "_commit_version", "_commit_timestamp"]
    (found,) = rows(again := stream(masters, table), again.partitions(end, last))
    assert found["more"] == 5


def test_a_batch_of_a_stream_is_read_on_when_a_server_dies_in_the_middle(
    cluster: ClusterWithMasters, masters: str, table: Table
) -> None:
    table.insert([(n, "x" * 500) for n in range(3000)])
    reader = stream(masters, table, maxRowsPerTrigger="2000")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(2000))
    parts = reader.partitions(start, end)
    begun = [reader.read(part) for part in parts]
    found = [next(batches) for batches in begun]
    server = cluster.servers[0]
    server.kill()
    try:
        for batches in begun:
            found += batches
        assert sum(batch.num_rows for batch in found) == 2000
        last = reader.latestOffset(end, ALL)
        assert len(rows(reader, reader.partitions(end, last))) == 1000
    finally:
        server.start()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"where": '["id", ">", 1]'}, "a change feed has no option 'where'"),
        ({"timestampAsOf": "2026-01-01T00:00:00Z"}, "use 'startingTimestamp' and 'endingTimestamp'"),
        ({"columns": "texts"}, "no column 'texts'; .* did you mean 'text'"),
        ({"startingTimestamp": "{}"}, "is no position of a change feed"),
        ({"readChangeFeed": "false"}, "a stream reads the changes .* set the option 'readChangeFeed'"),
        ({"readChangeFeed": "false", "beforeImages": "true"}, "option 'beforeImages' is for change feeds"),
        ({"readChangeData": "true"}, "unknown option 'readchangedata': use 'readChangeFeed'"),
        ({"endingTimestamp": "2026-01-01T00:00:00Z"}, "'endingTimestamp' applies to read, not to readStream"),
    ],
)
def test_a_stream_that_cannot_be_read_is_refused(
    masters: str, one_row: Table, options: dict[str, str], message: str
) -> None:
    with pytest.raises(StelaeError, match=message):
        reader = stream(masters, one_row, **options)
        start = reader.initialOffset()
        reader.partitions(start, reader.latestOffset(start, ALL))


def test_history_that_has_expired_is_an_error_of_the_driver_with_the_oldest_time(
    masters: str, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.insert((1, "first"))
    reader = stream(masters, table)
    start, until = reader.initialOffset(), table.latest()

    async def expired(*_: object) -> Any:
        raise ChangesExpired(table.name, start["since"], until)

    end = reader.latestOffset(start, ALL)
    monkeypatch.setattr(RoundPlanner, "changed", expired)
    oldest = re.escape(to_datetime(until).isoformat())
    for plan in (lambda: reader.partitions(start, end), lambda: reader.latestOffset(start, ReadMaxRows(5))):
        with pytest.raises(FeedHistoryExpired, match=f"oldest time from which it can be read is {oldest}.*new check"):
            plan()
    with pytest.raises(
        FeedHistoryExpired, match=f"{oldest}. Set 'startingTimestamp' to a later time and accept the gap"
    ):
        batch(masters, table, startingTimestamp="2020-01-01T00:00:00Z")


def test_a_batch_needs_a_start_that_is_before_its_end(masters: str, one_row: Table) -> None:
    with pytest.raises(StelaeError, match="needs the option 'startingTimestamp'"):
        batch(masters, one_row)
    with pytest.raises(StelaeError, match="since must not be after until"):
        batch(masters, one_row, startingTimestamp="2026-01-02T00:00:00Z", endingTimestamp="2026-01-01T00:00:00Z")
