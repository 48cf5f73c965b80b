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
    """What the command line said of where the masters are."""

    directory: Path | None
    connect: str
    timeout_s: float

    def names(self) -> dict[str, str]:
        """Node ids by the names that ``stelae cluster status`` shows; empty if no folder was given."""
        nodes = [] if self.directory is None else ClusterWithMasters.open(self.directory).nodes
        return {node.name: node.node_id for node in nodes}

    @asynccontextmanager
    async def masters(self) -> AsyncIterator[tuple[AsyncClient, CatalogClient]]:
        """A client of the masters; ``BadTarget``: there are none where it was said."""
        if (self.directory is None) == (not self.connect):
            raise BadTarget("say where the masters are: --connect HOST:PORT, or --dir DIR of a local cluster; not both")
        given = split(self.connect) if self.directory is None else ClusterWithMasters.open(self.directory).addresses
        async with await connect_patiently(given, self.timeout_s) as client:
            if client.catalog is None:
                raise BadTarget(f"no masters at {', '.join(given)}: connect to one of them, not to tablet servers")
            yield client, client.catalog
