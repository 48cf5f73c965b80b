"""Makes a node a master: its configured tablet is the system tablet, whose members are the masters."""

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
        hint = "List all masters: [masters] members = [{uuid = ..., address = ...}, ...]"
        raise ConfigError("a master needs to know the masters of its cluster", where=where, hint=hint)
    if config.tablet is not None:
        hint = "Leave [tablet] out: masters create the tablets of a cluster that has any."
        raise ConfigError("a master hosts the system tablet and no other", where=where, hint=hint)
    if config.node.listen not in [member.address for member in config.masters]:
        known = ", ".join(member.address for member in config.masters)
        hint = f"Known: {known}."
        raise ConfigError(
            f"this node listens on {config.node.listen}, which is no master's address", where=where, hint=hint
        )
    tablet = TabletSettings(id=SYSTEM_TABLET, schema=SYSTEM_SCHEMA, members=config.masters, table_name="system catalog")
    return replace(config, tablet=tablet, masters=())
