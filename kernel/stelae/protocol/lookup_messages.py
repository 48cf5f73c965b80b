"""The request for rows by key, and its answer. Keys are encoded (``stelae.rows.keys``).

A client asks for all keys of one turn of its loop and one tablet in one request. Few rows are returned in row form,
because Arrow would cost more for each of them than everything else. Many rows are returned as Arrow messages, because
values that are made one by one would cost more."""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack, unpack
from typing import Any

import msgspec

from stelae.spi.errors import Corrupt
from stelae.spi.ids import TabletId

LOOKUP = "tablet.lookup"

LOOKUP_KEYS_MAX = 1024
"""The most keys of one request. The server looks them up on its event loop if their rows are in memory."""

LOOKUP_REQUEST_BYTES = 1 << 20
"""A request takes no more keys once its keys reach this size. So a large key has a request of its own."""

LOOKUP_REPLY_BYTES = 1 << 20
"""An answer takes no more rows once its rows reach this size."""


class LookupRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask for the rows of keys of one tablet."""

    tablet_id: TabletId
    keys: tuple[bytes, ...]  #: 1 to ``LOOKUP_KEYS_MAX`` encoded keys, in any order.
    schema_version: int  #: The version that the client knows.
    #: The hybrid timestamp of the snapshot. ``None``: the leader returns rows as of a time after it got the request.
    at: int | None = None


class LookupReply(msgspec.Struct, frozen=True, array_like=True):
    """The answer to a ``LookupRequest``: the rows of the first keys, at least of one.

    The client asks again for the keys that are left. Each page of rows is a further frame of the answer: an Arrow
    message (``stelae.rows.arrow_page``) with the columns of the request's schema version."""

    #: For each of the first keys, the plain values of its row, or ``None``: it has no row. Decimals are text.
    rows: list[Any]
    #: Ids of the columns of the rows; ``None``: those of the request's schema version, in their order.
    ids: tuple[int, ...] | None = None
    #: For each page, the positions in it of the rows of the next keys (:func:`pack_positions`); none if ``ids`` is set.
    pages: tuple[bytes, ...] = ()


def pack_positions(positions: Sequence[int]) -> bytes:
    """Return the positions of the rows of keys in a page; -1: a key has no row."""
    return pack(f"<{len(positions)}i", *positions)


def unpack_positions(packed: bytes, row_count: int) -> Sequence[int]:
    """Return the positions of the rows of keys in a page of a number of rows.

    Raises:
        Corrupt: they are not positions of such a page.
    """
    if len(packed) % 4 or len(packed) < max(4, 4 * row_count):
        raise Corrupt(f"the positions of a page of {row_count} found rows have {len(packed)} bytes")
    positions = unpack(f"<{len(packed) // 4}i", packed)
    if min(positions) < -1 or max(positions) >= row_count:
        raise Corrupt(f"a page of {row_count} found rows has positions from {min(positions)} to {max(positions)}")
    return positions
