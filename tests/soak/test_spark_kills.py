"""A stream into a table, whose driver is killed at five places: each row arrives once.

The program is killed with all of its processes, by one of them, at a place in the batch that it writes. It then starts
again with another number of partitions. Spark runs the batch again, with the same rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stelae.cli.node_formatting import format_here
from stelae.client import Client, Table, connect
from stelae.local.cluster import ClusterOptions
from stelae.local.cluster_with_masters import ClusterWithMasters

PLACES = ("begin", "half", "before_complete", "half_rows", "half_complete", "after_complete")
ROWS = 1000
"""Rows of each batch."""

COLUMNS = [{"name": "id", "type": "int64"}, {"name": "batch", "type": "int64", "nullable": True}]
SETTINGS = {"consensus.raft": {"election_timeout_ms": 500}}
RUN_S = 300.0

PROGRAM = """
import json, os, sys
from pyspark.sql import SparkSession

folder, checkpoint, masters, partitions = json.loads(sys.argv[1])
session = (
    SparkSession.builder.master("local[2,3]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    .getOrCreate()
)
stream = session.readStream.schema("id bigint, batch bigint").option("maxFilesPerTrigger", 1).json(folder)
query = (
    stream.repartition(partitions)
    .writeStream.format("stelae")
    .option("masters", masters)
    .option("table", "killed")
    .option("operation", "insert")
    .option("checkpointLocation", checkpoint)
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
print("done", flush=True)
"""

SITE = '''
"""Python imports this module when it starts: each worker of Spark kills the program at the place of the test."""
import os
import signal
from pathlib import Path

marker = Path(os.environ.get("KILL_MARKER", "/nowhere"))


def kill():
    if marker.exists():
        marker.unlink()
        os.killpg(int(os.environ["KILL_GROUP"]), signal.SIGKILL)


if marker.exists():
    from stelae.client.epoch import AsyncEpoch
    from stelae_spark_sink import stream_writer, task_writer

    place = marker.read_text()
    write_task, commit = stream_writer.write_task, stream_writer.StreamWriter.commit
    raise_to, write = AsyncEpoch._raise_to, AsyncEpoch.write
    task_writer.WRITE_ROWS = 100

    def begin(*arguments, **options):
        kill()
        return write_task(*arguments, **options)

    async def half(self, *arguments, **options):
        result = await write(self, *arguments, **options)
        kill()
        return result

    def before_complete(self, messages, batch):
        kill()
        commit(self, messages, batch)

    async def half_complete(self, fence, only, timeout_s):
        is_rows = fence.source.endswith("/rows")  # The number of rows of the batch, which is recorded before.
        if fence.epoch <= self.fence.epoch or is_rows != (place == "half_rows"):
            return await raise_to(self, fence, only, timeout_s)
        await raise_to(self, fence, {sorted(only or {t.tablet_id for t in self._writer.tablets})[0]}, timeout_s)
        kill()

    def after_complete(self, messages, batch):
        commit(self, messages, batch)
        kill()

    if place == "begin":
        stream_writer.write_task = begin
    elif place == "half":
        AsyncEpoch.write = half
    elif place == "before_complete":
        stream_writer.StreamWriter.commit = before_complete
    elif place in ("half_rows", "half_complete"):
        AsyncEpoch._raise_to = half_complete
    else:
        stream_writer.StreamWriter.commit = after_complete
'''


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    """A client of one master and three tablet servers."""
    cluster = ClusterWithMasters.create(
        tmp_path / "cluster", ClusterOptions(node_count=3, settings=SETTINGS), masters=1, formatted=format_here
    )
    cluster.start()
    try:
        with connect(cluster.addresses) as connected:
            connected.addresses = ",".join(cluster.addresses)  # type: ignore[attr-defined]
            yield connected
    finally:
        cluster.kill()


def run(tmp_path: Path, masters: str, partitions: int, place: str | None) -> list[str]:
    """Run the program to its end, or until it is killed at a place; return what it printed."""
    marker = tmp_path / "kill-at"
    if place is not None:
        marker.write_text(place)
    arguments = json.dumps([str(tmp_path / "input"), str(tmp_path / "checkpoint"), masters, partitions])
    start = "import os, sys; os.setsid(); os.environ['KILL_GROUP'] = str(os.getpid()); exec(sys.argv.pop(1))"
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")]),
        "KILL_MARKER": str(marker),
    }
    ran = subprocess.run(
        [sys.executable, "-c", start, PROGRAM, arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert not marker.exists(), f"the place {place} was not reached:\n{ran.stderr[-4000:]}"
    assert (ran.returncode == 0) == (place is None), ran.stderr[-4000:]
    return ran.stdout.split()


def add_batch(tmp_path: Path, number: int) -> None:
    (tmp_path / "input").mkdir(exist_ok=True)
    lines = "".join(f'{{"id": {number * ROWS + n}, "batch": {number}}}\n' for n in range(ROWS))
    (tmp_path / f"batch-{number}").write_text(lines)
    (tmp_path / f"batch-{number}").rename(tmp_path / "input" / f"{number:04}.json")


def check(table: Table, batches: int) -> None:
    rows = table.scan().to_pylist()
    assert len(rows) == batches * ROWS
    assert {row["id"]: row["batch"] for row in rows} == {n: n // ROWS for n in range(batches * ROWS)}


def test_a_driver_that_is_killed_anywhere_writes_each_row_of_a_stream_once(client: Client, tmp_path: Path) -> None:
    masters: str = client.addresses  # type: ignore[attr-defined]
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SITE)
    table = client.create_table("killed", COLUMNS, "id", partition={"hash": [{"columns": ["id"], "buckets": 3}]})
    add_batch(tmp_path, 0)
    assert run(tmp_path, masters, 2, None) == ["done"]
    for number, place in enumerate(PLACES, start=1):
        add_batch(tmp_path, number)
        assert run(tmp_path, masters, 1 + number % 3, place) == []
    add_batch(tmp_path, len(PLACES) + 1)
    assert run(tmp_path, masters, 3, None) == ["done"]
    check(table, len(PLACES) + 2)


@pytest.mark.parametrize("place", ["half_complete", "after_complete"])
def test_a_complete_batch_that_runs_again_leaves_what_others_have_changed_since(
    client: Client, tmp_path: Path, place: str
) -> None:
    """The driver is killed behind the end of the batch, and a row is deleted before the driver is back."""
    masters: str = client.addresses  # type: ignore[attr-defined]
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SITE)
    table = client.create_table("killed", COLUMNS, "id", partition={"hash": [{"columns": ["id"], "buckets": 3}]})
    add_batch(tmp_path, 0)
    run(tmp_path, masters, 2, place)
    table.delete({"id": 5})
    assert run(tmp_path, masters, 3, None) == ["done"]
    assert table.scan().count() == ROWS - 1
