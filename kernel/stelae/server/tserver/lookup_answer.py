"""Builds the answer to a lookup. The keys are looked up in several steps.

An answer ends after ``LOOKUP_REPLY_BYTES`` of rows, and the client asks again for the rest. If all keys were looked up
first, a request for a thousand large rows would read all of them for each of its answers, and hold them in memory."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stelae.protocol.codec import encode
from stelae.protocol.lookup_messages import LOOKUP_REPLY_BYTES, LookupReply, LookupRequest
from stelae.spi.schema import Schema
from stelae.spi.store import FoundRows

FIRST_KEYS = 32
"""The number of keys of the first step. The size of their rows says how many more fit."""

GROWTH = 8
"""The number of keys of a step is at most this multiple of the keys before it: later rows may be larger."""

_encode_row = msgspec.msgpack.Encoder().encode


class LookupAnswer:
    """The rows of the first keys of a request.

    Args:
        asked: the request.
    """

    def __init__(self, asked: LookupRequest) -> None:
        self._asked = asked
        self._schema: Schema | None = None
        self._rows: list[msgspec.Raw] = []
        self._size_bytes = 0
        self._is_full = False

    @property
    def is_complete(self) -> bool:
        """Whether it has the rows of all keys, or takes no more."""
        return self._is_full or len(self._rows) == len(self._asked.keys)

    @property
    def next_keys(self) -> Sequence[bytes]:
        """The keys to look up next, at least one, if the answer is not complete."""
        done = len(self._rows)
        count = FIRST_KEYS
        if done:
            fitting = (LOOKUP_REPLY_BYTES - self._size_bytes) * done // self._size_bytes
            count = min(fitting + 1, GROWTH * done)
        return self._asked.keys[done : done + count]

    def add(self, found: FoundRows) -> None:
        """Add the rows of ``next_keys``, as far as they fit. All rows of an answer have one schema version."""
        if self._schema is None:
            self._schema = found.schema
        elif found.schema.version != self._schema.version:
            self._is_full = True
            return
        for row in found.rows:
            encoded = _encode_row(row)
            self._size_bytes += len(encoded)
            self._rows.append(msgspec.Raw(encoded))
            if self._size_bytes >= LOOKUP_REPLY_BYTES:
                self._is_full = True
                return

    def encoded(self) -> bytes:
        """Return the encoded ``LookupReply``."""
        assert self._schema is not None
        is_known = self._schema.version == self._asked.schema_version
        return encode(LookupReply(self._rows, None if is_known else self._schema.layout.ids))
