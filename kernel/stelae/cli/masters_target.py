"""The masters that the options ``--dir`` and ``--connect`` name, and a client of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from stelae.cli.kit.connection import BadTarget, connect_patiently, split
from stelae.client import AsyncClient
from stelae.client.catalog import CatalogClient
from stelae.local.cluster_with_masters import ClusterWithMasters


@dataclass(frozen=True, slots=True)
class MastersTarget:
    """The masters that the command line names."""

    directory: Path | None
    connect: str
    timeout_s: float

    def names(self) -> dict[str, str]:
        """Return node ids by the names in ``stelae cluster status``, or nothing without ``--dir``."""
        nodes = [] if self.directory is None else ClusterWithMasters.open(self.directory).nodes
        return {node.name: node.node_id for node in nodes}

    @asynccontextmanager
    async def masters(self) -> AsyncIterator[tuple[AsyncClient, CatalogClient]]:
        """Open a client of the masters, also through a tablet server. ``BadTarget``: the nodes know no masters."""
        if (self.directory is None) == (not self.connect):
            raise BadTarget("pass either --connect HOST:PORT of a master, or --dir DIR of a local cluster")
        cluster = None if self.directory is None else ClusterWithMasters.open(self.directory)
        given, contacts = (split(self.connect), None) if cluster is None else (cluster.addresses, cluster.contacts)
        async with await connect_patiently(given, self.timeout_s, contacts=contacts) as client:
            if client.catalog is None:
                nodes = ", ".join(given)
                raise BadTarget(f"the nodes at {nodes} know no masters; connect to a master")
            yield client, client.catalog
