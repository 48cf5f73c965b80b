"""The messages with which a master gets a read index from the leading master, to know how fresh its own catalog is."""

from __future__ import annotations

import msgspec

READ_INDEX = "master.read_index"


class ReadIndexRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask for a read index of the system tablet. A majority confirms it after the request has arrived."""


class ReadIndexAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The answer to ``ReadIndexRequest``."""

    index: int  #: Committed. Every change that was acknowledged before the request is at or below it.
