"""Kills a tablet server while a job of Spark runs, and starts it again when the job has gone on without it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from stelae.client import AsyncClient, connect_async
from stelae.client.catalog import CatalogClient
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.local.node_process import NodeProcess
from stelae.local.replica_status import leaders, most_led, wait_for_successors, wait_until_caught_up
from stelae.spi.ids import TabletId
from stelae_spark_sink.demo.report import ServerKill

CONNECT_TIMEOUT_S = 30.0


@asynccontextmanager
async def connected(cluster: ClusterWithMasters, table: str) -> AsyncIterator[tuple[AsyncClient, CatalogClient]]:
    """Open a client that knows the servers of a table, and close it at the end."""
    async with await connect_async(cluster.addresses, timeout_s=CONNECT_TIMEOUT_S) as client:
        assert client.catalog is not None, "the cluster has masters"
        await client.table(table)
        yield client, client.catalog


class ServerKills:
    """Kills and starts tablet servers of one table.

    Args:
        cluster: the running cluster.
        table: name of the table.
        event: called with a text for each event.
    """

    def __init__(self, cluster: ClusterWithMasters, table: str, event: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._table = table
        self._event = event

    async def kill(self, job: str, rows_before: int) -> tuple[NodeProcess, ServerKill]:
        """Send SIGKILL to the tablet server that leads the most tablets, and wait until others lead these.

        Raises:
            Unavailable: no other server leads the tablets in time.
        """
        servers = self._cluster.servers
        async with connected(self._cluster, self._table) as (client, catalog):
            tablets = await self._tablets(catalog)
            node_id, led = most_led(await leaders(client.connection, servers), tablets)
            node = next(node for node in servers if node.node_id == node_id)
            what = f"SIGKILL of {node.name}, which led {len(led)} of {len(tablets)} tablets"
            node.kill()
            self._event(f"{what}, at {rows_before:,} rows")
            others = [other for other in servers if other is not node]
            await wait_for_successors(client.connection, others, led, node)
        return node, ServerKill(what=what, job=job, rows_before=rows_before)

    async def start(self, node: NodeProcess, kill: ServerKill) -> None:
        """Start a killed server, and wait until it has caught up.

        Raises:
            Unavailable: it does not answer or catch up in time.
            NodeExited: it has ended by itself.
        """
        self._event(f"{kill.rows_during:,} more rows without it; {node.name} starts again")
        node.start()
        async with connected(self._cluster, self._table) as (client, catalog):
            tablets = await self._tablets(catalog)
            await wait_until_caught_up(client.connection, self._cluster.servers, tablets, node)
        kill.caught_up = True
        self._event(f"{node.name} has caught up")

    async def _tablets(self, catalog: CatalogClient) -> Sequence[TabletId]:
        return [tablet.tablet_id for tablet in (await catalog.get_table(self._table)).tablets]
