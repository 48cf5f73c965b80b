"""The tablet that ``node.toml`` describes, held against the one that the node has.

The section ``[tablet]`` says what to create. It goes on describing the tablet afterwards, so one that contradicts the
stored tablet is an error of the file, or a directory of another cluster."""

from __future__ import annotations

from collections.abc import Sequence

from stelae.host.settings import TabletSettings
from stelae.spi.errors import ConfigError
from stelae.spi.schema import Schema


def check_configured(tablet: TabletSettings, stored: Sequence[bytes]) -> None:
    """Compare ``[tablet]`` with the schema versions of the stored tablet, ascending, each as ``Schema.to_bytes``.

    The section may describe the tablet as it was created or as any later version has it: nobody has to edit the file
    when the table is altered. Names, types, nullability, order and key count; ids and defaults are not in the section.

    ``ConfigError``: it is none of the versions; both sides are named."""
    schemas = [Schema.from_bytes(body) for body in stored]
    mine = _text(tablet.schema)
    if mine in map(_text, schemas):
        return
    held = "; ".join(
        f"{_text(schema)} (version {schema.version})" for schema in dict.fromkeys((schemas[0], schemas[-1]))
    )
    raise ConfigError(
        f"[tablet] has the columns {mine}; the stored tablet {tablet.id} has {held}",
        hint="Describe the stored tablet in [tablet]; alter the table while it runs, to change its columns; "
        "for another table, choose another tablet.id.",
    )


def _text(schema: Schema) -> str:
    columns = ", ".join(f"{c.name} {c.type}{' (nullable)' if c.nullable else ''}" for c in schema.columns)
    return f"{columns}; key {', '.join(column.name for column in schema.key_layout.columns)}"
