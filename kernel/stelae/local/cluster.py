"""A local cluster without masters: several node processes on loopback, in one folder.

The file ``cluster.json`` in the folder lists the nodes, so that another process can find the cluster. Each node has a
folder with ``node.toml``, its data and its log."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stelae.config.contracts import EngineKind
from stelae.config.registry import Registry
from stelae.config.sections import EngineNames
from stelae.local.node_process import NodeProcess
from stelae.local.ports import free_ports
from stelae.spi.consensus import REPLICATES
from stelae.spi.errors import CallerError, ConfigError, StelaeError
from stelae.spi.ids import NodeId, TabletId

CLUSTER_FILE = "cluster.json"


class ClusterExists(CallerError):
    """The folder for a new cluster already has a cluster or other files in it."""

    code = "CLUSTER_EXISTS"


class NotACluster(CallerError):
    """The folder has no cluster in it, or none that the command can use."""

    code = "NOT_A_CLUSTER"


class FormatFailed(StelaeError):
    """A node's directory could not be formatted."""

    code = "FORMAT_FAILED"


@dataclass(frozen=True, slots=True, kw_only=True)
class TabletSpec:
    """The one tablet of a cluster without masters.

    Attributes:
        tablet_id: id of the tablet.
        columns: ``{"name", "type", "nullable"}`` of each column, in order.
        key: names of the key columns, in order.
    """

    tablet_id: TabletId
    columns: Sequence[Mapping[str, Any]]
    key: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """The options of a local cluster.

    Attributes:
        node_count: number of nodes.
        engines: engine name by kind (``{"wal": "segmented"}``). A kind that is not listed has the node's default.
            Several names, separated by commas, are used for the nodes in turn: replicas of a tablet may have different
            logs and stores. All must have the same consensus engine, so that kind takes one name.
        settings: sections that are merged into every ``node.toml``.
        spare_count: without masters: the number of further nodes that are not members of the tablet at first."""

    node_count: int = 3
    spare_count: int = 0
    engines: Mapping[str, str] | None = None
    settings: Mapping[str, Mapping[str, Any]] | None = None

    def engines_of(self, number: int) -> dict[str, str]:
        """Return the engines of the node with a number, from 0; ``ConfigError``: more names than nodes."""
        found = {}
        for kind, text in (self.engines or {}).items():
            names = [text] if kind == EngineKind.CONSENSUS else [name.strip() for name in text.split(",")]
            if len(names) > self.node_count:
                fact = f"{len(names)} {kind} engines for {self.node_count} nodes: {text}"
                raise ConfigError(fact, hint="name one for all nodes, or one for each")
            found[kind] = names[number % len(names)]
        return found


class LocalCluster:
    """The node processes of a cluster without masters, in one folder. Made by :meth:`create` or :meth:`open`."""

    def __init__(self, directory: Path, tablet_id: TabletId, nodes: list[NodeProcess]) -> None:
        self.directory = directory
        self.tablet_id = tablet_id
        self.nodes = nodes

    @classmethod
    def create(
        cls,
        directory: Path,
        tablet: TabletSpec,
        options: ClusterOptions,
        *,
        formatted: Callable[[NodeProcess, NodeId], None] | None = None,
    ) -> LocalCluster:
        """Format the nodes of a new cluster. No process is started.

        Args:
            directory: a new or empty folder.
            tablet: the tablet of the cluster.
            options: number of nodes, engines and settings.
            formatted: formats the directory of one node with a uuid; ``None``: a process for each node does.

        Raises:
            PluginError, ConfigError: an engine is not installed or is broken, more engines are named than there are
                nodes, or the consensus engine serves one node only. Nothing was written.
            ClusterExists: the folder is not empty.
            FormatFailed: ``stelae fs format`` failed; the message has its output.
            NoFreePorts: there are not enough free ports.
            OSError: a file cannot be written. After any error nothing is left.
        """
        check_engines(options)
        _check_replicates(options)
        with new_folder(directory):
            return cls._create(directory, tablet, options, formatted)

    @classmethod
    def _create(
        cls,
        directory: Path,
        tablet: TabletSpec,
        options: ClusterOptions,
        formatted: Callable[[NodeProcess, NodeId], None] | None,
    ) -> LocalCluster:
        cluster_id = f"local-{secrets.token_hex(6)}"
        nodes = [
            NodeProcess(
                f"node-{number + 1}",
                NodeId(secrets.token_hex(16)),
                f"127.0.0.1:{port}",
                directory / f"node-{number + 1}",
            )
            for number, port in enumerate(free_ports(options.node_count + options.spare_count))
        ]
        for node in nodes:
            node.directory.mkdir()
            node.config_path.write_text(_node_toml(node, nodes, cluster_id, tablet, options))
            if formatted is None:
                format_node(node)
            else:
                formatted(node, node.node_id)
        cluster = cls(directory, tablet.tablet_id, nodes)
        cluster._write_file(cluster_id)
        return cluster

    @classmethod
    def open(cls, directory: Path) -> LocalCluster:
        """Open a cluster that another process created. This object cannot stop the processes of that process.

        Raises:
            NotACluster: the folder has no cluster in it.
        """
        found = read_cluster_file(directory)
        try:
            nodes = [
                NodeProcess(n["name"], NodeId(n["node_id"]), n["address"], directory / n["name"])
                for n in found["nodes"]
            ]
            return cls(directory, TabletId(found["tablet_id"]), nodes)
        except (KeyError, TypeError) as error:
            raise NotACluster(f"{directory / CLUSTER_FILE} does not list the nodes of a local cluster") from error

    @property
    def addresses(self) -> list[str]:
        """``host:port`` of every node."""
        return [node.address for node in self.nodes]

    def node(self, node_id: NodeId) -> NodeProcess:
        """Return the node with a uuid."""
        return next(node for node in self.nodes if node.node_id == node_id)

    def start(self, *, outlive: bool = False) -> None:
        """Start every node; see ``NodeProcess.start``."""
        for node in self.nodes:
            node.start(outlive=outlive)

    def check(self) -> None:
        """Check that every node that was started still runs.

        Raises:
            NodeExited: a node does not run any more.
        """
        for node in self.nodes:
            node.check()

    def stop(self) -> None:
        """Stop all nodes at the same time, and kill those that do not stop in time."""
        for node in self.nodes:
            node.ask_to_stop()
        for node in self.nodes:
            node.wait()

    def _write_file(self, cluster_id: str) -> None:
        found = {
            "cluster_id": cluster_id,
            "tablet_id": self.tablet_id,
            "nodes": [{"name": n.name, "node_id": n.node_id, "address": n.address} for n in self.nodes],
        }
        (self.directory / CLUSTER_FILE).write_text(json.dumps(found, indent=2) + "\n")


