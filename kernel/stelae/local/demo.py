"""The main job: a cluster with masters, a real data set, two kills half way, and every row accounted for.

1. Masters and tablet servers start as processes, and a table is created: its rows are spread over tablets by hash.
2. The rows of the source are inserted, many calls in flight, while two nodes are killed and started again
   (``stelae.local.faults``).
3. A client that knows nothing of the load waits until all replicas of all tablets agree and the cluster is healthy, and
   compares every acknowledged row with the source."""

from __future__ import annotations

import asyncio
import time
from functools import partial

from stelae.client import AsyncClient, connect_async
from stelae.client.catalog import CatalogClient
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.local.faults import DemoFaults
from stelae.local.loading import Load
from stelae.local.node_health import until_served
from stelae.local.report import DemoReport
from stelae.local.sources import DemoSource
from stelae.local.verify import read_back, replicas_of, wait_for_agreement, wait_for_health
from stelae.local.watcher import Watcher
from stelae.spi.errors import StelaeError

TABLETS = 4
START_TIMEOUT_S = 60.0
CONNECT_TIMEOUT_S = 10.0


class Demo:
    """One run on a cluster that was created and not yet started.

    Args:
        cluster: with three masters and three tablet servers, or more.
        source: what to load.
        election_timeout_ms: of the cluster's nodes.
        watcher: told what happens.
        outlive: the nodes are to go on after this process.
    """

    def __init__(
        self,
        cluster: ClusterWithMasters,
        source: DemoSource,
        *,
        election_timeout_ms: int,
        watcher: Watcher,
        outlive: bool,
    ) -> None:
        self._cluster = cluster
        self._source = source
        self._watcher = watcher
        self._outlive = outlive
        self._problems: list[str] = []
        self.report = DemoReport(
            rows_source=len(source.rows),
            masters=len(cluster.masters),
            tablets=TABLETS,
            election_timeout_ms=election_timeout_ms,
        )

    async def run(self) -> DemoReport:
        """Start, load, kill, verify. The nodes still run when this returns.

        Raises:
            StelaeError: a node does not start or ends, the load cannot go on, or a kill does not heal.
        """
        masters, servers = len(self._cluster.masters), len(self._cluster.servers)
        self._watcher.phase(f"starting {masters} masters and {servers} tablet servers")
        self._cluster.start(outlive=self._outlive)
        await until_served(self._cluster, START_TIMEOUT_S)
        addresses = self._cluster.addresses
        async with await connect_async(addresses, timeout_s=CONNECT_TIMEOUT_S) as client:
            load = await self._load(client)
        async with await connect_async(addresses, timeout_s=CONNECT_TIMEOUT_S) as client:
            await self._verify(client, load)
        return self.report

    async def _load(self, client: AsyncClient) -> Load:
        source = self._source
        self._watcher.phase(f"creating table {source.table} with {TABLETS} tablets")
        partition = {"hash": [{"columns": list(source.key), "buckets": TABLETS}]}
        table = await client.create_table(source.table, source.columns, source.key, partition=partition)
        places = (await _catalog(client).get_table(source.table)).tablets
        tablets = [await client.connection.tablet(place.tablet_id, members=place.members) for place in places]
        progress = partial(self._watcher.phase, "loading")
        load = Load(tablets, table.partitioning, source, lambda: progress(load.acked_count, len(source.rows)))
        faults = DemoFaults(
            self._cluster, client, [tablet.tablet_id for tablet in tablets], load, self._watcher, outlive=self._outlive
        )
        progress(0, len(source.rows))
        began = time.monotonic()
        tasks = [asyncio.create_task(faults.run()), asyncio.create_task(load.run())]
        try:
            # Whichever ends first with an error ends the run.
            await asyncio.gather(*tasks)
        except StelaeError:
            self._cluster.check()  # A node that has ended by itself says more than whoever missed it.
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        self.report.kills = faults.kills
        self.report.rows_acked = load.acked_count
        self.report.rows_per_s = int(load.acked_count / (time.monotonic() - began))
        return load

    async def _verify(self, client: AsyncClient, load: Load) -> None:
        report, check = self.report, self._cluster.check
        self._watcher.phase("waiting until all replicas agree")
        catalog = _catalog(client)
        table = await client.table(self._source.table)
        replicas = await replicas_of(client.connection, catalog, self._source.table)
        agreement = await wait_for_agreement(client.connection, replicas, check)
        report.replicas_agree = agreement.agree
        self._watcher.phase("checking the cluster")
        unhealthy = await wait_for_health(client.connection, catalog, check)
        progress = partial(self._watcher.phase, "comparing every row with the source", total=report.rows_source)
        verdict = await read_back(table, self._source, load.acked, lambda done: progress(done=done))
        report.rows_read, report.rows_lost, report.rows_wrong = verdict.read, verdict.lost, verdict.wrong
        report.judge(disagreement=agreement.detail, unhealthy=unhealthy, examples=[*load.problems, *verdict.examples])


def _catalog(client: AsyncClient) -> CatalogClient:
    assert client.catalog is not None, "the cluster has masters"
    return client.catalog
