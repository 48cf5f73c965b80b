"""What a tablet server has to be told."""

from __future__ import annotations

from stelae.host.settings import NodeConfig
from stelae.spi.errors import ConfigError


def check_tablet_server(config: NodeConfig, where: str) -> None:
    """Check what a node is told that runs as a tablet server; ``where`` names the file in errors.

    ``ConfigError``: it names neither masters nor a tablet, so the node would serve nothing and report to nobody."""
    if not config.masters and config.tablet is None:
        hint = (
            "List all masters of the cluster: [masters] members = [{uuid = ..., address = ...}, ...]; "
            "or describe the one tablet of a cluster without masters in [tablet]."
        )
        raise ConfigError("a tablet server needs [masters] or [tablet], and has neither", where=where, hint=hint)
