"""Reader of a ``node.toml`` with the sections of all services of a node."""

from __future__ import annotations

from typing import Any

from stelae.config.node_toml import load_config
from stelae.config.registry import Registry
from stelae.host.settings import NodeConfig
from stelae.lifecycle.copy_settings import StageSettings
from stelae.lifecycle.quarantine import QuarantineSettings
from stelae.local.chaos.settings import ChaosSettings
from stelae.rows.limits import LimitSettings
from stelae.server.limits import check_tablet
from stelae.server.master.settings import MasterSettings
from stelae.server.tserver.settings import TabletServerSettings, check_location

SECTIONS: dict[str, type[Any]] = {
    "master": MasterSettings,
    "tserver": TabletServerSettings,
    "limits": LimitSettings,
    "quarantine": QuarantineSettings,
    "stage": StageSettings,
    "chaos": ChaosSettings,
}
"""Sections of services, in addition to those of the node itself."""


def read_config(path: str, registry: Registry) -> NodeConfig:
    """Read and check a ``node.toml``.

    Raises:
        ConfigError: as ``load_config``; or the location is malformed, or the tablet has too many columns.
    """
    config = load_config(path, registry, SECTIONS)
    check_location(config.extra["tserver"], path)
    check_tablet(config, path)
    return config
