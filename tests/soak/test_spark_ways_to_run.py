"""Ways to run Spark besides a session in a program: ``spark-submit``, the shell ``pyspark``, and Spark Connect.

Nothing is registered in any of them. Each writes a table, reads it back, and streams into it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from stelae.cli.node_formatting import format_here
from stelae.client import connect
from stelae.local.cluster import ClusterOptions
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.local.ports import free_ports
from tests.e2e.starting import start

RUN_S = 300.0
SETTINGS = {"consensus.raft": {"election_timeout_ms": 500}}
SPARK_HOME = Path(pyspark.__file__).parent
CONFIG = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
}
CONFIG_WORDS = [word for name, value in CONFIG.items() for word in ("--conf", f"{name}={value}")]

JOB = """
import time
from stelae.spark import upsert
options = {"masters": masters, "table": "rows"}
frame = spark.range(1000).selectExpr("id", "id * 2 double_id")
upsert(frame, masters, "rows")
read = spark.read.format("stelae").options(**options).load()
print("RESULT", read.count(), read.agg({"double_id": "sum"}).first()[0])
rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).option("numPartitions", 2).load()
query = (
    rows.selectExpr("value + 5000 id", "value double_id")
    .writeStream.format("stelae").options(**options).option("checkpointLocation", checkpoint)
    .trigger(processingTime="1 second").start()
)
while not any(progress.numInputRows for progress in query.recentProgress):
    time.sleep(0.1)
query.stop()
query.awaitTermination()
streamed = spark.read.format("stelae").options(**options).load().where("id >= 5000").count()
print("STREAMED", streamed > 0 and streamed % 10 == 0)
"""
"""Uses ``spark``, ``masters`` and ``checkpoint``."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterWithMasters]:
    """One master and three tablet servers."""
    made = ClusterWithMasters.create(
        tmp_path_factory.mktemp("ways") / "cluster",
        ClusterOptions(node_count=3, settings=SETTINGS),
        masters=1,
        formatted=format_here,
    )
    start(made)
    try:
        yield made
    finally:
        made.kill()


@pytest.fixture
def masters(cluster: ClusterWithMasters) -> Iterator[str]:
    """Addresses of the masters of a cluster with an empty table ``rows`` of two tablets."""
    with connect(cluster.addresses) as client:
        columns = [{"name": "id", "type": "int64"}, {"name": "double_id", "type": "int64", "nullable": True}]
        client.create_table("rows", columns, "id", partition={"hash": [{"columns": ["id"], "buckets": 2}]})
        yield ",".join(cluster.addresses)
        client.drop_table("rows")


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(SPARK_HOME), **more}


