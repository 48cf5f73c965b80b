"""The requests of operators about the copies to and from a node: list, pause, resume, cancel, limit.

The constants are message kinds. A node of an older release does not know all of them."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from stelae.spi.ids import NodeId, TabletId

COPIES = "copy.list"
ORDER_COPIES = "copy.order"  #: ``OrderCopies``, answered with ``OrderedCopies``.
LIMIT_COPIES = "copy.limit"  #: ``LimitCopies``, answered with the ``CopyLimits`` that hold then.

HELD_MS_MIN, HELD_MS_MAX = 1_000, 86_400_000
"""Bounds of a pause, and of the time in which a cancelled copy does not begin again: one second to one day. Meanwhile a
source may keep its log for the copy, and masters wait for a paused one."""

BYTES_PER_S_MAX = 1 << 40
"""The highest limit of bytes per second."""


class ReportedCopyPhase(StrEnum):
    """What a copy does at the moment."""

    PREPARING = "PREPARING"  #: It looks for a source, and perhaps sets the old replica aside.
    FETCHING = "FETCHING"
    VERIFYING = "VERIFYING"  #: Everything has arrived, and is read and checked.
    INSTALLING = "INSTALLING"
    ENDING = "ENDING"


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
    #: Expected time until all bytes are there; ``None`` while it is unknown, and once they are.
    eta_ms: int | None
    phase: ReportedCopyPhase | None = None  #: ``None``: it waits.
    waits: bool = False  #: It has not begun: it waits for a slot, or for the end of a pause.
    paused: bool = False


class CopyLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a node in bytes per second. 0: no limit. ``None``: its transport cannot report a limit."""

    fetch_bytes_per_s_max: int | None  #: Of all copies to the node together.
    serve_bytes_per_s_max: int | None  #: Of all copies from the node together.


class CopiesReply(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to ``CopiesRequest``, in order of tablet ids."""

    copies: tuple[CopyLine, ...]
    limits: CopyLimits | None = None  #: ``None``: the node copies nothing, or is of an older release.
    paused: bool = False  #: All copies to the node are paused, also those that have not begun.
    cancelled: tuple[TabletId, ...] = ()  #: Copies that were cancelled and do not begin again yet.


class CopyOrder(StrEnum):
    """What an operator may order."""

    PAUSE = "PAUSE"
    RESUME = "RESUME"  #: Also lets a copy begin again that was cancelled.
    CANCEL = "CANCEL"


class OrderCopies(msgspec.Struct, frozen=True, kw_only=True):
    """Ask a node to pause, resume or cancel copies to it. It may be repeated."""

    order: CopyOrder
    tablet_id: TabletId | None  #: ``None``: all copies to the node.
    #: PAUSE: for how long. CANCEL: how long it may not begin again. ``HELD_MS_MIN`` to ``HELD_MS_MAX``.
    for_ms: int = HELD_MS_MIN


class OrderedCopies(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to ``OrderCopies``. The answer to CANCEL comes when the copies have ended."""

    changed: tuple[TabletId, ...]  #: Copies that the order was carried out for.
    same: tuple[TabletId, ...]  #: Copies that were so already.
    complete: tuple[TabletId, ...]  #: CANCEL: copies that were complete before.


class LimitCopies(msgspec.Struct, frozen=True, kw_only=True):
    """Change the limits of a node until it stops. ``None`` leaves a limit as it is; 0: no limit."""

    fetch_bytes_per_s_max: int | None = None
    serve_bytes_per_s_max: int | None = None
