"""Requests and messages as services see them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stelae.spi.errors import StelaeError
from stelae.spi.ids import IncarnationId, NodeId
from stelae.spi.services import Buffer
from stelae.wire.refusals import Fields, error_fields

if TYPE_CHECKING:
    from stelae.wire.connections import Inbound
    from stelae.wire.dispatch import Dispatcher


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A one-way message. Frames of 16 KiB and more are views that stay valid while referenced."""

    sender: NodeId
    sender_incarnation: IncarnationId
    kind: str
    body: Sequence[Buffer]
    fields: Fields


@dataclass(slots=True, kw_only=True, eq=False)
class Request:
    """One request: answered now or later, once, unless its caller gives up before.

    ``deadline_us`` is on this node's monotonic clock; ``body`` as in ``Message``.
    """

    sender: NodeId
    sender_incarnation: IncarnationId
    kind: str
    request_id: int
    deadline_us: int
    trace_id: str
    fields: Fields
    body: Sequence[Buffer]
    connection: Inbound
    dispatcher: Dispatcher
    bucket: int = 0
    open: bool = True
    cancelled: Callable[[], None] | None = None

    def reply(self, frames: Sequence[Buffer] = (), fields: Fields | None = None) -> bool:
        """Answer with a result; say whether it is sent.

        It is not when the request was answered before, was cancelled, or is past its deadline.
        Replies of one turn to one caller travel together.

        Raises:
            TooLarge: a frame, or their number, is above the limit; the request is still open.
        """
        return self.open and self.dispatcher.answer(self, frames, fields, is_error=False)

    def refuse(self, error: StelaeError) -> bool:
        """Answer with an error, which reaches the caller as one of its class; see ``reply``."""
        return self.open and self.dispatcher.answer(self, (), error_fields(error), is_error=True)

    def on_cancel(self, call: Callable[[], None]) -> None:
        """Run ``call`` if the caller gives up, vanishes, or the deadline passes unanswered."""
        self.cancelled = call
