"""Executors that are lost: each row is written once.

The session has two executors, each a JVM of its own. A task kills its executor in the middle of its rows. The Python
worker of the task may go on for a moment, beside the second attempt.

Spark starts no speculative attempt on the host of the first one, so a session on one host shows none.
``tests/unit/spark_sink/test_task_writer.py`` has two attempts at the same time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stelae.client import Client
from stelae.spark import create_rejects_table

COLUMNS = [{"name": "id", "type": "int64"}, {"name": "value", "type": "int64", "nullable": True}]
ROWS = 40_000
PARTITIONS = 8
RUN_S = 500.0

PROGRAM = """
import json, os, signal, sys
from pathlib import Path
from pyspark import TaskContext
from pyspark.sql import SparkSession

masters, folder, rows, partitions, options = json.loads(sys.argv[1])

def disturbed(batches):
    context = TaskContext.get()
    partition, attempt = context.partitionId(), context.attemptNumber()
    (Path(folder) / f"{partition}-{attempt}").touch()
    for number, batch in enumerate(batches):
        yield batch
        if attempt == 0 and partition == 5 and number == 2:
            daemon = os.getppid()
            executor = int(Path(f"/proc/{daemon}/stat").read_text().rsplit(")", 1)[1].split()[1])
            os.kill(executor, signal.SIGKILL)

session = (
    SparkSession.builder.master("local-cluster[2,1,512]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.executor.memory", "512m")
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    .config("spark.executor.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    .config("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
    .getOrCreate()
)
session.sparkContext.setLogLevel("ERROR")
frame = session.range(0, rows, 1, partitions).selectExpr("id", "id * 7 value")
frame = frame.mapInArrow(disturbed, "id bigint, value bigint")
frame.write.format("stelae").options(masters=masters, table="executors", **options).mode("append").save()
print("done", flush=True)
session.stop()
"""

SITE = """
from stelae_spark_sink import task_writer
task_writer.WRITE_ROWS = 500
"""


@pytest.mark.parametrize("operation", ["insert", "update"])
def test_a_lost_executor_writes_no_row_twice(client: Client, masters: str, tmp_path: Path, operation: str) -> None:
    """A hundred rows with other values are in the table before."""
    partition = {"hash": [{"columns": ["id"], "buckets": 3}]}
    table = client.create_table("executors", COLUMNS, "id", partition=partition)
    create_rejects_table(masters, "executor_rejects")
    table.insert([(n, -1) for n in range(0, ROWS, ROWS // 100)])
    attempts = tmp_path / "attempts"
    attempts.mkdir()
    (tmp_path / "sitecustomize.py").write_text(SITE)
    options = {"operation": operation, "failOnRowErrors": "false", "rejectsTable": "executor_rejects"}
    arguments = json.dumps([masters, str(attempts), ROWS, PARTITIONS, options])
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]),
    }
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    try:
        assert ran.stdout.split() == ["done"], ran.stderr[-4000:]
        seen = {path.name for path in attempts.iterdir()}
        assert "5-1" in seen, "the task of the lost executor ran twice"
        found = {row["id"]: row["value"] for row in table.scan().to_pylist()}
        rejects = client.table("executor_rejects").scan().to_pylist()
        existing = {*range(0, ROWS, ROWS // 100)}
        if operation == "insert":
            assert found == {n: -1 if n in existing else 7 * n for n in range(ROWS)}
            assert {json.loads(row["row"])["id"] for row in rejects} == existing
        else:
            assert found == {n: 7 * n for n in existing}
            assert {json.loads(row["row"])["id"] for row in rejects} == {*range(ROWS)} - existing
        assert len(rejects) == len({row["row"] for row in rejects})
    finally:
        client.drop_table("executors")
        client.drop_table("executor_rejects")
