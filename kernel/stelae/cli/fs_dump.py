"""Conversion of metadata files to plain values, for ``stelae fs dump``."""

from __future__ import annotations

from typing import Any

import msgspec

from stelae.host.consensus_metadata import CONSENSUS
from stelae.host.directory_layout import DirectoryLayout, tablet_names
from stelae.host.instance import CLOCK, INSTANCE, read_clock
from stelae.host.metadata_files import FileKind, decode
from stelae.host.superblock import SUPERBLOCK, Superblock
from stelae.lifecycle.copy_stage import STAGE, manifest_of
from stelae.lifecycle.masters_file import MASTERS_FILE
from stelae.partition.tablet_partition import TabletPartition
from stelae.rows.plain_schema import schema_to_plain
from stelae.spi.errors import Foreign, StelaeError
from stelae.spi.schema import Schema
from stelae.spi.services import Files

_KINDS: tuple[FileKind[Any], ...] = (INSTANCE, CLOCK, SUPERBLOCK, CONSENSUS, STAGE, MASTERS_FILE)


def dump_files(files: Files, path: str, *, directory: bool) -> list[dict[str, Any]]:
    """Return ``{"path", "kind", "version", "record"}`` for each file, or ``{"path", "error"}`` if it cannot be read."""
    paths = _paths_below(files, DirectoryLayout(path)) if directory else [path]
    return [_dump(files, each) for each in paths]


def has_metadata(files: Files, root: str) -> bool:
    """Return whether a directory has any metadata file of a node, whether it can be read or not."""
    return any(files.exists(path) for path in _paths_below(files, DirectoryLayout(root)))


def print_dump(found: list[dict[str, Any]]) -> None:
    """Print the result of :func:`dump_files` as text."""
    for entry in found:
        if "error" in entry:
            print(f"{entry['path']}: UNREADABLE: {entry['error']}")
            continue
        print(f"{entry['path']}: {entry['kind']}, format {entry['version']}")
        for name, value in entry["record"].items():
            print(f"  {name}: {value}")


def _paths_below(files: Files, layout: DirectoryLayout) -> list[str]:
    paths = [path for path in (layout.instance, layout.clock, layout.masters) if files.exists(path)]
    if files.exists(layout.superblocks):
        paths += [layout.superblock_of(t) for t in tablet_names(files, layout.superblocks)]
    if files.exists(layout.consensus):
        paths += [layout.consensus_of(t) for t in tablet_names(files, layout.consensus)]
    if files.exists(layout.copying):
        paths += [manifest_of(layout, t) for t in tablet_names(files, layout.copying)]
    return paths or [layout.instance]


def _dump(files: Files, path: str) -> dict[str, Any]:
    try:
        data = files.read_bytes(path)
        kind = next((kind for kind in _KINDS if data.startswith(kind.magic)), None)
        if kind is None:
            known = ", ".join(kind.name for kind in _KINDS)
            fact = f"not a metadata file of a node ({known}): it begins with {data[:4]!r}"
            raise Foreign(fact, path=path)
        record = read_clock(data, path) if kind is CLOCK else decode(kind, data, path)
        plain = _plain(record)
    except (StelaeError, OSError) as error:
        return {"path": path, "error": str(error)}
    return {"path": path, "kind": kind.name, "version": kind.version, "record": plain}


def _plain(record: msgspec.Struct) -> Any:
    """Return a record as plain values. Bytes become hexadecimal text, schemas their columns, a partition a text."""
    plain = _without_bytes(msgspec.to_builtins(record, builtin_types=(bytes,)))
    if isinstance(record, Superblock):
        schemas = [Schema.from_bytes(body) for body in record.schemas]
        plain["schemas"] = [schema_to_plain(schema) for schema in schemas]
        if record.partition.scheme and schemas:  # A tombstone keeps no schemas.
            partition = TabletPartition(schemas[-1], record.partition.scheme, record.partition.hash_buckets)
            plain["partition"]["rows"] = str(partition)
    return plain


def _without_bytes(value: Any) -> Any:
    match value:
        case bytes():
            return value.hex()
        case dict():
            return {name: _without_bytes(item) for name, item in value.items()}
        case list() | tuple():
            return [_without_bytes(item) for item in value]
        case _:
            return value
