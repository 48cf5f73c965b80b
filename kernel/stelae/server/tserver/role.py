"""Checks that a node's file has what a tablet server needs."""

from __future__ import annotations

from stelae.host.settings import NodeConfig
from stelae.spi.errors import ConfigError


def check_tablet_server(config: NodeConfig, where: str) -> None:
    """Check the settings of a node that runs as a tablet server; ``where`` names the file in errors.

    Raises:
        ConfigError: the file has neither masters nor a tablet, so the node would serve no tablet and have no master to
            report to.
    """
    if not config.masters and config.tablet is None:
        hint = (
            "List all masters of the cluster: [masters] members = [{uuid = ..., address = ...}, ...]; "
            "or describe the one tablet of a cluster without masters in [tablet]."
        )
        raise ConfigError("a tablet server needs [masters] or [tablet], and has neither", where=where, hint=hint)
