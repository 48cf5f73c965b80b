"""What makes a node a master: its configured tablet is the system tablet.

The masters in its file are those to begin a cluster with, or to turn to at first contact (ADR 80). So a master that
joins need not be listed in it."""

from __future__ import annotations

from dataclasses import replace

from stelae.host.settings import NodeConfig, TabletSettings
from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.server.master.core.batches import SYSTEM_SCHEMA
from stelae.spi.errors import ConfigError


def as_master(config: NodeConfig, where: str) -> NodeConfig:
    """Return the settings of a node that runs as a master. ``where`` names the file in errors.

    Raises ``ConfigError`` if the file names no masters, or has a tablet of its own."""
    if not config.masters:
        hint = (
            "List the masters of the cluster, or those that shall begin a new one: "
            "[masters] members = [{uuid = ..., address = ...}, ...]"
        )
        raise ConfigError("a master needs to know the masters of its cluster", where=where, hint=hint)
    if config.tablet is not None:
        hint = "Leave [tablet] out: masters create the tablets of a cluster that has any."
        raise ConfigError("a master hosts the system tablet and no other", where=where, hint=hint)
    tablet = TabletSettings(id=SYSTEM_TABLET, schema=SYSTEM_SCHEMA, members=config.masters, table_name="system catalog")
    return replace(config, tablet=tablet, masters=())
