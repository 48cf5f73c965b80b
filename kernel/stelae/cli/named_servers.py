"""The tablet server that a user names by its address, its node id, or its name in a local cluster."""

from __future__ import annotations

from stelae.cli.kit.name_lookup import pick_node
from stelae.cli.masters_target import MastersTarget
from stelae.client.catalog import CatalogClient
from stelae.protocol.master_messages import ServerLine
from stelae.spi.ids import NodeId


async def named_server(cluster: MastersTarget, catalog: CatalogClient, name: str) -> ServerLine:
    """Return the server that the user names. Raises ``UnknownName`` or ``SharedAddress``."""
    servers = {line.node_id: line for line in (await catalog.list_servers(timeout_s=cluster.timeout_s)).servers}
    addresses = {node_id: line.address for node_id, line in servers.items()}
    known = {name: node_id for name, node_id in cluster.names().items() if node_id in servers}
    return servers[NodeId(pick_node("tablet server", name, addresses, "stelae tserver list", known))]