def check_engines(options: ClusterOptions) -> None:
    """Check that every engine is installed.

    Raises:
        PluginError: an engine is not installed, or is broken.
        ConfigError: more engines are named than there are nodes.
    """
    registry = Registry.installed()
    for number in range(options.node_count):
        for kind, name in options.engines_of(number).items():
            registry.engine(EngineKind(kind), name)


def _check_replicates(options: ClusterOptions) -> None:
    """Refuse several replicas of a tablet with a consensus engine that does not replicate."""
    name = options.engines_of(0).get(EngineKind.CONSENSUS, EngineNames().consensus)
    engine = Registry.installed().engine(EngineKind.CONSENSUS, name)
    if options.node_count > 1 and REPLICATES not in engine.capabilities:
        fact = f"{options.node_count} nodes replicate a tablet, and the consensus engine {name!r} serves one node only"
        raise ConfigError(fact, hint="Choose the consensus engine 'raft', or one node.")


@contextmanager
def new_folder(directory: Path) -> Iterator[None]:
    """Create the folder of a new cluster, and lock it while the cluster is created in it.

    After an error or an interrupt nothing is left: a part of a cluster would be of no use, and in the way of the next
    attempt. ``ClusterExists``: the folder is not empty. Another command may have created a cluster meanwhile."""
    existed = directory.exists()
    directory.mkdir(parents=True, exist_ok=True)
    with locked(directory):
        if (directory / CLUSTER_FILE).exists():
            raise ClusterExists(
                f"{directory} has a cluster already; choose a new folder. `stelae cluster up {directory}` starts the "
                f"cluster, and `stelae cluster down {directory}` stops it before you remove it"
            )
        if any(directory.iterdir()):
            raise ClusterExists(
                f"{directory} is not empty; choose a new folder, or remove this one if its data is not needed any more"
            )
        try:
            yield
        except BaseException:
            for path in [*directory.iterdir()]:  # It was empty, and is locked: all of this was created here.
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            if not existed:
                directory.rmdir()
            raise


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Lock the folder of a cluster against other commands that create or change the cluster file. Waits for them."""
    folder = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def read_cluster_file(directory: Path) -> Any:
    """Return the contents of the cluster file of a folder; ``NotACluster``: it is missing or cannot be read."""
    path = directory / CLUSTER_FILE
    try:
        return json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError) as error:
        fact = f"{directory} has no local cluster in it; create one with: stelae cluster up {directory}"
        raise NotACluster(fact) from error
    except (OSError, ValueError) as error:
        fact = f"{path}, which lists the nodes of the cluster, cannot be read: {error}"
        hint = "restore it, or run each node by itself with --config: stelae master run, stelae tserver run"
        raise NotACluster(f"{fact}; {hint}") from error


def format_node(node: NodeProcess, uuid: NodeId | None = None) -> None:
    """Format a node's directory; ``FormatFailed``: the command failed.

    ``uuid`` is the node's uuid if its ``node.toml`` does not determine it."""
    command = [sys.executable, "-m", "stelae", "fs", "format", "--config", str(node.config_path)]
    command += [] if uuid is None else ["--uuid", uuid]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
    if done.returncode != 0:
        raise FormatFailed(f"{node.name} could not be formatted: {done.stderr.strip()}")


def _node_toml(
    node: NodeProcess, nodes: list[NodeProcess], cluster_id: str, tablet: TabletSpec, options: ClusterOptions
) -> str:
    sections: dict[str, Mapping[str, Any]] = {
        "node": {"directory": str((node.directory / "data").resolve()), "listen": node.address},
        "cluster": {"id": cluster_id},
        "tablet": {
            "id": tablet.tablet_id,
            "key": list(tablet.key),
            "columns": list(tablet.columns),
            "members": [{"uuid": n.node_id, "address": n.address} for n in nodes[: options.node_count]],
        },
    }
    if options.engines:
        sections["engines"] = options.engines_of(nodes.index(node))
    return sections_text(sections, options.settings)


def sections_text(sections: Mapping[str, Mapping[str, Any]], settings: Mapping[str, Mapping[str, Any]] | None) -> str:
    """Return the text of a ``node.toml``, with ``settings`` merged into its sections."""
    merged = dict(sections)
    for name, values in (settings or {}).items():
        merged[name] = {**merged.get(name, {}), **values}
    return "\n".join(
        f"[{name}]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in values.items())
        for name, values in merged.items()
    )


def _toml(value: Any) -> str:
    """Return a value as TOML. Strings, numbers and booleans of JSON are valid TOML."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return json.dumps(value)
