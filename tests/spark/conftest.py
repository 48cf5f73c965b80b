"""One cluster and one Spark session for all tests of Spark.

The session runs in a JVM of its own, and its Python workers are processes that import the plugin anew. So these tests
see what a user sees: nothing is registered, and every error has crossed both borders."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from stelae.cli.node_formatting import format_here
from stelae.client import Client, connect
from stelae.local.cluster import ClusterOptions
from stelae.local.cluster_with_masters import ClusterWithMasters
from tests.e2e.starting import start

JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Compile fast rather than well, and collect garbage with one thread: the tests are short and share two cores."""

SERVERS_COUNT = 3
SETTINGS = {"consensus.raft": {"election_timeout_ms": 500}}
NO_JAVA = "tests/spark needs Java 17 or newer: install it, put java on the path or set JAVA_HOME, and run them again"


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterWithMasters]:
    """One master and three tablet servers."""
    made = ClusterWithMasters.create(
        tmp_path_factory.mktemp("spark") / "cluster",
        ClusterOptions(node_count=SERVERS_COUNT, settings=SETTINGS),
        masters=1,
        formatted=format_here,
    )
    start(made)
    try:
        yield made
    finally:
        made.kill()


@pytest.fixture(scope="session")
def masters(cluster: ClusterWithMasters) -> str:
    """The option ``masters``."""
    return ",".join(cluster.addresses)


@pytest.fixture(scope="session")
def client(masters: str) -> Iterator[Client]:
    """A client of the cluster, to create and fill tables and to compare with."""
    with connect(masters) as connected:
        yield connected


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The workers store contacts of clusters below a folder of this run."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A plain session: nothing of ours is registered or configured."""
    if not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        pytest.fail(NO_JAVA)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    warehouse = tmp_path_factory.mktemp("warehouse")
    session = (
        SparkSession.builder.master("local[2,3]")
        .appName("stelae tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", JAVA_OPTIONS)
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "America/New_York")
        .config("spark.sql.warehouse.dir", str(warehouse))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()
