"""Finds the nodes of a local cluster that are not healthy, and why, by their own answers.

A process that runs is not necessarily healthy: it may be suspended, still starting, or replaced by another process with
its uuid."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from stelae.check.cluster_state import ClusterState, ask_nodes
from stelae.check.findings import server_problem
from stelae.check.health import NodeFacts, tablet_health
from stelae.client import AsyncClient, connect_async
from stelae.client.catalog import find_catalog
from stelae.client.connection import Connection
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.local.node_process import NodeProcess
from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.protocol.master_messages import ServerLine
from stelae.spi.errors import StelaeError, Unavailable
from stelae.spi.ids import NodeId

POLL_S = 0.1
ASK_S = 2.0


async def unhealthy_nodes(cluster: ClusterWithMasters) -> dict[str, str]:
    """Ask every node; return the problem of each node that is not healthy, by name.

    A master is healthy if its system tablet runs. A tablet server is healthy if the masters get heartbeats from it, at
    its own address. If no master answers, a tablet server is healthy if it answers itself."""
    try:
        connection = await Connection.connect([node.address for node in cluster.nodes], timeout_s=ASK_S)
    except StelaeError as error:
        return {node.name: str(error) for node in cluster.nodes}
    async with connection:
        nodes = await ask_nodes(connection, [(node.node_id, node.address) for node in cluster.nodes])
        lines = await _lines(connection)
    found = {node.name: _master_problem(node, nodes) for node in cluster.masters}
    state = ClusterState(masters=(), nodes=nodes, servers=lines or ())
    for node in cluster.servers:
        found[node.name] = nodes[node.node_id].problem or ("" if lines is None else _server_problem(node, state))
    return {name: problem for name, problem in found.items() if problem}


async def until_served(cluster: ClusterWithMasters, timeout_s: float, *, server: NodeProcess | None = None) -> None:
    """Wait until every node is healthy, and each tablet server has sent the leading master a heartbeat since the call.

    Args:
        server: wait for this tablet server alone. Other nodes may be down, such as the one that it is to replace.

    Raises:
        NodeExited: a process has ended.
        Unavailable: the cluster is not ready in time.
    """
    begun = time.monotonic()
    deadline = begun + timeout_s
    problem: object = "no node answered"
    servers = cluster.servers if server is None else [server]
    awaited = {node.name for node in (cluster.nodes if server is None else servers)}
    while time.monotonic() < deadline:
        cluster.check()
        try:
            async with await connect_async(cluster.addresses, contacts=cluster.contacts, timeout_s=ASK_S) as client:
                heard = await _heard(client, begun)
            missing = [f"{node.name}: no heartbeat yet" for node in servers if node.node_id not in heard]
            ailing = {} if missing else await unhealthy_nodes(cluster)
            unhealthy = missing or [f"{name}: {why}" for name, why in ailing.items() if name in awaited]
            if not unhealthy:
                return
            problem = "; ".join(unhealthy)
        except StelaeError as error:
            problem = error
        await asyncio.sleep(POLL_S)
    logs = (server or cluster.masters[0]).log_path
    raise Unavailable(f"the cluster does not serve yet ({problem}); see the logs, for example {logs}")


async def _heard(client: AsyncClient, since: float) -> set[str]:
    """Return the tablet servers whose last heartbeat to the leading master came after a time of the monotonic clock."""
    if client.catalog is None:
        return set()
    elapsed_ms = (time.monotonic() - since) * 1000
    servers = (await client.catalog.list_servers(timeout_s=ASK_S)).servers
    return {server.node_id for server in servers if server.silent_ms is not None and server.silent_ms < elapsed_ms}


async def _lines(connection: Connection) -> tuple[ServerLine, ...] | None:
    """Return the tablet servers that the leading master knows; ``None``: no master answers."""
    try:
        catalog = await find_catalog(connection, timeout_s=ASK_S)
        return None if catalog is None else (await catalog.list_servers(timeout_s=ASK_S)).servers
    except StelaeError:
        return None


def _master_problem(node: NodeProcess, nodes: Mapping[NodeId, NodeFacts]) -> str:
    facts = nodes[node.node_id]
    if not facts.problem and SYSTEM_TABLET not in facts.reports:
        return "its system tablet does not run yet"
    (replica,) = tablet_health(SYSTEM_TABLET, ((node.node_id, node.address),), nodes).replicas
    return replica.problem


def _server_problem(node: NodeProcess, state: ClusterState) -> str:
    line = next((line for line in state.servers if line.node_id == node.node_id), None)
    if line is None:
        return "the masters have had no heartbeat from it"
    if line.address != node.address:
        return f"the masters get its heartbeats from {line.address}: stop that process, which runs under the same uuid"
    return server_problem(state, node.node_id)
