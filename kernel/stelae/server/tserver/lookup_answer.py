"""Builds the answer to a lookup. The keys are looked up in several steps.

An answer ends after ``LOOKUP_REPLY_BYTES`` of rows, and the client asks again for the rest. If all keys were looked up
first, a request for a thousand large rows would read all of them for each of its answers, and hold them in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from stelae.protocol.codec import encode
from stelae.protocol.lookup_messages import LOOKUP_REPLY_BYTES, LookupReply, LookupRequest, pack_positions
from stelae.rows.arrow_page import encoded_rows, plain_bytes
from stelae.rows.found_rows import as_batch, first_keys, plain_rows
from stelae.server.frames import Frames
from stelae.spi.schema import Schema
from stelae.spi.services import Buffer
from stelae.spi.store import FoundBatch, FoundRows

FIRST_KEYS = 32
"""The number of keys of the first step. The size of their rows says how many more fit."""

GROWTH = 32
"""The number of keys of a step is at most this multiple of the rows found before it: later rows may be larger."""

GROWTH_WITHOUT_ROWS = 8
"""And this multiple of the keys before it, if these have few rows."""

_encode_row = msgspec.msgpack.Encoder().encode


class LookupAnswer:
    """The rows of the first keys of a request.

    Rows of steps that the store returns as batches are sent as pages, unless the client does not know their schema.

    Args:
        asked: the request.
    """

    def __init__(self, asked: LookupRequest) -> None:
        self._asked = asked
        self._schema: Schema | None = None
        self._rows: list[msgspec.Raw] = []
        self._positions: list[bytes] = []
        self._pages: list[Buffer] = []
        self._keys = 0
        self._found = 0
        self._size_bytes = 0
        self._is_full = False

    @property
    def is_complete(self) -> bool:
        """Whether it has the rows of all keys, or takes no more."""
        return self._is_full or self._keys == len(self._asked.keys)

    @property
    def next_keys(self) -> Sequence[bytes]:
        """The keys to look up next, at least one, if the answer is not complete."""
        done = self._keys
        count = FIRST_KEYS
        if done:
            fitting = (LOOKUP_REPLY_BYTES - self._size_bytes) * done // self._size_bytes
            count = min(fitting + 1, max(GROWTH * self._found, GROWTH_WITHOUT_ROWS * done))
        return self._asked.keys[done : done + count]

    def add(self, found: FoundRows | FoundBatch) -> None:
        """Add the rows of ``next_keys``, as far as they fit. All rows of an answer have one schema version."""
        if self._schema is None:
            self._schema = found.schema
        elif found.schema.version != self._schema.version:
            self._is_full = True
            return
        if self._pages or (isinstance(found, FoundBatch) and self._is_known(found.schema)):
            self._add_page(as_batch(found))
        else:
            self._add_rows(plain_rows(found))

    def frames(self) -> Frames:
        """Return the frames of the answer: the encoded ``LookupReply``, and its pages."""
        assert self._schema is not None
        ids = None if self._is_known(self._schema) else self._schema.layout.ids
        return [encode(LookupReply(self._rows, ids, tuple(self._positions))), *self._pages]

    def _is_known(self, schema: Schema) -> bool:
        return schema.version == self._asked.schema_version

    def _add_rows(self, rows: Sequence[tuple[Any, ...] | None]) -> None:
        for row in rows:
            encoded = _encode_row(row)
            self._rows.append(msgspec.Raw(encoded))
            self._found += row is not None
            if self._has_grown(1, len(encoded)):
                return

    def _add_page(self, found: FoundBatch) -> None:
        size_bytes = plain_bytes(found.rows)
        while size_bytes > 2 * LOOKUP_REPLY_BYTES and len(found.positions) > 1:
            found = first_keys(found, max(1, len(found.positions) * LOOKUP_REPLY_BYTES // size_bytes))
            size_bytes = plain_bytes(found.rows)
        self._positions.append(pack_positions(found.positions))
        self._pages.append(encoded_rows(found.rows))
        self._found += len(found.rows)
        self._has_grown(len(found.positions), size_bytes)

    def _has_grown(self, keys: int, size_bytes: int) -> bool:
        """Count what was added. Return whether the answer takes no more."""
        self._keys += keys
        self._size_bytes += size_bytes
        self._is_full = self._size_bytes >= LOOKUP_REPLY_BYTES
        return self._is_full
