"""Runs ``stelae bench spark``: starts a cluster and Spark, prepares the rows, and measures the passes in rounds."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stelae.client import Client, connect
from stelae.local.cluster import ClusterOptions
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.local.node_health import until_served
from stelae_bench import machine
from stelae_bench.spark_report import Pass, SparkReport
from stelae_bench.spark_rows import generated
from stelae_spark_sink.local_session import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NODES = 3
START_TIMEOUT_S = 60.0
CONNECT_TIMEOUT_S = 30.0
SPARK_SETTINGS = {"spark.driver.memory": "3g", "spark.driver.maxResultSize": "0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkBenchSettings:
    """The settings of a run, from the command line.

    Attributes:
        rows: rows of each pass.
        rounds: number of rounds.
        master: how many tasks run at the same time, as Spark writes it.
        seed: of the order within each round.
        engines: the engine's name by kind, for the tablet servers.
        directory: a folder on the disk to measure; ``None``: the one of temporary files.
    """

    rows: int
    rounds: int
    master: str
    seed: int
    engines: Mapping[str, str]
    directory: Path | None


def run(settings: SparkBenchSettings, note: Callable[[str], None]) -> SparkReport:
    """Measure, and return the report. However it ends, no process and no file is left.

    Args:
        settings: what to measure.
        note: called with messages about the progress.

    Raises:
        StelaeError: the cluster or Spark could not be started, or a node ended.
        OSError: a folder cannot be written to.
    """
    described = machine.describe()
    report = SparkReport(rows=settings.rows)
    with tempfile.TemporaryDirectory(prefix="stelae-bench-", dir=settings.directory) as name:
        folder = Path(name)
        options = ClusterOptions(node_count=NODES, engines=settings.engines)
        cluster = ClusterWithMasters.create(folder / "cluster", options, masters=1)
        note(f"starting 1 master and {NODES} tablet servers")
        try:
            cluster.start()
            asyncio.run(until_served(cluster, START_TIMEOUT_S))
            note("starting Spark")
            session = local_session(
                "stelae bench spark", folder / "spark.log", master=settings.master, settings=SPARK_SETTINGS
            )
            try:
                versions = _versions(session)
                with connect(cluster.addresses, timeout_s=CONNECT_TIMEOUT_S) as client:
                    _measure(session, client, ",".join(cluster.addresses), folder, settings, report, note)
            finally:
                session.stop()
        finally:
            cluster.kill()
    report.machine = {
        **described,
        "versions": {**described["versions"], **versions},
        "seed": settings.seed,
        "rounds": settings.rounds,
        "settings": {
            "nodes": NODES,
            "columns": 8,
            "master": settings.master,
            "log_sync": "always",
            **{f"{kind}_engine": engine for kind, engine in settings.engines.items()},
        },
    }
    return report


def _versions(session: SparkSession) -> dict[str, str]:
    """Return the versions of Spark and of the Java under it."""
    java: Any = session._jvm
    return {"pyspark": session.version, "java": java.System.getProperty("java.version")}


def _measure(
    session: SparkSession,
    client: Client,
    masters: str,
    folder: Path,
    settings: SparkBenchSettings,
    report: SparkReport,
    note: Callable[[str], None],
) -> None:
    """Prepare the rows, warm up, and measure the rounds. Stops at the first pass with a problem."""
    from stelae_bench.spark_passes import SparkPasses

    note(f"generating {settings.rows:,} rows, and loading them into the table to read")
    passes = SparkPasses(session, client, masters, folder, generated(session, settings.rows), settings.rows)
    note("warming up, and comparing all rows")
    report.problems += passes.compare()
    rng = random.Random(settings.seed)
    for number in range(1, settings.rounds + 1):
        if report.problems:
            return
        order = [*Pass]
        rng.shuffle(order)
        note(f"round {number} of {settings.rounds}: {', '.join(order)}")
        for one in order:
            took_s, problem = passes.measure(one)
            report.seconds.setdefault(one, []).append(took_s)
            report.problems += [problem] if problem else []
