"""The demo of Spark, in this order:

1. It starts a cluster, writes the data set into CSV files, starts Spark, and creates a table from the files' columns.
2. A stream writes the files into the table, each in one batch. After a third of the files, the demo kills the tablet
   server that leads the most tablets. It starts the server again when the stream has written two more files without it.
3. The driver reads every row back and compares it with the data set. After the first part of the table, the demo kills
   the server that now leads the most tablets, and starts it again when all rows are read.
4. Spark computes counts and sums of the table. They must equal those that plain Python computes from the data set.
5. All replicas must agree, and the check of the cluster must find no problem."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.local.demo_source import DemoSource
from stelae.local.demo_verification import Agreement, replicas_of, wait_for_agreement, wait_for_health
from stelae.local.node_health import until_served
from stelae.local.node_process import NodeProcess
from stelae_spark_sink.demo.character_stream import CharacterStream, files_as_frame, rows_of, sums_of_table
from stelae_spark_sink.demo.report import ServerKill, SparkDemoReport, SumPair
from stelae_spark_sink.demo.row_comparison import RowComparison
from stelae_spark_sink.demo.server_kills import ServerKills, connected
from stelae_spark_sink.demo.source_files import sums_of, write_files
from stelae_spark_sink.functions import create_table_from, read_table
from stelae_spark_sink.local_session import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLETS = 4
FILES = 12
KILL_AFTER_FILES = FILES // 3
FILES_WITHOUT_SERVER = 2
KILL_AFTER_ROWS = 1000
"""The kill while rows are read, in the middle of the first of ``TABLETS`` parts."""

START_TIMEOUT_S = 60.0


class SparkDemo:
    """One run of the demo, on a cluster that was created but not started.

    Args:
        cluster: a cluster with at least three tablet servers.
        source: the rows.
        folder: an existing folder for the files, the checkpoint and the log of Spark.
        event: called with a text for each step and event.
    """

    def __init__(
        self, cluster: ClusterWithMasters, source: DemoSource, folder: Path, event: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._source = source
        self._folder = folder
        self._event = event
        self._examples: list[str] = []
        self._kills = ServerKills(cluster, source.table, event)
        self.report = SparkDemoReport(rows_source=len(source.rows))

    def run(self) -> SparkDemoReport:
        """Run everything. The nodes still run when this returns; Spark does not.

        Raises:
            StelaeError: a node or Spark does not start, the stream failed, or the cluster did not recover in time.
        """
        masters, servers = len(self._cluster.masters), len(self._cluster.servers)
        self._event(f"starting {masters} master and {servers} tablet servers")
        self._cluster.start()
        asyncio.run(until_served(self._cluster, START_TIMEOUT_S))
        self._event(f"writing {self._source.name} into {FILES} CSV files")
        write_files(self._source, self._files, FILES)
        self._event("starting Spark")
        session = local_session("stelae spark demo", self._folder / "spark.log")
        try:
            self._write(session)
            self._read(session)
            self._compare_sums(session)
        finally:
            session.stop()
        agreement, unhealthy = asyncio.run(self._state_of_cluster())
        self.report.replicas_agree = agreement.agree
        self.report.judge(disagreement=agreement.detail, unhealthy=unhealthy, examples=self._examples)
        return self.report

    @property
    def _files(self) -> Path:
        return self._folder / "files"

    def _write(self, session: SparkSession) -> None:
        """Write all files into the table as a stream, with a kill in the middle."""
        source, masters = self._source, ",".join(self._cluster.addresses)
        self._event(f"creating table {source.table} with {TABLETS} tablets")
        partition = {"hash": [{"columns": list(source.key), "buckets": TABLETS}]}
        create_table_from(
            files_as_frame(session, self._files), masters, source.table, key=source.key, partition=partition
        )
        self._event(f"a stream writes the files into table {source.table}, one file in a batch")
        stream = CharacterStream(session, self._files, masters, source.table, self._folder / "checkpoint")
        stream.wait_for(KILL_AFTER_FILES)
        node, kill = self._kill("write", stream.rows)
        stream.wait_for(stream.batches + FILES_WITHOUT_SERVER)
        kill.rows_during = stream.rows - kill.rows_before
        self._start(node, kill)
        stream.finish()
        self.report.batches = stream.batches
        self._event(f"the stream has written {stream.rows:,} rows in {stream.batches} batches")

    def _read(self, session: SparkSession) -> None:
        """Read every row, with a kill in the middle, and compare it with the source."""
        self._event("reading every row back")
        comparison = RowComparison(self._source)
        rows = rows_of(read_table(session, self._cluster.addresses, self._source.table))
        comparison.take(rows, KILL_AFTER_ROWS)
        node, kill = self._kill("read", comparison.read)
        comparison.take(rows)
        kill.rows_during = comparison.read - kill.rows_before
        self._start(node, kill)
        report = self.report
        report.rows_read, report.rows_wrong, report.rows_missing = comparison.read, comparison.wrong, comparison.missing
        self._examples = comparison.all_examples()

    def _compare_sums(self, session: SparkSession) -> None:
        self._event("comparing counts and sums")
        found = sums_of_table(read_table(session, self._cluster.addresses, self._source.table))
        expected = sums_of(self._source)
        self.report.sums = [SumPair(what=what, source=expected[what], table=found[what]) for what in expected]

    def _kill(self, job: str, rows_before: int) -> tuple[NodeProcess, ServerKill]:
        node, kill = asyncio.run(self._kills.kill(job, rows_before))
        self.report.kills.append(kill)
        return node, kill

    def _start(self, node: NodeProcess, kill: ServerKill) -> None:
        asyncio.run(self._kills.start(node, kill))

    async def _state_of_cluster(self) -> tuple[Agreement, Sequence[str]]:
        self._event("waiting until all replicas agree")
        check = self._cluster.check
        async with connected(self._cluster, self._source.table) as (client, catalog):
            replicas = await replicas_of(catalog, self._source.table)
            agreement = await wait_for_agreement(client.connection, replicas, check)
            return agreement, await wait_for_health(client.connection, catalog, check)