def run(command: list[str], *, text: str | None = None, **more: str) -> str:
    """Run a program to its end, and return what it printed."""
    done = subprocess.run(
        command, input=text, env=environment(**more), capture_output=True, text=True, timeout=RUN_S, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
    return done.stdout


def not_activated(folder: Path) -> dict[str, str]:
    """Return the variables of a process outside of the environment: the ``python3`` on its path has no Stelae."""
    folder.mkdir()
    (folder / "python3").symlink_to(Path(sys.base_prefix) / "bin/python3")
    if java := shutil.which("java"):
        (folder / "java").symlink_to(Path(java).resolve())
    found = {**os.environ, "PATH": os.pathsep.join([str(folder), "/usr/bin", "/bin"])}
    found["PYSPARK_SUBMIT_ARGS"] = " ".join([*map(shlex.quote, CONFIG_WORDS), "pyspark-shell"])
    for name in ("PYSPARK_PYTHON", "VIRTUAL_ENV", "PYTHONPATH"):
        found.pop(name, None)
    return found


def check(output: str) -> None:
    assert "RESULT 1000 999000\n" in output, output
    assert "STREAMED True\n" in output, output


def head(masters: str, tmp_path: Path) -> str:
    return f"masters, checkpoint = {masters!r}, {str(tmp_path / 'checkpoint')!r}\n"


def test_spark_submit_runs_a_program_without_any_jar_or_file(masters: str, tmp_path: Path) -> None:
    session = "from pyspark.sql import SparkSession\nspark = SparkSession.builder.getOrCreate()\n"
    (tmp_path / "job.py").write_text(head(masters, tmp_path) + session + JOB)
    command = [str(SPARK_HOME / "bin/spark-submit"), "--master", "local[2]", *CONFIG_WORDS, str(tmp_path / "job.py")]
    check(run(command))


def test_the_shell_pyspark_runs_what_is_typed_into_it(masters: str, tmp_path: Path) -> None:
    """Python runs the startup file of the shell, which makes the session, if it is told to be interactive."""
    (tmp_path / "typed.py").write_text(head(masters, tmp_path) + JOB)
    command = [str(SPARK_HOME / "bin/pyspark"), "--master", "local[2]", *CONFIG_WORDS]
    typed = f"exec(compile(open({str(tmp_path / 'typed.py')!r}).read(), 'typed', 'exec'))\n"
    check(run(command, text=typed, PYSPARK_DRIVER_PYTHON=sys.executable, PYSPARK_DRIVER_PYTHON_OPTS="-i"))


def test_spark_sql_queries_a_view(masters: str, tmp_path: Path) -> None:
    """``spark-sql`` has no Python driver. Its JVM starts Python workers all the same."""
    view = f"CREATE TEMPORARY VIEW v USING stelae OPTIONS (masters '{masters}', table 'rows')"
    queries = f"{view}; INSERT INTO v SELECT id, id * 2 FROM range(1000); SELECT count(*), sum(double_id) FROM v;"
    command = [str(SPARK_HOME / "bin/spark-sql"), "--master", "local[2]", *CONFIG_WORDS]
    warehouse = ["--conf", f"spark.sql.warehouse.dir={tmp_path}", "--conf", "spark.sql.catalogImplementation=in-memory"]
    assert "1000\t999000\n" in run([*command, *warehouse, "-e", queries])


def test_a_backup_needs_no_activated_environment(masters: str, tmp_path: Path) -> None:
    """Its Python workers ran under the ``python3`` on the path, and the error did not have the cause."""
    command = [str(Path(sys.executable).parent / "stelae-spark"), "backup", "rows", str(tmp_path / "backups")]
    variables = not_activated(tmp_path / "bin")
    done = subprocess.run(
        [*command, "--connect", masters], env=variables, capture_output=True, text=True, timeout=RUN_S, check=False
    )
    assert done.returncode == 0, done.stderr[-6000:]


def test_a_program_outside_of_the_activated_environment_gets_the_line_that_helps(masters: str, tmp_path: Path) -> None:
    session = "from pyspark.sql import SparkSession\nspark = SparkSession.builder.getOrCreate()\n"
    read = f"from stelae.spark import read_table\nread_table(spark, {masters!r}, 'rows')\n"
    command = [sys.executable, "-c", session + read]
    variables = not_activated(tmp_path / "bin")
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert f"export PYSPARK_PYTHON={sys.executable}" in done.stderr.splitlines()[-1], done.stderr[-6000:]


def test_a_client_of_spark_connect_needs_nothing_registered_on_the_server(masters: str, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    server_class = "org.apache.spark.sql.connect.service.SparkConnectServer"
    server = subprocess.Popen(
        [
            *(str(SPARK_HOME / "bin/spark-submit"), "--class", server_class, "--master", "local[2]", *CONFIG_WORDS),
            *("--conf", f"spark.connect.grpc.binding.port={port}"),
            *("--conf", "spark.connect.grpc.binding.address=127.0.0.1", "spark-internal"),
        ],
        env=environment(),
        stdout=(tmp_path / "server.log").open("wb"),
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
    )
    try:
        session = f"from pyspark.sql import SparkSession\nspark = SparkSession.builder.remote('sc://127.0.0.1:{port}')"
        (tmp_path / "job.py").write_text(head(masters, tmp_path) + session + ".getOrCreate()\n" + JOB)
        check(run([sys.executable, str(tmp_path / "job.py")]))
    finally:
        server.terminate()
        server.wait(60)
