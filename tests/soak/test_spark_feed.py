"""A stream merges the change feed of a table into a copy, while others write and servers and the query are killed."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stelae.cli.node_formatting import format_here
from stelae.client import AddRange, Client, Table, connect
from stelae.local.cluster import ClusterOptions
from stelae.local.cluster_with_masters import ClusterWithMasters

COLUMNS = [{"name": "id", "type": "int64"}, {"name": "text", "type": "string", "nullable": True}]
RANGES = {
    "hash": [{"columns": ["id"], "buckets": 2}],
    "range": {"columns": ["id"], "ranges": [{"from": 0, "until": 5000}]},
}
SETTINGS = {"consensus.raft": {"election_timeout_ms": 500}}
RUNS = 4
RUN_S = 300.0
KILL_AFTER_S = 30.0

PROGRAM = """
import sys
from pyspark.sql import SparkSession
from stelae.spark import stream_changes, write_table

masters, checkpoint, trigger = sys.argv[1:]
session = (
    SparkSession.builder.master("local[2,3]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    .getOrCreate()
)


def merge(batch, number):
    batch.persist()
    gone = batch.where("_change_type = 'delete'").select("id")
    write_table(gone, masters, "copy", operation="delete_ignore", source="merge-deletes", epoch=number)
    rows = batch.where("_change_type = 'upsert'").select("id", "text")
    write_table(rows, masters, "copy", operation="upsert", source="merge-rows", epoch=number)
    batch.unpersist()
    print("batch", number, flush=True)


writer = stream_changes(session, masters, "people", rows_max=1500).writeStream.foreachBatch(merge)
writer = writer.option("checkpointLocation", checkpoint)
writer = writer.trigger(availableNow=True) if trigger == "once" else writer.trigger(processingTime="0 seconds")
writer.start().awaitTermination()
print("done", flush=True)
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterWithMasters]:
    """One master and three tablet servers."""
    made = ClusterWithMasters.create(
        tmp_path / "cluster", ClusterOptions(node_count=3, settings=SETTINGS), masters=1, formatted=format_here
    )
    made.start()
    try:
        yield made
    finally:
        made.kill()


class Writer:
    """Writes random rows in a thread until it is stopped."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.high = 5000
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._problem: BaseException | None = None
        self._thread.start()

    def _run(self) -> None:
        rng = random.Random(7)
        try:
            while not self._stopped.is_set():
                rows = [(key, f"{rng.random()}") for key in sorted(rng.sample(range(self.high), 100))]
                self.table.upsert(rows[:70])
                self.table.delete_ignore([(key,) for key, _ in rows[70:]])
        except BaseException as error:
            self._problem = error

    def stop(self) -> None:
        """Stop, and raise the error with which the thread ended, if any."""
        self._stopped.set()
        self._thread.join()
        if self._problem is not None:
            raise self._problem


def start(tmp_path: Path, masters: str, trigger: str) -> subprocess.Popen[str]:
    """Start the query in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, masters, str(tmp_path / "checkpoint"), trigger],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def contents(client: Client, name: str) -> dict[int, Any]:
    return {row["id"]: row["text"] for row in client.table(name).scan().to_pylist()}


def test_a_copy_equals_the_table_although_the_query_and_servers_are_killed(
    cluster: ClusterWithMasters, tmp_path: Path
) -> None:
    masters = ",".join(cluster.addresses)
    with connect(cluster.addresses) as client:
        table = client.create_table("people", COLUMNS, "id", partition=RANGES)
        client.create_table("copy", COLUMNS, "id", partition={"hash": [{"columns": ["id"], "buckets": 2}]})
        table.insert([(n, "first") for n in range(5000)])
        writer = Writer(table)
        try:
            for run in range(RUNS):
                query = start(tmp_path, masters, "on")
                assert query.stdout is not None
                assert query.stdout.readline().startswith("batch")
                server = cluster.servers[run % 3]
                server.kill()
                if run == 1:
                    client.alter_table("people", AddRange(range=table.key_range(5000, 8000)))
                    writer.high = 8000
                time.sleep(random.Random(run).random() * KILL_AFTER_S)
                server.start()
                os.killpg(query.pid, 9)
                query.wait()
        finally:
            writer.stop()
        last = start(tmp_path, masters, "once")
        printed, _ = last.communicate(timeout=RUN_S)
        assert printed.split()[-1:] == ["done"]
        assert contents(client, "copy") == contents(client, "people")
