"""Formats the nodes of a local cluster in this process. A process for each node would take a second of CPU time."""

from __future__ import annotations

import tomllib

from stelae.config.sections import EngineNames
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.instance import Instance, format_directory
from stelae.local.node_process import NodeProcess
from stelae.machine.files import RealFiles
from stelae.spi.ids import NodeId, cluster_id


def format_here(node: NodeProcess, uuid: NodeId) -> None:
    """Format the directory that the ``node.toml`` of a node names, as ``stelae fs format --config`` does.

    Raises:
        StorageError: the directory cannot be formatted.
    """
    read = tomllib.loads(node.config_path.read_text())
    engine = read.get("engines", {}).get("wal") or EngineNames().wal
    instance = Instance(node_id=uuid, cluster_id=cluster_id(read["cluster"]["id"]), wal_engine=engine)
    format_directory(RealFiles(), DirectoryLayout(read["node"]["directory"]), instance)
