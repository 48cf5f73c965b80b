"""Sends requests between masters, tablet servers and clients over the simulated network.

As with the real messenger, every call ends once: with the first answer, or with an error if no answer arrives in time.
A request may arrive twice, and an answer may be lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from stelae.server.master.driver.ports import IncomingRequest
from stelae.sim.masters.process_endpoint import ProcessEndpoint
from stelae.sim.node_links import FramesInFlight
from stelae.sim.process import Process
from stelae.spi.errors import DeadlineExceeded, StelaeError, Unavailable
from stelae.spi.ids import NodeId
from stelae.spi.services import Buffer
from stelae.wire.call_retries import Response
from stelae.wire.refusals import Fields, UnknownKind, error_fields, error_of

CallAnswer: TypeAlias = bytes | Fields
"""The body of an answer, or the fields of an error."""

Answered: TypeAlias = Callable[[CallAnswer], None]
Handler: TypeAlias = Callable[[IncomingRequest], None]

UNREACHABLE_US = 5_000
"""Time after which a call to a node that is down fails."""


class Router(Protocol):
    """Carries requests to the nodes of a run."""

    def is_up(self, to: NodeId) -> bool:
        """Return true if a process runs there, so that a connection is possible."""

    def carry(
        self, source: ProcessEndpoint, sender: NodeId, to: NodeId, kind: str, body: bytes, answered: Answered
    ) -> None:
        """Carry one request. ``answered`` runs at the sender for each answer that arrives."""


class SimRequest:
    """One request at its receiver (``IncomingRequest``)."""

    def __init__(self, sender: NodeId, kind: str, body: bytes, answer: Answered) -> None:
        self.sender = sender
        self.kind = kind
        self.body: Sequence[Buffer] = (body,)
        self._answer: Answered | None = answer

    def reply(self, frames: Sequence[Buffer] = ()) -> bool:
        """Answer the request. Return false if it was answered before."""
        return self._end(b"".join(bytes(frame) for frame in frames))

    def refuse(self, error: StelaeError) -> bool:
        """Answer with an error. Return false if the request was answered before."""
        return self._end(error_fields(error))

    def _end(self, answer: CallAnswer) -> bool:
        send, self._answer = self._answer, None
        if send is not None:
            send(answer)
        return send is not None


class SimCall:
    """One call at its sender (``PendingCall``)."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[SimCall], object]] = []
        self._result: Response | StelaeError | None = None

    def add_done_callback(self, call: Callable[[SimCall], object], /) -> None:
        """Call ``call`` once this call has ended."""
        self._callbacks.append(call)

    def cancelled(self) -> bool:
        """Return false: a simulated call is never cancelled."""
        return False

    def exception(self) -> BaseException | None:
        """Return the error with which the call has ended, or ``None``."""
        return self._result if isinstance(self._result, StelaeError) else None

    def result(self) -> Response:
        """Return the answer of a call that has ended without an error."""
        assert isinstance(self._result, Response)
        return self._result

    def end(self, result: Response | StelaeError) -> None:
        """End the call, unless it has ended already."""
        if self._result is None:
            self._result = result
            for call in self._callbacks:
                call(self)


class SimMessenger:
    """The messenger of one run of a process (``MasterMessenger``).

    Args:
        answered: called with the kind of the request after each answer that was sent.

    Attributes:
        one_way: the handlers of one-way messages, which arrive over the links of the consensus.
    """

    def __init__(
        self,
        node_id: NodeId,
        endpoint: ProcessEndpoint,
        process: Process,
        router: Router,
        answered: Callable[[str], None],
    ) -> None:
        self._node_id = node_id
        self._endpoint = endpoint
        self._process = process
        self._router = router
        self._answered = answered
        self._handlers: dict[str, Handler] = {}
        self.one_way: dict[str, Callable[[FramesInFlight], None]] = {}
        self._peers: set[NodeId] = set()

    def serve(self, kind: str, handler: Handler) -> None:
        """Use ``handler`` for requests of a kind."""
        self._handlers[kind] = handler

    def on_message(self, kind: str, handler: Callable[[FramesInFlight], None]) -> None:
        """Use ``handler`` for one-way messages of a kind."""
        self.one_way[kind] = handler

    def add_peer(self, node_id: NodeId, address: str) -> None:
        """Allow calls to a node."""
        self._peers.add(node_id)

    def remove_peer(self, node_id: NodeId) -> None:
        """Allow no more calls to a node."""
        self._peers.discard(node_id)

    def learn_peer(self, node_id: NodeId, address: str = "") -> bool:
        """Do nothing: consensus messages between masters go over another network, which knows every node."""
        return False

    def forget_peer(self, node_id: NodeId) -> None:
        """Do nothing: no peer is ever learned."""

    def dispatch(self, sender: NodeId, kind: str, body: bytes, answered: Answered) -> None:
        """Process a request that has arrived. ``answered`` gets the answer when it leaves this process."""

        def answer(result: CallAnswer) -> None:
            self._endpoint.emit(lambda: answered(result))
            self._answered(kind)

        request = SimRequest(sender, kind, body, answer)
        handler = self._handlers.get(kind)
        if handler is None:
            request.refuse(UnknownKind(f"no service for messages of kind {kind!r} on this node"))
            return
        try:
            handler(request)
        except StelaeError as error:
            request.refuse(error)

    def call(self, to: NodeId, kind: str, frames: Sequence[Buffer], *, deadline_ms: int) -> SimCall:
        """Send a request. The call ends with its answer or with an error."""
        call, process = SimCall(), self._process
        body = b"".join(bytes(frame) for frame in frames)

        def answered(answer: CallAnswer) -> None:
            if process.alive:
                response = (
                    Response(sender=to, body=[answer], fields={}) if isinstance(answer, bytes) else error_of(answer)
                )
                call.end(response)

        if to not in self._peers or not self._router.is_up(to):
            error = Unavailable(f"node {to} is not connected")
            process.schedule(UNREACHABLE_US, f"{kind} fails", lambda: call.end(error))
            return call
        self._endpoint.emit(lambda: self._router.carry(self._endpoint, self._node_id, to, kind, body, answered))
        late = DeadlineExceeded(f"no answer to {kind} within its deadline")
        process.schedule(deadline_ms * 1_000, f"{kind} deadline", lambda: call.end(late))
        return call
