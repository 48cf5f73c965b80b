"""Reads ``node.toml``, the configuration of a node, once and completely: every key is typed and checked.

An error is one ``ConfigError`` with file and line, the fact, the known alternatives, and the next step. Nothing has
been opened or created by then. Engines are looked up here, so that a missing plugin is reported with the line that
names it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stelae.config.contracts import EngineKind
from stelae.config.registry import SERVICE, Registry
from stelae.config.sections import EngineNames, read_masters, read_node, read_tablet
from stelae.config.services import read_services
from stelae.config.source import ConfigSource, fill
from stelae.host.hybrid_clock import ClockSettings
from stelae.host.settings import ChosenEngine, LogSettings, MaintenanceSettings, NodeConfig, WorkerSettings
from stelae.spi.errors import BadIdentifier, ConfigError, PluginError
from stelae.spi.ids import ClusterId, cluster_id
from stelae.telemetry.settings import LoggingSettings, MetricsSettings, listen_address
from stelae.wire.settings import WireSettings

_SECTIONS = (
    "node",
    "cluster",
    "tablet",
    "engines",
    "wire",
    "log",
    "clock",
    "workers",
    "maintenance",
    "masters",
    "plugins",
    SERVICE,
)
_TELEMETRY = {"metrics": MetricsSettings, "logging": LoggingSettings}
_LIST_HINT = "See what is installed with: stelae plugins list"
_NODE_ENGINES = (EngineKind.WAL, EngineKind.CONSENSUS, EngineKind.STORE, EngineKind.COPY)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ClusterSection:
    id: str


def load_config(path: str, registry: Registry, extra: Mapping[str, type[Any]] | None = None) -> NodeConfig:
    """Read a configuration file; ``extra`` as for :func:`parse_config`.

    Raises:
        ConfigError: the file cannot be read, or is not valid.
    """
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        hint = "Give the path of a node.toml with --config."
        raise ConfigError(f"cannot be read: {error.strerror}", where=path, hint=hint) from error
    except UnicodeDecodeError as error:
        hint = "TOML files are UTF-8."
        raise ConfigError(f"not UTF-8 at byte {error.start}", where=path, hint=hint) from error
    return parse_config(text, path, registry, extra)


def parse_config(text: str, path: str, registry: Registry, extra: Mapping[str, type[Any]] | None = None) -> NodeConfig:
    """Read the text of a configuration file.

    Args:
        text: the contents of the file.
        path: its name in messages; a relative ``directory`` is relative to its directory.
        registry: finds engines by name.
        extra: the settings class of each further section; services have their own sections.

    Raises:
        ConfigError: the text is not valid.
    """
    source = ConfigSource.parse(text, path)
    extra = {**_TELEMETRY, **(extra or {})}
    source.check_keys((), (*_SECTIONS, *EngineKind, *extra))
    _check_registry(source, registry)
    node = read_node(source)
    wire = fill(source, ("wire",), WireSettings, leave_out=frozenset({"insecure_listen"}))
    wal, consensus, store, copy = (_pick(source, registry, kind) for kind in _NODE_ENGINES)
    masters = read_masters(source)
    _check_metrics(source, node.listen)
    return NodeConfig(
        node=dataclasses.replace(node, directory=_absolute(path, node.directory)),
        cluster_id=_cluster(source),
        tablet=read_tablet(source),
        wal=wal,
        consensus=consensus,
        store=store,
        copy=copy,
        wire=dataclasses.replace(wire, insecure_listen=node.insecure_listen),
        log=fill(source, ("log",), LogSettings),
        clock=fill(source, ("clock",), ClockSettings),
        workers=fill(source, ("workers",), WorkerSettings),
        maintenance=_maintenance(source),
        masters=masters,
        policy=_pick(source, registry, EngineKind.POLICY) if masters else None,
        extra={name: fill(source, (name,), settings) for name, settings in extra.items()}
        | read_services(source, registry),
    )


def _maintenance(source: ConfigSource) -> MaintenanceSettings:
    found = fill(source, ("maintenance",), MaintenanceSettings)
    if found.replica_memory_bytes_max < found.flush_bytes:
        limit, flush = found.replica_memory_bytes_max, found.flush_bytes
        fact = f"writes would be refused at {limit} bytes of memory, but a flush begins only at {flush}"
        hint = "Set replica_memory_bytes_max to a few times flush_bytes."
        raise source.error(("maintenance", "replica_memory_bytes_max"), fact, hint)
    return found


def _check_metrics(source: ConfigSource, node_listen: str) -> None:
    """Refuse an address for metrics that is not valid, is the node's own, or is open to others without permission."""
    path, settings = ("metrics", "listen"), fill(source, ("metrics",), MetricsSettings)
    try:
        _, port = listen_address(settings)
    except ConfigError as error:
        raise source.error(path, error.fact, error.hint) from error
    if port and settings.enabled and settings.listen == node_listen:
        hint = "Choose another port, or 0, with which the system chooses one."
        raise source.error(path, f"the node itself listens on {node_listen}", hint)


def _absolute(path: str, directory: str) -> str:
    beside = os.path.dirname(os.path.abspath(path))
    return os.path.normpath(os.path.join(beside, os.path.expanduser(directory)))


def _cluster(source: ConfigSource) -> ClusterId:
    source.table(("cluster",), required=True)
    try:
        return cluster_id(fill(source, ("cluster",), _ClusterSection).id)
    except BadIdentifier as error:
        raise source.error(("cluster", "id"), str(error), "Choose another id.") from error


def _check_registry(source: ConfigSource, registry: Registry) -> None:
    """Refuse two plugins with one name, and sections of engines that no plugin offers."""
    try:
        registry.check_names()
    except PluginError as error:
        raise source.error(("engines",), str(error), _LIST_HINT) from error
    for kind in EngineKind:
        source.check_keys((kind.value,), registry.names(kind))


def _pick(source: ConfigSource, registry: Registry, kind: EngineKind) -> ChosenEngine:
    name = getattr(fill(source, ("engines",), EngineNames), kind.value)
    try:
        engine = registry.engine(kind, name)
    except PluginError as error:
        raise source.error(("engines", kind.value), str(error), _LIST_HINT) from error
    config = fill(source, (kind.value, name), engine.Config)
    return ChosenEngine(name=name, engine=engine, config=config)
