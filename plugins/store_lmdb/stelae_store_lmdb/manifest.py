"""The manifest: the bytes in the superblock that name the last flush of the environment that counts.

The environment may be ahead of the manifest. What later flushes wrote is removed when the store is opened. The manifest
also has the schemas, because rows may have schema versions whose entries the log no longer has. And it has the history
floor, below which versions may have been dropped, so that a restart does not serve reads below it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from stelae.spi.errors import Corrupt, FutureVersion
from stelae.spi.schema import Schema

_VERSION = 1


class LmdbManifest(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """The contents of the manifest."""

    format: int = _VERSION
    flush: int = 0  #: Number of the last flush that counts; 0: there is no environment.
    floor: int = 0  #: The history floor: versions below it may have been dropped.
    stamp: int = 0  #: The highest timestamp of any entry applied.
    schema_version: int = 0  #: Version of the schema in force; 0: the newest known one.
    schemas: tuple[Schema, ...] = ()


def encode_manifest(manifest: LmdbManifest) -> bytes:
    """Return the bytes of a manifest for the superblock."""
    return _ENCODER.encode(manifest)


def decode_manifest(data: bytes, directory: str) -> LmdbManifest:
    """Decode what :func:`encode_manifest` returned. No bytes mean an empty store.

    Raises:
        Corrupt: the bytes are not a manifest.
        FutureVersion: a later release wrote them.
    """
    if not data:
        return LmdbManifest()
    try:
        version = _FORMAT.decode(data)[0]
        if version != _VERSION:
            raise FutureVersion(f"the manifest has format {version}; this release knows {_VERSION}", path=directory)
        return _DECODER.decode(data)
    except (ValueError, IndexError, RecursionError) as error:
        raise Corrupt(f"not a manifest of the lmdb store: {error}", path=directory) from error


def known_schemas(manifest: LmdbManifest, schemas: Mapping[int, Schema]) -> dict[int, Schema]:
    """Return every schema version that the manifest or the superblock knows."""
    return {**schemas, **{schema.version: schema for schema in manifest.schemas}}


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(LmdbManifest)
_FORMAT = msgspec.msgpack.Decoder(list[Any])
