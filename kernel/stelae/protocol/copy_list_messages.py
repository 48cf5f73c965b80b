"""The request of operators for the copies to a node that are in progress."""

from __future__ import annotations

import msgspec

from stelae.spi.ids import NodeId, TabletId

COPIES = "copy.list"


class CopiesRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask a node for the copies to it."""


class CopyLine(msgspec.Struct, frozen=True, kw_only=True):
    """One copy to the node that answers."""

    tablet_id: TabletId
    table_id: str
    leader: NodeId  #: It has asked for the copy.
    source: NodeId | None  #: The server that sends; ``None`` before the first one has answered, and between two.
    rows_only: bool  #: The node has the log, and gets the rows (a witness).
    bytes_done: int
    bytes_total: int  #: 0 while it is not known.
    bytes_fetched: int  #: Of this run; ``bytes_done`` also counts what earlier runs have stored.
    eta_ms: int | None  #: Expected time until all bytes are there; ``None`` while it is unknown.


class CopiesReply(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to ``CopiesRequest``, in order of tablet ids."""

    copies: tuple[CopyLine, ...]
