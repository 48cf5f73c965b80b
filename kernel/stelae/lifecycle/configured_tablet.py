"""Compares the tablet in ``node.toml`` with the stored tablet of the node.

The section ``[tablet]`` says which tablet to create, and still describes it afterwards. If it contradicts the stored
tablet, the file is wrong, or the directory belongs to another cluster."""

from __future__ import annotations

from collections.abc import Sequence

from stelae.host.settings import TabletSettings
from stelae.spi.errors import ConfigError
from stelae.spi.schema import Schema


def check_configured(tablet: TabletSettings, stored: Sequence[bytes]) -> None:
    """Compare ``[tablet]`` with the schema versions of the stored tablet, ascending, each as ``Schema.to_bytes``.

    The section may describe the first or any later version, so the file need not be edited when the table is altered.
    Names, types, nullability, order and key are compared. Ids and defaults are not in the section.

    Raises ``ConfigError``, with both sides, if it is none of the versions."""
    schemas = [Schema.from_bytes(body) for body in stored]
    configured = schema_text(tablet.schema)
    if configured in map(schema_text, schemas):
        return
    versions = "; ".join(
        f"{schema_text(schema)} (version {schema.version})" for schema in dict.fromkeys((schemas[0], schemas[-1]))
    )
    raise ConfigError(
        f"[tablet] has the columns {configured}; the stored tablet {tablet.id} has {versions}",
        hint="Describe the stored tablet in [tablet]. To change its columns, alter the table while the node runs. "
        "For another table, choose another directory.",
    )


def schema_text(schema: Schema) -> str:
    """Return the columns and the key of a schema in words, without ids and defaults."""
    columns = ", ".join(f"{c.name} {c.type}{' (nullable)' if c.nullable else ''}" for c in schema.columns)
    return f"{columns}; key {', '.join(column.name for column in schema.key_layout.columns)}"
