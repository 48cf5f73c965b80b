"""Finds a master that the newest config does not list: it was removed and still runs, or it waits to join."""

from __future__ import annotations

import msgspec

from stelae.check.cluster_state import ASK_MS, ClusterState, ask_nodes
from stelae.cli.masters_target import MastersTarget
from stelae.client.connection import Connection
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.spi.errors import StelaeError
from stelae.wire.addresses import split_address


async def with_unlisted_master(
    found: ClusterState, connection: Connection, cluster: MastersTarget, name: str
) -> ClusterState:
    """Return the state with the master that a user names, if no config lists it, and it runs.

    It is named by its address, or with ``--dir`` also by its name or uuid."""
    address = _address(cluster, name)
    if not address or any(address == listed for _, listed in found.masters):
        return found
    try:
        node_id = await connection.reach(address, deadline_ms=ASK_MS)
    except StelaeError:
        return found
    if node_id in found.nodes:
        return found
    facts = (await ask_nodes(connection, [(node_id, address)]))[node_id]
    if facts.info is None or facts.info.role != "master":
        return found
    masters = (*found.masters, (node_id, address))
    return msgspec.structs.replace(found, masters=masters, nodes={**found.nodes, node_id: facts})


def _address(cluster: MastersTarget, name: str) -> str:
    """Return the address of the node that a user names; empty if only the masters could know it."""
    nodes = [] if cluster.directory is None else ClusterWithMasters.open(cluster.directory).nodes
    for node in nodes:
        if name in (node.name, node.node_id):
            return node.address
    try:
        split_address(name)
    except StelaeError:
        return ""
    return name
