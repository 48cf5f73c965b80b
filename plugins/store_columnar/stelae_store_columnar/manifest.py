"""The manifest: the bytes in the superblock that name the blocks of a store.

It also has the schemas, because rows in blocks may have schema versions whose entries the log no longer has. And it has
the history floor, below which versions may have been dropped, so that a restart does not serve reads below it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from stelae.spi.errors import Corrupt, FutureVersion
from stelae.spi.schema import Schema

MANIFEST_VERSION = 1


class ManifestBlock(msgspec.Struct, frozen=True, array_like=True):
    """One block: its number, which is in the names of its files, and the comparable of its first key that is in use."""

    number: int
    start: int | bytes | None = None


class ColumnarManifest(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """The contents of a columnar store."""

    format: int = MANIFEST_VERSION
    next_number: int = 1  #: Number of the next block. No file has this number or a higher one.
    floor: int = 0  #: The history floor: versions below it may have been dropped.
    stamp: int = 0  #: The highest timestamp of any entry applied.
    schema_version: int = 0  #: Version of the schema in force; 0: the newest known one.
    schemas: tuple[Schema, ...] = ()
    level1: tuple[ManifestBlock, ...] = ()  #: They do not overlap.
    level0: tuple[ManifestBlock, ...] = ()  #: Oldest first.


def encode_manifest(manifest: ColumnarManifest) -> bytes:
    """Return the bytes of a manifest for the superblock."""
    return _ENCODER.encode(manifest)


def decode_manifest(data: bytes, directory: str) -> ColumnarManifest:
    """Decode what :func:`encode_manifest` returned. No bytes mean an empty store.

    Raises:
        Corrupt: the bytes are not a manifest.
        FutureVersion: a later release wrote them.
    """
    if not data:
        return ColumnarManifest()
    try:
        version = _FORMAT.decode(data)[0]
        if version != MANIFEST_VERSION:
            raise FutureVersion(
                f"the manifest has format {version}; this release knows {MANIFEST_VERSION}", path=directory
            )
        return _DECODER.decode(data)
    except (ValueError, IndexError, RecursionError) as error:
        raise Corrupt(f"not a manifest of the columnar store: {error}", path=directory) from error


def known_schemas(manifest: ColumnarManifest, schemas: Mapping[int, Schema]) -> dict[int, Schema]:
    """Return every schema version that the manifest or the superblock knows."""
    return {**schemas, **{schema.version: schema for schema in manifest.schemas}}


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(ColumnarManifest)
_FORMAT = msgspec.msgpack.Decoder(list[Any])
