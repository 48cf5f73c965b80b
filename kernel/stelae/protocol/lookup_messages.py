"""The request for rows by key, and its answer. Keys are encoded (``stelae.rows.keys``), and rows are in row form.

A client asks for all keys of one turn of its loop and one tablet in one request. Arrow would cost more for each of the
few rows than everything else."""

from __future__ import annotations

from typing import Any

import msgspec

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

    The client asks again for the keys that are left."""

    #: For each key, the plain values of its row, or ``None``: it has no row. Decimals are text.
    rows: list[Any]
    #: Ids of the columns of the rows; ``None``: those of the request's schema version, in their order.
    ids: tuple[int, ...] | None = None
