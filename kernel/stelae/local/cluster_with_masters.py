"""A local cluster with masters: processes of masters and tablet servers on loopback, in one folder."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from stelae.client.contacts import Contacts
from stelae.client.greeting import ANY_CLUSTER
from stelae.local.cluster import (
    CLUSTER_FILE,
    ClusterOptions,
    LocalCluster,
    NotACluster,
    check_engines,
    format_node,
    locked,
    new_folder,
    read_cluster_file,
    sections_text,
)
from stelae.local.node_process import NodeProcess, NodeRole, NodeRuns
from stelae.local.ports import free_ports
from stelae.spi.errors import ConfigError, StelaeError
from stelae.spi.ids import ClusterId, NodeId

KIND = "masters"
"""The key of the cluster file with the masters. A cluster without masters does not have it."""


class FolderLost(StelaeError, code="FOLDER_LOST"):
    """The folder of a node is gone, so that the node cannot be started."""


class FolderMoved(StelaeError, code="FOLDER_MOVED"):
    """The folder of a cluster was moved or copied: its nodes would use what is stored elsewhere."""


class ClusterWithMasters:
    """The node processes of a cluster with masters, in one folder. Made by :meth:`create` or :meth:`open`."""

    def __init__(
        self,
        directory: Path,
        masters: Sequence[NodeProcess],
        servers: Sequence[NodeProcess],
        formatted: Callable[[NodeProcess, NodeId], None] = format_node,
        cluster_id: ClusterId = ANY_CLUSTER,
    ) -> None:
        self.directory = directory
        self._formatted = formatted
        self._cluster_id = cluster_id
        self.masters = list(masters)
        self.servers = list(servers)

    @classmethod
    def create(
        cls,
        directory: Path,
        options: ClusterOptions,
        *,
        masters: int = 3,
        formatted: Callable[[NodeProcess, NodeId], None] = format_node,
    ) -> ClusterWithMasters:
        """Format the masters and tablet servers of a new cluster. No process is started.

        Args:
            directory: a new or empty folder.
            options: the options of the tablet servers. The settings apply to the masters, too.
            masters: number of masters; odd.
            formatted: formats the directory of one node with a uuid. The default runs a process for each node.

        Raises:
            PluginError, ConfigError: an engine is not installed or is broken, more engines are named than there are
                tablet servers, or the number of masters is even. Nothing was written.
            ClusterExists: the folder is not empty.
            FormatFailed: ``stelae fs format`` failed; the message has its output.
            NoFreePorts: there are not enough free ports.
            OSError: a file cannot be written. After any error nothing is left.
        """
        check_engines(options)
        if masters % 2 == 0:  # Each master would refuse its node.toml, at every start.
            fact = f"{masters} masters tolerate no more failures than {masters - 1}"
            raise ConfigError(fact, hint=f"Use {masters - 1} or {masters + 1} masters.")
        with new_folder(directory):
            return cls._create(directory, options, masters, formatted)

    @classmethod
    def _create(
        cls, directory: Path, options: ClusterOptions, masters: int, formatted: Callable[[NodeProcess, NodeId], None]
    ) -> ClusterWithMasters:
        ports = iter(free_ports(masters + options.node_count))
        cluster_id = ClusterId(f"local-{secrets.token_hex(6)}")
        cluster = cls(
            directory,
            [_process(directory, "master", n, next(ports)) for n in range(1, masters + 1)],
            [_process(directory, "tserver", n, next(ports)) for n in range(1, options.node_count + 1)],
            formatted,
            cluster_id,
        )
        members = [{"uuid": master.node_id, "address": master.address} for master in cluster.masters]
        for number, node in enumerate((*cluster.masters, *cluster.servers)):
            node.directory.mkdir()
            sections: dict[str, Any] = {
                "node": {"directory": str((node.directory / "data").resolve()), "listen": node.address},
                "cluster": {"id": cluster_id},
                "masters": {"members": members},
            }
            if node.role == "tserver" and options.engines:
                sections["engines"] = options.engines_of(number - masters)
            node.config_path.write_text(sections_text(sections, options.settings))
            formatted(node, node.node_id)
        found = {"cluster_id": cluster_id, KIND: _listed(cluster.masters), "servers": _listed(cluster.servers)}
        _write(directory, found)
        return cluster

    @classmethod
    def open(
        cls, directory: Path, *, formatted: Callable[[NodeProcess, NodeId], None] = format_node
    ) -> ClusterWithMasters:
        """Open a cluster that another process created. ``formatted`` is that of :meth:`create`.

        Raises:
            NotACluster: the folder has no cluster with masters in it.
        """
        found = read_cluster_file(directory)
        try:
            masters = _processes(directory, found[KIND], "master")
            servers = _processes(directory, found["servers"], "tserver")
            cluster_id = ClusterId(found["cluster_id"])
        except (KeyError, TypeError) as error:
            fact = f"{directory / CLUSTER_FILE} lists no masters and tablet servers: the cluster has no masters"
            raise NotACluster(f"{fact}; choose another folder, or create one with: stelae cluster up DIR") from error
        return cls(directory, masters, servers, formatted, cluster_id)

    def add_server(self) -> NodeProcess:
        """Format one more tablet server, with the settings and engines of the last one. It is not started.

        Raises:
            FormatFailed: ``stelae fs format`` failed; the message has its output.
        """
        like = [node for node in self.servers if node.config_path.exists()][-1]  # The folder of one may be lost.
        number = 1 + max(int(node.name.rpartition("-")[2]) for node in self.servers)
        while (self.directory / f"tserver-{number}").exists():  # Of an addition that was cut short.
            number += 1
        (port,) = free_ports(1)
        node = _process(self.directory, "tserver", number, port)
        self._write_file_like(like, node)
        self._formatted(node, node.node_id)
        self._set_servers(lambda servers: [*servers, node])
        return node

    def add_master(self) -> NodeProcess:
        """Format one more master, which joins once it was started and added. Its file lists the masters of the others'.

        Raises:
            FormatFailed: ``stelae fs format`` failed; the message has its output.
        """
        like = next(node for node in self.nodes if node.config_path.exists())
        number = 1 + max(int(node.name.rpartition("-")[2]) for node in self.masters)
        while (self.directory / f"master-{number}").exists():  # Of one that was removed.
            number += 1
        (port,) = free_ports(1)
        node = _process(self.directory, "master", number, port)
        self._write_file_like(like, node)
        self._formatted(node, node.node_id)
        self._set_masters(lambda masters: [*masters, node])
        return node

    def remove_master(self, node: NodeProcess) -> None:
        """Forget a master that does not run, and is no master of the cluster any more."""
        self._set_masters(lambda masters: [one for one in masters if one.node_id != node.node_id])

    def _write_file_like(self, like: NodeProcess, node: NodeProcess) -> None:
        """Write the file of a new node, with the settings of another one."""
        node.directory.mkdir()
        sections = tomllib.loads(like.config_path.read_text())
        sections["node"] |= {"directory": str((node.directory / "data").resolve()), "listen": node.address}
        node.config_path.write_text(sections_text(_flat(sections), None))

    def replace_server(self, node: NodeProcess) -> NodeProcess:
        """Format a tablet server that does not run anew: with a new uuid, at its address, and with nothing stored.

        That is how a server whose disk was lost comes back. Masters replace the replicas of the old uuid."""
        fresh = NodeProcess(node.name, NodeId(secrets.token_hex(16)), node.address, node.directory, node.role)
        shutil.rmtree(node.directory / "data", ignore_errors=True)
        self._formatted(fresh, fresh.node_id)
        self._set_servers(lambda servers: [fresh if one.node_id == node.node_id else one for one in servers])
        return fresh

    def remove_server(self, node: NodeProcess) -> None:
        """Forget a tablet server that does not run and will not come back. Its folder may be gone."""
        self._set_servers(lambda servers: [one for one in servers if one.node_id != node.node_id])

    def _set_servers(self, change: Callable[[list[NodeProcess]], list[NodeProcess]]) -> None:
        self.servers = self._changed("servers", "tserver", change)

    def _set_masters(self, change: Callable[[list[NodeProcess]], list[NodeProcess]]) -> None:
        self.masters = self._changed(KIND, "master", change)

    def _changed(
        self, key: str, role: NodeRole, change: Callable[[list[NodeProcess]], list[NodeProcess]]
    ) -> list[NodeProcess]:
        """Change a list of the cluster file, which another command may have changed since this object read it."""
        known = {node.node_id: node for node in self.nodes}
        with locked(self.directory):
            found = json.loads((self.directory / CLUSTER_FILE).read_text())
            listed = _processes(self.directory, found[key], role)
            nodes = change([known.get(node.node_id, node) for node in listed])  # With the processes started here.
            _write(self.directory, {**found, key: _listed(nodes)})
        return nodes

    @property
    def nodes(self) -> list[NodeProcess]:
        """The masters, then the tablet servers."""
        return [*self.masters, *self.servers]

    @property
    def addresses(self) -> list[str]:
        """``host:port`` of every master. Clients connect to these."""
        return [master.address for master in self.masters]

    @property
    def contacts(self) -> Contacts:
        """The tablet servers, which name the present masters if none of the cluster file is left."""
        return Contacts(cluster_id=self._cluster_id, addresses=tuple(server.address for server in self.servers))

    def start(self, *, outlive: bool = False) -> None:
        """Start every node that does not run; see ``NodeProcess.start``.

        Another command may start the nodes of the folder at the same time. Each node is started by one of the two.

        Raises:
            FolderMoved: the folder is a copy, or was moved. No node was started.
            FolderLost: the folders of some nodes are gone. All other nodes were started.
        """
        check_not_moved(self.nodes)
        lost = [node for node in self.nodes if not node.config_path.exists()]
        for node in self.nodes:
            if node not in lost and node.running_pid() is None:
                with suppress(NodeRuns):
                    node.start(outlive=outlive)
        if lost:
            gone = ", ".join(f"{node.name} ({node.config_path})" for node in lost)
            raise FolderLost(
                f"started all nodes but {gone}, whose node.toml is gone; restore it, or remove the node from "
                f"{self.directory / CLUSTER_FILE}; a new server is added with: stelae cluster add-server"
            )

    def check(self) -> None:
        """Check that every node that was started still runs; ``NodeExited``: a node does not run any more."""
        for node in self.nodes:
            node.check()

    def kill(self) -> None:
        """Kill the nodes that this process started, and wait for their end."""
        for node in self.nodes:
            node.kill()


def check_not_moved(nodes: Sequence[NodeProcess]) -> None:
    """Check that nodes store their data in their own folders, or in a folder that the user has chosen.

    A ``node.toml`` has an absolute path. So the nodes of a copied cluster would use the data of the original, and those
    of a moved one would find nothing.

    Raises:
        FolderMoved: nodes name the folder of another cluster, or one that is gone.
    """
    for node in nodes:
        with suppress(OSError, ValueError, KeyError):  # The node itself says what is wrong with its file.
            stored = Path(tomllib.loads(node.config_path.read_text())["node"]["directory"])
            elsewhere = stored.parent.parent
            own = node.directory.parent.resolve()
            if stored.parts[-2:] != (node.name, "data") or elsewhere.resolve() == own:
                continue
            if stored.exists() and not (elsewhere / CLUSTER_FILE).exists():
                continue
            raise FolderMoved(
                f"{node.config_path} has the directory {stored}: its folder was moved or copied. After a "
                f"move, replace {elsewhere} by {own} in each node.toml. Never run a copy, not even in place of the "
                "original: its nodes have forgotten their last votes and writes"
            )


def contacts_in(directory: Path) -> Contacts | None:
    """Return the tablet servers of a local cluster with masters; ``None``: it has no masters, or is not there."""
    try:
        return ClusterWithMasters.open(directory).contacts
    except NotACluster:
        return None


def addresses_of(directory: Path) -> list[str]:
    """Return the addresses that a client of a local cluster connects to: its masters, or its nodes if it has none.

    Raises:
        NotACluster: the folder has no cluster in it.
    """
    try:
        return ClusterWithMasters.open(directory).addresses
    except NotACluster:
        return LocalCluster.open(directory).addresses


def _process(directory: Path, role: NodeRole, number: int, port: int) -> NodeProcess:
    name = f"{role}-{number}"
    return NodeProcess(name, NodeId(secrets.token_hex(16)), f"127.0.0.1:{port}", directory / name, role)


def _processes(directory: Path, nodes: Sequence[Mapping[str, str]], role: NodeRole) -> list[NodeProcess]:
    return [NodeProcess(n["name"], NodeId(n["node_id"]), n["address"], directory / n["name"], role) for n in nodes]


def _write(directory: Path, found: Mapping[str, Any]) -> None:
    """Replace the cluster file. After an error, and for a command that reads meanwhile, the old file is whole.

    The contents are synced before the file has its name: otherwise a loss of power could leave it empty."""
    path = directory / CLUSTER_FILE
    temporary = path.with_name(f".{CLUSTER_FILE}.tmp")
    with temporary.open("w") as file:
        file.write(json.dumps(found, indent=2) + "\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def _flat(sections: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the sections of a ``node.toml`` by their dotted names."""
    found: dict[str, dict[str, Any]] = {}
    for name, values in sections.items():
        plain = {key: value for key, value in values.items() if not isinstance(value, Mapping)}
        inner = {f"{name}.{key}": value for key, value in values.items() if isinstance(value, Mapping)}
        found |= {name: plain} if plain or not inner else {}
        found |= _flat(inner)
    return found


def _listed(nodes: Sequence[NodeProcess]) -> list[dict[str, str]]:
    return [{"name": node.name, "node_id": node.node_id, "address": node.address} for node in nodes]
