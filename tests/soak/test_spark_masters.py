"""Jobs of Spark go on while all masters that their option names are replaced.

Spark starts Python workers as it needs them: for the commit of a batch, and for all after a pause of a minute. A worker
that starts has the option as it was given when the query began."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from stelae.client import Table, connect
from stelae.local.cluster_with_masters import ClusterWithMasters
from tests.e2e.masters_under_load import killed_at_the_end, new_master, start
from tests.e2e.test_cluster_commands import answer
from tests.soak.test_spark_outages import COLUMNS, HASHED, ROWS, Files, held

WAIT_S = 180.0
"""How long anything may take: reached only by a defect."""

Replaces = Callable[[], None]


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[ClusterWithMasters]:
    """A cluster of one master and one tablet server, whose master can be replaced."""
    with killed_at_the_end() as made:
        yield start(tmp_path, made, masters=1)


@pytest.fixture
def replace_master(own_cluster: ClusterWithMasters) -> Replaces:
    """Returns a function that replaces the only master, and ends the process of the old one."""

    def replaced() -> None:
        (old,) = own_cluster.masters
        new = new_master(own_cluster)
        assert answer("master", "replace", old.address, new.address, "--connect", old.address)["changed"]
        old.kill()
        own_cluster.remove_master(old)

    return replaced


def until(condition: Callable[[], bool], *queries: StreamingQuery) -> None:
    """Wait until a condition holds, while all queries run."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        for query in queries:
            assert query.isActive, query.exception()
        assert time.monotonic() < deadline, [query.lastProgress for query in queries]
        time.sleep(0.3)


def workers() -> int:
    """Return the number of Python workers: processes that the daemon of PySpark has forked."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rsplit(")", 1)[1].split()[1])
            found[int(path.name)] = (parent, b"pyspark.daemon" in (path / "cmdline").read_bytes())
        except OSError:
            continue  # It has ended.
    return sum(is_daemon and found.get(parent, (0, False))[1] for parent, is_daemon in found.values())


def has_rows(table: Table, count: int) -> bool:
    return len(held(table)) == count


def has_changes(spark: SparkSession, count: int) -> bool:
    return spark.table("walked").count() == count


def written(spark: SparkSession, folder: Path, masters: str, table: str) -> StreamingQuery:
    """Start a query that writes each file of a folder into a table."""
    stream = spark.readStream.schema("id bigint, batch bigint").option("maxFilesPerTrigger", 1).json(str(folder))
    writer = stream.writeStream.format("stelae").options(masters=masters, table=table, operation="insert")
    writer = writer.option("checkpointLocation", str(folder.parent / "checkpoint"))
    return writer.trigger(processingTime="100 milliseconds").start()


def test_a_stream_and_new_queries_go_on_after_the_only_master_of_their_option_was_replaced_twice(
    spark: SparkSession, own_cluster: ClusterWithMasters, replace_master: Replaces, tmp_path: Path
) -> None:
    """A stream ended at the commit of its next batch: `cannot connect to the masters at` the old address.

    The second time, no worker of the host is left that has a client. The tablet servers name the new master."""
    files = Files(tmp_path)
    masters = own_cluster.masters[0].address
    with connect(masters) as client:
        table = client.create_table("walk", COLUMNS, "id", partition=HASHED, replicas=1)
        query = written(spark, files.folder, masters, "walk")
        try:
            for number in range(3):
                if number:
                    replace_master()
                if number == 2:
                    until(lambda: workers() == 0, query)
                files.add()
                count = files.count * ROWS
                until(partial(has_rows, table, count), query)
                frame = spark.read.format("stelae").options(masters=masters, table="walk").load()
                assert frame.count() == count
                more = frame.selectExpr("-id - 1 AS id", "batch")
                more.write.format("stelae").options(masters=masters, table="walk").mode("append").save()
                client.table("walk").delete([{"id": -one - 1} for one in range(count)])
        finally:
            query.stop()


def test_a_change_feed_goes_on_after_the_only_master_of_its_option_was_replaced(
    spark: SparkSession, own_cluster: ClusterWithMasters, replace_master: Replaces, tmp_path: Path
) -> None:
    masters = own_cluster.masters[0].address
    with connect(masters) as client:
        table = client.create_table("walk", COLUMNS, "id", partition=HASHED, replicas=1)
        options = {"masters": masters, "table": "walk", "readChangeFeed": "true"}
        stream = spark.readStream.format("stelae").options(**options).load()
        writer = stream.writeStream.format("memory").queryName("walked").outputMode("append")
        query = writer.trigger(processingTime="1 second").start()
        try:
            for number in range(3):
                if number:
                    replace_master()
                table.insert([{"id": number, "batch": number}])
                until(partial(has_changes, spark, number + 1), query)
        finally:
            query.stop()
