"""The limits on rows and schemas that a node enforces.

They come from section ``[limits]`` of the node's file. The system tablet of the masters has its own: a record of the
catalog may be as large as an entry can be."""

from __future__ import annotations

from functools import partial

from stelae.host.ports import BatcherFactory
from stelae.host.settings import NodeConfig
from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.rows.batcher import OP_BYTES_MAX
from stelae.rows.limits import DEFAULTS, LimitSettings
from stelae.server.partition_bounds import batcher_of
from stelae.spi.errors import ConfigError, SchemaMismatch

_CATALOG = LimitSettings(cell_bytes_max=OP_BYTES_MAX)
"""A record of the catalog is one cell, and a wide table has a large record. A limit must never drop one record of a
batch that masters write."""


def limits_of(config: NodeConfig) -> LimitSettings:
    """Return section ``[limits]`` of a node's file, or the defaults."""
    found: LimitSettings | None = config.extra.get("limits")
    return found or DEFAULTS


def batchers_of(config: NodeConfig) -> BatcherFactory:
    """Return the function that makes the batchers of a node's tablets."""
    is_master = config.tablet is not None and config.tablet.id == SYSTEM_TABLET
    return partial(batcher_of, limits=_CATALOG if is_master else limits_of(config))


def check_tablet(config: NodeConfig, where: str) -> None:
    """Check section ``[tablet]`` against section ``[limits]``; ``where`` names the file in errors.

    Raises:
        ConfigError: the tablet has more columns than the file allows.
    """
    if config.tablet is None:
        return
    try:
        limits_of(config).check_schema(config.tablet.schema)
    except SchemaMismatch as error:
        hint = "Describe fewer columns, or raise columns_max on every node."
        raise ConfigError(f"[tablet]: {error}", where=where, hint=hint) from error
