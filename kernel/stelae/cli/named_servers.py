"""The tablet server that a user names by its address, its node id, or its name in a local cluster."""

from __future__ import annotations

from stelae.cli.kit.name_lookup import pick
from stelae.cli.masters_target import MastersTarget
from stelae.client.catalog import CatalogClient
from stelae.protocol.master_messages import ServerLine
from stelae.spi.ids import NodeId


async def named_server(cluster: MastersTarget, catalog: CatalogClient, name: str) -> ServerLine:
    """Return the server that the user names. Raises ``UnknownName`` if the masters know none, or several."""
    servers = {line.node_id: line for line in (await catalog.list_servers(timeout_s=cluster.timeout_s)).servers}
    names: dict[str, str] = {name: line.node_id for line in servers.values() for name in (line.address, line.node_id)}
    names |= {name: node_id for name, node_id in cluster.names().items() if node_id in servers}
    return servers[NodeId(pick("tablet server", name, names, "stelae tserver list"))]
