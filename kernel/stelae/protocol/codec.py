"""Encodes and decodes the messages of this package: MessagePack of ``msgspec`` types."""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec

from stelae.spi.errors import CallerError
from stelae.spi.services import Buffer

_Message = TypeVar("_Message", bound=msgspec.Struct)
_ENCODER = msgspec.msgpack.Encoder()
_decoders: dict[type[msgspec.Struct], msgspec.msgpack.Decoder[Any]] = {}
_making = threading.Lock()


def encode(message: msgspec.Struct) -> bytes:
    """Encode a message. Raises ``CallerError`` if a value in it cannot be encoded."""
    try:
        return _ENCODER.encode(message)
    except (UnicodeEncodeError, OverflowError, TypeError) as error:
        raise CallerError(f"{type(message).__name__} cannot be sent: {error}") from error


def decode(data: Buffer, kind: type[_Message]) -> _Message:
    """Decode and validate a message. Raises ``CallerError`` if it is not of type ``kind``."""
    try:
        found: _Message = (_decoders.get(kind) or _decoder_of(kind)).decode(data)
    except (ValueError, RecursionError) as error:
        raise CallerError(f"malformed {kind.__name__}: {error}") from error
    return found


def _decoder_of(kind: type[msgspec.Struct]) -> msgspec.msgpack.Decoder[Any]:
    """Make the decoder of a type, on one thread at a time.

    In msgspec 0.22 the process crashes if two threads make the first decoder of a type at the same time."""
    with _making:
        return _decoders.setdefault(kind, msgspec.msgpack.Decoder(kind))
