"""Asks the leading master for a read index, and answers other masters that ask this one.

A read index is an index up to which everything is committed that was acknowledged before the question was put."""

from __future__ import annotations

import logging
from collections.abc import Callable

from stelae.protocol.codec import decode, encode
from stelae.protocol.read_index_messages import READ_INDEX, ReadIndexAnswer, ReadIndexRequest
from stelae.server.frames import only_frame
from stelae.server.master.core.events import AskReadIndex, ReadIndexAnswered
from stelae.server.master.driver.ports import IncomingRequest, MasterNode, PendingCall, SystemReplica
from stelae.spi.errors import PeerError, StelaeError, Unavailable

log = logging.getLogger(__name__)

READ_INDEX_MS = 1_000
"""Deadline of a question to the leading master; another one goes out before it."""


class LeaderReadIndex:
    """Read indexes of one master.

    Args:
        replica: returns the replica of the system tablet once it is loaded.
        take: takes each answer that this master gets.
    """

    def __init__(
        self, node: MasterNode, replica: Callable[[], SystemReplica | None], take: Callable[[ReadIndexAnswered], None]
    ) -> None:
        self._node = node
        self._replica = replica
        self._take = take

    def serve(self) -> None:
        """Register the handler."""
        self._node.messenger.serve(READ_INDEX, self._answer)

    def ask(self, effect: AskReadIndex, replica: SystemReplica) -> None:
        """Ask this replica if it leads, else the master that does. A question that fails is put again by the core."""
        node = self._node

        def confirmed(result: int | StelaeError) -> None:
            if not isinstance(result, StelaeError):
                self._take(ReadIndexAnswered(effect.asked, replica.applier.applied.index))

        def answered(call: PendingCall) -> None:
            if call.cancelled() or call.exception() is not None:
                return
            try:
                index = decode(b"".join(call.result().body), ReadIndexAnswer).index
            except StelaeError as error:
                log.warning("master %s gave no read index: %s", effect.leader, error)
            else:
                self._take(ReadIndexAnswered(effect.asked, index))

        if effect.leader == node.node_id:
            confirm_leadership(replica, confirmed)
        else:
            frames = [encode(ReadIndexRequest())]
            call = node.messenger.call(effect.leader, READ_INDEX, frames, deadline_ms=READ_INDEX_MS)
            call.add_done_callback(answered)

    def _answer(self, request: IncomingRequest) -> None:
        """Tell another master the last applied index, once a majority has confirmed that this one leads."""
        decode(only_frame(request), ReadIndexRequest)
        replica = self._replica()
        if replica is None:
            raise Unavailable("this master is starting")
        if replica.status.config.member(request.sender) is None:
            raise PeerError(f"node {request.sender} is not a member of the system tablet; only masters may ask this")

        def confirmed(result: int | StelaeError) -> None:
            if isinstance(result, StelaeError):
                request.refuse(result)
            else:
                request.reply([encode(ReadIndexAnswer(replica.applier.applied.index))])

        confirm_leadership(replica, confirmed)


def confirm_leadership(replica: SystemReplica, done: Callable[[int | StelaeError], None]) -> None:
    """Have a majority confirm that this replica leads; ``done`` once everything committed before is applied here.

    An error: it does not lead, or no entry of its term is committed yet."""
    replica.read_index(done)
