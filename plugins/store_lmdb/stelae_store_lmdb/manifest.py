"""The manifest: which flush of the environment a superblock stands for.

The environment may be ahead of it: what later flushes wrote is taken back when it is opened. The manifest carries the
schemas, too: rows may be of versions whose entries the log no longer has. And the history floor behind which versions
may have been dropped, so that no restart makes an older read look possible again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from stelae.spi.errors import Corrupt, FutureVersion
from stelae.spi.schema import Schema

_VERSION = 1


class Manifest(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """What a store is made of."""

    format: int = _VERSION
    flush: int = 0  #: The last flush of the environment that counts; 0: none, there is no environment.
    floor: int = 0  #: History behind it may be gone.
    stamp: int = 0  #: The highest timestamp of any entry applied.
    schema_version: int = 0  #: In force; 0: the newest that is known.
    schemas: tuple[Schema, ...] = ()


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the bytes for the superblock."""
    return _ENCODER.encode(manifest)


def decode_manifest(data: bytes, directory: str) -> Manifest:
    """Read what :func:`encode_manifest` wrote; of nothing: an empty store. ``Corrupt``, ``FutureVersion``."""
    if not data:
        return Manifest()
    try:
        version = _FORMAT.decode(data)[0]
        if version != _VERSION:
            raise FutureVersion(f"the manifest has format {version}; this release knows {_VERSION}", path=directory)
        return _DECODER.decode(data)
    except (ValueError, IndexError, RecursionError) as error:
        raise Corrupt(f"not a manifest of the lmdb store: {error}", path=directory) from error


def known_schemas(manifest: Manifest, schemas: Mapping[int, Schema]) -> dict[int, Schema]:
    """Return every schema version that the manifest or the superblock knows."""
    return {**schemas, **{schema.version: schema for schema in manifest.schemas}}


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Manifest)
_FORMAT = msgspec.msgpack.Decoder(list[Any])
