"""Runs the demo: loads a data set into a cluster with masters, breaks three nodes meanwhile, and checks every row.

1. The demo starts masters and tablet servers as processes, and creates a table whose rows are divided into tablets by
   hash.
2. It inserts the rows of the source, with many calls in flight. Meanwhile it kills two nodes and starts them again, and
   destroys a third one, which the masters replace (``stelae.local.demo_kills``).
3. With a new client, it waits until all replicas of all tablets agree and the cluster is healthy. Then it compares
   every acknowledged row with the source."""

from __future__ import annotations

import asyncio
import time
from functools import partial

from stelae.client import AsyncClient, connect_async
from stelae.client.catalog import CatalogClient
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.local.demo_kills import DemoKills
from stelae.local.demo_listener import DemoListener
from stelae.local.demo_load import DemoLoad
from stelae.local.demo_report import DemoReport
from stelae.local.demo_source import DemoSource
from stelae.local.demo_verification import read_back, replicas_of, wait_for_agreement, wait_for_health
from stelae.local.node_health import until_served
from stelae.spi.errors import StelaeError

TABLETS = 4
"""Number of tablets of the table."""

START_TIMEOUT_S = 60.0
CONNECT_TIMEOUT_S = 10.0


class Demo:
    """One run of the demo, on a cluster that was created but not started.

    Args:
        cluster: a cluster with at least three masters and three tablet servers.
        source: the rows to load.
        election_timeout_ms: of the cluster's nodes.
        listener: gets the progress and the events of the run.
        outlive: whether the nodes continue to run after this process.
    """

    def __init__(
        self,
        cluster: ClusterWithMasters,
        source: DemoSource,
        *,
        election_timeout_ms: int,
        listener: DemoListener,
        outlive: bool,
    ) -> None:
        self._cluster = cluster
        self._source = source
        self._listener = listener
        self._outlive = outlive
        self._problems: list[str] = []
        self.report = DemoReport(
            rows_source=len(source.rows),
            masters=len(cluster.masters),
            tablets=TABLETS,
            election_timeout_ms=election_timeout_ms,
        )

    async def run(self) -> DemoReport:
        """Start the cluster, load with faults, and verify. The nodes still run when this returns.

        Raises:
            StelaeError: a node does not start or ends by itself, the load cannot continue, or the cluster does not
                recover from a kill in time.
        """
        masters, servers = len(self._cluster.masters), len(self._cluster.servers)
        self._listener.phase(f"starting {masters} masters and {servers} tablet servers")
        self._cluster.start(outlive=self._outlive)
        await until_served(self._cluster, START_TIMEOUT_S)
        addresses = self._cluster.addresses
        async with await connect_async(addresses, timeout_s=CONNECT_TIMEOUT_S) as client:
            load = await self._load(client)
        async with await connect_async(addresses, timeout_s=CONNECT_TIMEOUT_S) as client:
            await self._verify(client, load)
        return self.report

    async def _load(self, client: AsyncClient) -> DemoLoad:
        source = self._source
        self._listener.phase(f"creating table {source.table} with {TABLETS} tablets")
        partition = {"hash": [{"columns": list(source.key), "buckets": TABLETS}]}
        table = await client.create_table(source.table, source.columns, source.key, partition=partition)
        tablets = [one.tablet_id for one in (await _catalog(client).get_table(source.table)).tablets]
        progress = partial(self._listener.phase, "loading")
        load = DemoLoad(table, table.partitioning, source, lambda: progress(load.acked_count, len(source.rows)))
        faults = DemoKills(self._cluster, client, source.table, tablets, load, self._listener, outlive=self._outlive)
        progress(0, len(source.rows))
        began = time.monotonic()
        tasks = [asyncio.create_task(faults.run()), asyncio.create_task(load.run())]
        try:
            # The first error of one of the tasks ends the run.
            await asyncio.gather(*tasks)
        except StelaeError:
            self._cluster.check()  # The error of a node that has ended is more useful than the error that follows.
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        self.report.events, self.report.kills = faults.events, faults.kills
        self.report.healed_ms = faults.healed_ms
        self.report.rows_acked = load.acked_count
        self.report.rows_per_s = int(load.acked_count / (time.monotonic() - began))
        return load

    async def _verify(self, client: AsyncClient, load: DemoLoad) -> None:
        report, check = self.report, self._cluster.check
        self._listener.phase("waiting until all replicas agree")
        catalog = _catalog(client)
        table = await client.table(self._source.table)
        replicas = await replicas_of(catalog, self._source.table)
        agreement = await wait_for_agreement(client.connection, replicas, check)
        report.replicas_agree = agreement.agree
        self._listener.phase("checking the cluster")
        unhealthy = await wait_for_health(client.connection, catalog, check)
        progress = partial(self._listener.phase, "comparing every row with the source", total=report.rows_source)
        result = await read_back(table, self._source, load.acked, lambda done: progress(done=done))
        report.rows_read, report.rows_lost, report.rows_wrong = result.read, result.lost, result.wrong
        report.judge(disagreement=agreement.detail, unhealthy=unhealthy, examples=[*load.problems, *result.examples])


def _catalog(client: AsyncClient) -> CatalogClient:
    assert client.catalog is not None, "the cluster has masters"
    return client.catalog
