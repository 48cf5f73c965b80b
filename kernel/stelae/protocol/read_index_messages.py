"""What a master asks the one that leads, to know how fresh its own catalog is."""

from __future__ import annotations

import msgspec

READ_INDEX = "master.read_index"


class ReadIndexRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask for a read index of the system tablet, confirmed by a majority after the request has come."""


class ReadIndexAnswer(msgspec.Struct, frozen=True, array_like=True):
    """``index``: of an entry that is committed, as is everything acknowledged before the request."""

    index: int
