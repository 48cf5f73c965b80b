"""Streams and queries of Spark while nodes are gone and while the table is altered: they go on, or say what to do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from stelae.client import AddColumn, Client, DropColumn, Table
from stelae.local.cluster_with_masters import ClusterWithMasters

COLUMNS = [{"name": "id", "type": "int64"}, {"name": "batch", "type": "int64", "nullable": True}]
HASHED = {"hash": [{"columns": ["id"], "buckets": 3}]}
ROWS = 100
"""Rows of each file, which is a batch of a stream."""

OUTAGE_S = 60.0
WAIT_S = 180.0
LONG = "x" * 500


@pytest.fixture
def table(client: Client) -> Iterator[Table]:
    """An empty table of three tablets."""
    yield client.create_table("outages", COLUMNS, "id", partition=HASHED)
    client.drop_table("outages")


class Files:
    """The input of a stream: one file for each batch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "input"
        self.folder.mkdir()
        self.count = 0

    def add(self, count: int = 1) -> None:
        """Add files of ``ROWS`` rows, each at once."""
        for number in range(self.count, self.count + count):
            hidden = self.folder.parent / f"hidden-{number}"
            hidden.write_text("".join(f'{{"id": {number * ROWS + n}, "batch": {number}}}\n' for n in range(ROWS)))
            hidden.rename(self.folder / f"{number:04}.json")
        self.count += count


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """The input of a stream."""
    return Files(tmp_path)


Starts = Callable[..., StreamingQuery]


@pytest.fixture
def start(spark: SparkSession, masters: str, files: Files, tmp_path: Path) -> Starts:
    """Returns a function that starts the query, always from one checkpoint."""

    def started(schema: str = "id bigint, batch bigint", **options: str) -> StreamingQuery:
        stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(files.folder)).repartition(2)
        writer = stream.writeStream.format("stelae").option("masters", masters).option("table", "outages")
        writer = writer.options(operation="insert", checkpointLocation=str(tmp_path / "checkpoint"), **options)
        return writer.trigger(processingTime="100 milliseconds").start()

    return started


def wait_for(condition: Callable[[], bool], query: StreamingQuery) -> None:
    """Wait until a condition holds, while the query runs."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, query.lastProgress
        time.sleep(0.2)


def held(table: Table) -> dict[int, Any]:
    return {row["id"]: row["batch"] for row in table.scan(["id", "batch"]).to_pylist()}


def expected(files: Files) -> dict[int, int]:
    return {n: n // ROWS for n in range(files.count * ROWS)}


def test_a_stream_goes_on_when_the_whole_cluster_was_gone_for_a_minute(
    cluster: ClusterWithMasters, table: Table, files: Files, start: Starts
) -> None:
    files.add(2)
    query = start()
    try:
        wait_for(lambda: table.scan().count() == 2 * ROWS, query)
        cluster.kill()
        try:
            files.add(2)
            time.sleep(OUTAGE_S)
            assert query.isActive, query.exception()
        finally:
            cluster.start()
        files.add(2)
        wait_for(lambda: table.scan().count() == 6 * ROWS, query)
    finally:
        query.stop()
    assert held(table) == expected(files)


def test_a_stream_that_gave_up_is_completed_by_its_next_run(
    cluster: ClusterWithMasters, table: Table, files: Files, start: Starts
) -> None:
    """The cluster is away for longer than the stream waits."""
    files.add(1)
    query = start(timeoutSeconds="3")
    wait_for(lambda: table.scan().count() == ROWS, query)
    cluster.kill()
    try:
        files.add(3)
        with pytest.raises(StreamingQueryException):
            query.awaitTermination(int(WAIT_S))
    finally:
        cluster.start()
    query = start()
    try:
        wait_for(lambda: table.scan().count() == 4 * ROWS, query)
    finally:
        query.stop()
    assert held(table) == expected(files)


def test_a_stream_survives_a_new_column_and_names_a_column_that_is_dropped(
    client: Client, table: Table, files: Files, start: Starts
) -> None:
    files.add(1)
    query = start()
    wait_for(lambda: table.scan().count() == ROWS, query)
    client.alter_table("outages", AddColumn("place", "string", nullable=True, default="here"))
    files.add(1)
    wait_for(lambda: table.scan().count() == 2 * ROWS, query)
    client.alter_table("outages", DropColumn("batch"))
    files.add(2)
    with pytest.raises(StreamingQueryException, match=r"no column 'batch'.*the table has: id, place"):
        query.awaitTermination(int(WAIT_S))
    with pytest.raises(StreamingQueryException, match=r"no column 'batch'.*the table has: id int64, place string"):
        start().awaitTermination(int(WAIT_S))
    client.alter_table("outages", AddColumn("batch", "int64", nullable=True))
    query = start()
    try:
        wait_for(lambda: table.scan().count() == 4 * ROWS, query)
    finally:
        query.stop()
    table.refresh()
    found = held(table)
    assert {n: batch for n, batch in found.items() if n >= 2 * ROWS} == {
        n: n // ROWS for n in range(2 * ROWS, 4 * ROWS)
    }
    assert {found[n] for n in range(2 * ROWS)} == {None}, "the values of the dropped column are gone"


def test_a_stream_that_starts_again_with_another_type_is_refused_on_the_driver(
    table: Table, files: Files, start: Starts
) -> None:
    files.add(1)
    query = start()
    wait_for(lambda: table.scan().count() == ROWS, query)
    query.stop()
    files.add(1)
    with pytest.raises(StreamingQueryException, match="column 'batch': expected int64, got a column of string"):
        start("id bigint, batch string").awaitTermination(int(WAIT_S))
    query = start()
    try:
        wait_for(lambda: table.scan().count() == 2 * ROWS, query)
    finally:
        query.stop()
    assert held(table) == expected(files)


def test_a_query_reads_its_snapshot_while_each_server_dies_in_turn_and_rows_change(
    cluster: ClusterWithMasters, client: Client, masters: str, spark: SparkSession
) -> None:
    """Each tablet loses its leader in the middle of a task. Meanwhile all rows are changed."""
    table = client.create_table("longrows", {"id": "int64", "text": "string"}, "id", partition=HASHED)
    table.insert(pa.table({"id": range(36_000), "text": [LONG] * 36_000}))
    is_done = threading.Event()

    def kill_in_turn() -> None:
        while not is_done.is_set():
            for server in cluster.servers:
                server.kill()
                is_done.wait(1.5)
                server.start()
                is_done.wait(4.0)

    def change() -> None:
        for start in range(0, 36_000, 500):
            rows = range(start, start + 500)
            table.upsert(pa.table({"id": rows, "text": ["later"] * 500}), timeout_s=60)

    def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time as clock

        for batch in batches:
            clock.sleep(0.3)
            yield batch

    frame = spark.read.format("stelae").options(masters=masters, table="longrows", targetPartitionBytes="1m").load()
    assert frame.rdd.getNumPartitions() > 9
    threads = [threading.Thread(target=work) for work in (kill_in_turn, change)]
    for thread in threads:
        thread.start()
    try:
        read = frame.mapInArrow(slowly, "id bigint, text string").selectExpr("id", "length(text) length").collect()
    finally:
        is_done.set()
        for thread in threads:
            thread.join()
    assert sorted(row.id for row in read) == [*range(36_000)]
    assert {row.length for row in read} == {len(LONG)}
    assert table.scan(where=("text", "=", "later")).count() == 36_000
    client.drop_table("longrows")
