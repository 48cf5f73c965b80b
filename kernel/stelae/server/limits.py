"""Which limits a node holds what comes in to: its file says; records of the catalog are as large as an entry can be."""

from __future__ import annotations

from functools import partial

from stelae.host.ports import BatcherFactory
from stelae.host.settings import NodeConfig
from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.rows.batcher import OP_BYTES_MAX
from stelae.rows.limits import DEFAULTS, LimitSettings
from stelae.server.bounds import batcher_of
from stelae.spi.errors import ConfigError, SchemaMismatch

_CATALOG = LimitSettings(cell_bytes_max=OP_BYTES_MAX)
"""A record of the catalog is one cell, as large as its table is wide; a master must never drop one of a batch."""


def limits_of(config: NodeConfig) -> LimitSettings:
    """Return section ``[limits]`` of a node."""
    found: LimitSettings | None = config.extra.get("limits")
    return found or DEFAULTS


def batchers_of(config: NodeConfig) -> BatcherFactory:
    """Return what makes the batchers of a node's tablets."""
    is_master = config.tablet is not None and config.tablet.id == SYSTEM_TABLET
    return partial(batcher_of, limits=_CATALOG if is_master else limits_of(config))


def check_tablet(config: NodeConfig, where: str) -> None:
    """``ConfigError``: the tablet that the file describes has more columns than the file allows."""
    if config.tablet is None:
        return
    try:
        limits_of(config).check_schema(config.tablet.schema)
    except SchemaMismatch as error:
        hint = "Describe fewer columns, or raise columns_max on every node."
        raise ConfigError(f"[tablet]: {error}", where=where, hint=hint) from error
