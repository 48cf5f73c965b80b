"""Carries out ``stelae spark demo``: prints events on standard error and the summary on standard output."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

from stelae.cli.kit.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK
from stelae.cli.kit.output import note, print_json, print_table
from stelae.local.cluster import ClusterOptions
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.local.demo_source import characters
from stelae_spark_sink.demo.report import SparkDemoReport
from stelae_spark_sink.demo.spark_demo import SparkDemo
from stelae_spark_sink.local_session import check_spark

MASTERS = 1
SERVERS = 3


def run_demo(*, as_json: bool) -> int:
    """Run the demo in a temporary folder, and return the exit code. The folder is kept if something is wrong.

    Raises:
        StelaeError: the demo failed. Every process has been stopped.
    """
    check_spark("stelae spark demo")
    folder = Path(tempfile.mkdtemp(prefix="stelae-spark-demo-"))
    code = EXIT_FAILED
    try:
        code = _run_in(folder, as_json=as_json)
    except KeyboardInterrupt:
        note("interrupted; every node was stopped")
        code = EXIT_INTERRUPTED
    finally:
        if code == EXIT_FAILED:
            note(f"the logs and data are kept: {folder}/spark.log and {folder}/cluster/*/node.log")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return code


def _run_in(folder: Path, *, as_json: bool) -> int:
    began = time.monotonic()

    def event(text: str) -> None:
        note(f"{time.monotonic() - began:5.1f} s  {text}")

    options = ClusterOptions(node_count=SERVERS)
    cluster = ClusterWithMasters.create(folder / "cluster", options, masters=MASTERS)
    source = characters()
    try:
        report = SparkDemo(cluster, source, folder, event).run()
    finally:
        cluster.kill()
    show(report, source.name, time.monotonic() - began, as_json=as_json)
    return EXIT_OK if report.ok else EXIT_FAILED


def show(report: SparkDemoReport, source: str, seconds: float, *, as_json: bool) -> None:
    """Print the result on standard output, and the problems on standard error."""
    if as_json:
        print_json({**report.document(), "seconds": round(seconds, 1)})
    else:
        print(f"\n{source}: {report.rows_source:,} rows in {report.batches} batches, {seconds:.1f} s\n")
        rows = [
            ("rows that differ", "0", f"{report.rows_wrong + report.rows_missing:,}"),
            *((pair.what, f"{pair.source:,}", f"{pair.table:,}") for pair in report.sums),
        ]
        print_table(("compared", "source", "table"), rows)
        for kill in report.kills:
            print(f"\n{kill.what}, after {kill.rows_before:,} rows:")
            print(f"  the {kill.job} job went on with {kill.rows_during:,} rows before the server was back")
        print(f"\n{'ok' if report.ok else 'NOT OK'}")
    for problem in report.problems:
        note(f"problem: {problem}")
