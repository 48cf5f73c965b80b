"""The messenger of a simulated node, for services: one-way messages, and requests with one answer.

As with the real messenger, a call ends once: with the first answer, or with an error if none arrives in time. A request
may arrive twice, and an answer may be lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Protocol, TypeAlias

import msgspec

from stelae.sim.masters.messenger import SimCall
from stelae.sim.node_links import FramesInFlight
from stelae.sim.process import Process
from stelae.spi.errors import DeadlineExceeded, PeerError, StelaeError
from stelae.spi.ids import IncarnationId, NodeId
from stelae.spi.services import Buffer
from stelae.wire.call_retries import Response
from stelae.wire.refusals import error_fields, error_of
from stelae.wire.settings import Lane

Handler: TypeAlias = Callable[["LinkRequest"], None]

ANSWER = ".answer"
"""Follows the kind of a request in the kind of its answer."""

SERVED, REFUSED = b"\x01", b"\x00"


@dataclass(frozen=True, slots=True)
class _Identity:
    incarnation_id: IncarnationId


class LinkRequest:
    """One request at its receiver: the part of ``Request`` that services use."""

    def __init__(self, kind: str, message: FramesInFlight, answer: Callable[[list[Buffer]], None]) -> None:
        self.kind = kind
        self.sender = message.sender
        self.body: Sequence[Buffer] = message.frames[1:]
        self._answer: Callable[[list[Buffer]], None] | None = answer

    def reply(self, frames: Sequence[Buffer] = ()) -> bool:
        """Answer the request. Return false if it was answered before."""
        return self._end([SERVED, *frames])

    def refuse(self, error: StelaeError) -> bool:
        """Answer with an error. Return false if the request was answered before."""
        return self._end([REFUSED, msgspec.msgpack.encode(error_fields(error))])

    def _end(self, frames: list[Buffer]) -> bool:
        send, self._answer = self._answer, None
        if send is not None:
            send(frames)
        return send is not None


class MessageLink(Protocol):
    """The links of a node, which carry one-way messages."""

    def on_message(self, kind: str, handler: Callable[[FramesInFlight], None]) -> None:
        """Register the handler of a kind of message."""

    def knows(self, node_id: NodeId) -> bool:
        """Return whether there is such a node."""

    def send(self, to: NodeId, kind: str, frames: Sequence[Buffer]) -> bool:
        """Send one message."""


class NodeMessenger:
    """The messenger of one run of a node's process."""

    def __init__(self, link: MessageLink, process: Process, incarnation: IncarnationId) -> None:
        self._link = link
        self._process = process
        self.identity = _Identity(incarnation)
        self._numbers = count(1)
        self._calls: dict[bytes, SimCall] = {}

    def on_message(self, kind: str, handler: Callable[[FramesInFlight], None]) -> None:
        """Register the handler of a one-way message."""
        self._link.on_message(kind, handler)

    def send(self, to: NodeId, kind: str, frames: Sequence[Buffer]) -> bool:
        """Send a one-way message. Return False if the network does not know the node."""
        return self._link.send(to, kind, frames)

    def serve(self, kind: str, handler: Handler, *, lane: Lane = Lane.BULK) -> None:
        """Register the handler of a request."""

        def arrived(message: FramesInFlight) -> None:
            if not message.frames:
                raise PeerError(f"a request {kind} without frames")

            def answer(frames: list[Buffer]) -> None:
                self._link.send(message.sender, f"{kind}{ANSWER}", [message.frames[0], *frames])

            request = LinkRequest(kind, message, answer)
            try:
                handler(request)
            except StelaeError as error:
                request.refuse(error)

        self._link.on_message(kind, arrived)

    def add_peer(self, node_id: NodeId, address: str) -> None:
        """Do nothing: the simulated network knows every node."""

    def connected(self, node_id: NodeId, lane: Lane) -> NodeId | None:
        """Return the node if messages to it may arrive."""
        return node_id if self._link.knows(node_id) else None

    def call(
        self, to: NodeId, kind: str, frames: Sequence[Buffer], *, deadline_ms: int, lane: Lane = Lane.BULK
    ) -> SimCall:
        """Send a request. The call ends with its answer or with an error."""
        number, call = next(self._numbers).to_bytes(8, "little"), SimCall()
        self._link.on_message(f"{kind}{ANSWER}", self._answered)
        self._calls[number] = call

        def late() -> None:
            self._calls.pop(number, None)
            call.end(DeadlineExceeded(f"no answer to {kind} within its deadline"))

        self._link.send(to, kind, [number, *frames])
        self._process.schedule(deadline_ms * 1_000, f"{kind}.deadline", late)
        return call

    def _answered(self, message: FramesInFlight) -> None:
        number, how, *frames = message.frames
        call = self._calls.pop(number, None)
        if call is None:
            return
        if how == SERVED:
            call.end(Response(sender=message.sender, body=frames, fields={}))
        else:
            call.end(error_of(msgspec.msgpack.decode(frames[0])))
