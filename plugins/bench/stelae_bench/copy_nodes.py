"""The nodes of ``stelae bench copy``: one master, tablet servers, and new servers that get copies and go again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from stelae.cli.node_formatting import format_here
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.superblock import SuperblockFile
from stelae.local.cluster import ClusterOptions
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.local.node_health import until_served
from stelae.local.node_process import NodeProcess
from stelae.machine.files import RealFiles
from stelae.spi.ids import TabletId
from stelae_bench.node_counters import node_counter
from stelae_bench.process_cpu import cpu_seconds

SERVERS = 3
START_TIMEOUT_S = 120.0
BYTES_FETCHED, BYTES_SENT = "copy_bytes_fetched", "copy_bytes_sent"
"""The counters of a target and of a source. A target counts the bytes of a run of the transport at its end."""


class CopyNodes:
    """A cluster whose masters move nothing by themselves.

    Args:
        directory: a new folder.
        settings: further sections of every ``node.toml``.
        servers: number of tablet servers.
    """

    def __init__(self, directory: Path, settings: Mapping[str, Mapping[str, Any]], servers: int = SERVERS) -> None:
        options = ClusterOptions(node_count=servers, settings=settings)
        self.cluster = ClusterWithMasters.create(directory, options, masters=1, formatted=format_here)

    async def start(self) -> None:
        """Start all nodes, and wait until the masters know all servers."""
        self.cluster.start()
        await until_served(self.cluster, START_TIMEOUT_S)

    async def new_server(self, more_toml: str = "") -> NodeProcess:
        """Start a tablet server that has no replica. ``more_toml`` ends its ``node.toml``."""
        node = self.cluster.add_server()
        with node.config_path.open("a") as file:
            file.write(more_toml)
        node.start()
        await until_served(self.cluster, START_TIMEOUT_S)
        return node

    def discard(self, node: NodeProcess) -> None:
        """Kill a server that has no replica any more, and remove its folder."""
        node.kill()
        self.cluster.remove_server(node)
        shutil.rmtree(node.directory)

    def server(self, node_id: str) -> NodeProcess:
        """Return the server with a uuid."""
        return next(node for node in self.cluster.servers if node.node_id == node_id)

    def data_of(self, node: NodeProcess, tablet_id: TabletId) -> Path:
        """Return the folder with the files of the rows of a replica."""
        return Path(_layout(node).data_of(tablet_id))

    def stage_bytes(self, node: NodeProcess, tablet_id: TabletId) -> int:
        """Return the bytes that a copy in progress has stored so far."""
        return sum(sizes_in(Path(_layout(node).stage_of(tablet_id))).values())

    def flushed_index(self, node: NodeProcess, tablet_id: TabletId) -> int:
        """Return the index up to which a replica has its rows in files."""
        return SuperblockFile(RealFiles(), _layout(node), tablet_id).load().flushed.index

    def counter(self, node: NodeProcess, name: str) -> int:
        """Return a counter of a running node; see ``node_counter``."""
        return node_counter(node, name)

    def cpu_s(self, node: NodeProcess) -> float | None:
        """Return the processor time of a node so far, in seconds; ``None``: this system does not tell."""
        return None if node.pid is None else cpu_seconds(node.pid)


def sizes_in(folder: Path) -> dict[str, int]:
    """Return the sizes of the files in a folder and below it, by path. Files may come and go meanwhile."""
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                path = os.path.join(place, name)
                found[path] = os.stat(path).st_size
    return found


def _layout(node: NodeProcess) -> DirectoryLayout:
    return DirectoryLayout(str((node.directory / "data").resolve()))
