"""Which nodes of a local cluster are well, by what they answer, and why the others are not.

That a process runs says little: it may be stopped, still starting, or superseded by a copy of itself."""

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


async def troubles(cluster: ClusterWithMasters) -> dict[str, str]:
    """Ask every node; return why it is not well, by name, of those that are not.

    A master is well with its system tablet up. A tablet server is if the masters hear it, at its own address; where no
    master says whom it hears, an answer is enough."""
    try:
        connection = await Connection.connect([node.address for node in cluster.nodes], timeout_s=ASK_S)
    except StelaeError as error:
        return {node.name: str(error) for node in cluster.nodes}
    async with connection:
        nodes = await ask_nodes(connection, [(node.node_id, node.address) for node in cluster.nodes])
        lines = await _lines(connection)
    found = {node.name: _master_trouble(node, nodes) for node in cluster.masters}
    state = ClusterState(masters=(), nodes=nodes, servers=lines or ())
    for node in cluster.servers:
        found[node.name] = nodes[node.node_id].problem or ("" if lines is None else _server_trouble(node, state))
    return {name: why for name, why in found.items() if why}


async def until_served(cluster: ClusterWithMasters, timeout_s: float) -> None:
    """Wait until every node is well, and a leading master has heard of every tablet server since this was called.

    Raises:
        NodeExited: a process has ended.
        Unavailable: not in time.
    """
    begun = time.monotonic()
    deadline = begun + timeout_s
    problem: object = "nobody answered"
    while time.monotonic() < deadline:
        cluster.check()
        try:
            async with await connect_async(cluster.addresses, timeout_s=ASK_S) as client:
                heard = await _heard(client, begun)
            missing = [f"{node.name}: not heard of" for node in cluster.servers if node.node_id not in heard]
            ailing = missing or [f"{name}: {why}" for name, why in (await troubles(cluster)).items()]
            if not ailing:
                return
            problem = "; ".join(ailing)
        except StelaeError as error:
            problem = error
        await asyncio.sleep(POLL_S)
    logs = cluster.masters[0].log_path
    raise Unavailable(f"the cluster does not serve yet ({problem}); see the logs, for example {logs}")


async def _heard(client: AsyncClient, since: float) -> set[str]:
    """Tablet servers that the leading master has heard from since it leads, and since a time of our clock."""
    if client.catalog is None:
        return set()
    elapsed_ms = (time.monotonic() - since) * 1000
    servers = (await client.catalog.list_servers(timeout_s=ASK_S)).servers
    return {server.node_id for server in servers if server.silent_ms is not None and server.silent_ms < elapsed_ms}


async def _lines(connection: Connection) -> tuple[ServerLine, ...] | None:
    """Whom the leading master has heard of; ``None``: nobody says."""
    try:
        catalog = await find_catalog(connection, timeout_s=ASK_S)
        return None if catalog is None else (await catalog.list_servers(timeout_s=ASK_S)).servers
    except StelaeError:
        return None


def _master_trouble(node: NodeProcess, nodes: Mapping[NodeId, NodeFacts]) -> str:
    facts = nodes[node.node_id]
    if not facts.problem and SYSTEM_TABLET not in facts.reports:
        return "its system tablet is not up yet"
    (replica,) = tablet_health(SYSTEM_TABLET, ((node.node_id, node.address),), nodes).replicas
    return replica.problem


def _server_trouble(node: NodeProcess, state: ClusterState) -> str:
    line = next((line for line in state.servers if line.node_id == node.node_id), None)
    if line is None:
        return "the masters have not heard of it"
    if line.address != node.address:
        return f"the masters hear it at {line.address}: another process runs under its uuid; stop that one"
    return server_problem(state, node.node_id)
