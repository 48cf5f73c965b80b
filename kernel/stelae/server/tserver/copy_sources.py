"""The sources of copies on other nodes, as the target of a copy reaches them: over the lane for bulk.

Implements ``lifecycle.copy_environment.CopySources``, and ``CopyNetwork`` for the transport."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty

from stelae.host.node import Node
from stelae.lifecycle.offer_check import check_session
from stelae.protocol.codec import decode, encode
from stelae.protocol.copy_messages import ASK_COPY, BEGIN_COPY, END_COPY, AskSource, BeginCopy, EndCopy, decode_answer
from stelae.protocol.member_messages import CONFIG, ConfigRequest, ConfigView
from stelae.server.tserver.loop_calls import Answers, LoopCalls, ThreadCalls
from stelae.spi.copy import CopyNetwork, KeepAlive, SourceAnswer, SourceRequest
from stelae.spi.copy_plan import CopyOffer
from stelae.spi.errors import CallerError, DeadlineExceeded, Overloaded, PeerError, StelaeError, Unavailable
from stelae.spi.ids import NodeId, TabletId
from stelae.spi.members import Member
from stelae.wire.messenger import Response
from stelae.wire.settings import Lane

BEGIN_MS_MAX = 300_000
"""How long a source may take to describe its snapshot, in milliseconds. It reads its replica once."""

BEGIN_DEADLINE_MS = 15_000
"""The deadline of one request for a session. It may be lost, and so may its answer. Then it is repeated: a source
returns the session that is open already."""

BEGIN_AGAIN_US = 1_000_000
"""The pause before a request is repeated whose source is still taking the snapshot for an earlier one."""

ASK_DEADLINE_MS = 30_000
DECODED_BYTES_MAX = 64 << 10
"""The largest offer that is decoded on the event loop, in bytes: some hundred items. An offer may have 100 000."""

CONNECT_US_MAX = 5_000_000
CONNECT_LOOK_US = 20_000


class MessengerSources:
    """Reaches sources through the node's messenger. Constructed and used on the event loop.

    ``calls`` makes the way from the threads that fetch to the event loop."""

    def __init__(self, node: Node, calls: Callable[[], ThreadCalls] = LoopCalls) -> None:
        self._node = node
        self._calls = calls()

    def begin(
        self,
        source: Member,
        tablet_id: TabletId,
        done: Callable[[CopyOffer | Exception], None],
        *,
        as_export: bool = False,
        ask_again: Callable[[], bool] = lambda: True,
    ) -> None:
        """Ask a source to open a session, once there is a connection to it.

        A request without an answer is repeated for ``BEGIN_MS_MAX``, as long as ``ask_again`` allows it.
        ``as_export``: the rows as of now, in the form that every store engine reads, and no files.

        ``done`` is called once, with an offer whose session was checked and whose snapshot was not, or with a
        ``StelaeError``: ``Unavailable`` without a connection, ``PeerError`` if the offer cannot be used, or the error
        of the source."""
        node = self._node
        until_us = node.turns.now_us() + CONNECT_US_MAX
        last_us = until_us + BEGIN_MS_MAX * 1000
        address = "" if node.messenger.connected(source.node_id, Lane.BULK) is not None else source.address
        try:
            # It may be a leader that is not in a config here yet, and that leads no more before the copy ends.
            node.peers.members.reach(source.node_id, address, last_us)
        except StelaeError as error:
            done(error)
            return
        store = node.config.store
        begin = BeginCopy(
            tablet_id=tablet_id,
            store_engine=store.name,
            store_format=store.engine.files_format,
            durable_store="durable_flush" in store.engine.capabilities,
            as_export=as_export,
        )

        def within_time() -> bool:
            return node.turns.now_us() < last_us and ask_again()

        ask = partial(self._ask, source.node_id, begin, within_time, done)
        self._when_connected(source.node_id, until_us, ask)

    def keep_alive(self, offer: CopyOffer, done: Callable[[Exception | None], None]) -> None:
        """Restart the time to live of a session, and keep the links to its source as long.

        The answer is waited for as long as the next one is not due."""
        node = self._node
        node.peers.members.reach(offer.source, "", node.turns.now_us() + offer.ttl_ms * 1000)
        body = encode(AskSource(request=KeepAlive(offer.session)))
        deadline_ms = _bounded(self._node, min(ASK_DEADLINE_MS, max(offer.ttl_ms // 3, 1)))
        call = self._node.messenger.call(offer.source, ASK_COPY, [body], deadline_ms=deadline_ms, lane=Lane.BULK)

        def answered(call: asyncio.Future[Response]) -> None:
            found = _result_of(call)
            done(found if isinstance(found, StelaeError) else None)

        call.add_done_callback(answered)

    def committed_index(self, offer: CopyOffer, tablet_id: TabletId, done: Callable[[int | Exception], None]) -> None:
        """Ask a source up to which index it knows a tablet's log as committed. ``done`` is called once."""
        body = encode(ConfigRequest(tablet_id, leader_only=False))
        deadline_ms = _bounded(self._node, ASK_DEADLINE_MS)
        call = self._node.messenger.call(offer.source, CONFIG, [body], deadline_ms=deadline_ms)

        def answered(call: asyncio.Future[Response]) -> None:
            found = _result_of(call)
            if isinstance(found, Response):
                try:
                    done(decode(found.body[0], ConfigView).commit)
                except (StelaeError, IndexError) as error:
                    done(PeerError(f"{offer.source} does not tell its committed index: {error}"))
            else:
                done(found)

        call.add_done_callback(answered)

    def end(self, offer: CopyOffer) -> None:
        """End a session. Harmless if it has ended. The message may be lost."""
        body = encode(EndCopy(session=offer.session))
        deadline_ms = _bounded(self._node, ASK_DEADLINE_MS)
        call = self._node.messenger.call(offer.source, END_COPY, [body], deadline_ms=deadline_ms, lane=Lane.BULK)
        call.add_done_callback(_result_of)

    def network(self) -> CopyNetwork:
        """Return the way to the sources for one run of a transport."""
        return MessengerNetwork(self._node, self._calls)

    def stop(self) -> None:
        """Let no copy wait for this node's loop any more."""
        self._calls.stop()

    def _when_connected(self, source: NodeId, until_us: int, go_on: Callable[[], None]) -> None:
        """Go on when the lane is connected, or when it was waited for long enough: the call then fails at once."""
        turns = self._node.turns
        if self._node.messenger.connected(source, Lane.BULK) is not None or turns.now_us() >= until_us:
            go_on()
            return
        turns.call_at(turns.now_us() + CONNECT_LOOK_US, lambda: self._when_connected(source, until_us, go_on))

    def _ask(
        self,
        source: NodeId,
        begin: BeginCopy,
        ask_again: Callable[[], bool],
        done: Callable[[CopyOffer | Exception], None],
        *,
        again: bool = False,
    ) -> None:
        """Ask for a session, again and again while no answer comes. ``again``: an earlier request had no answer."""
        turns = self._node.turns
        deadline_ms = _bounded(self._node, BEGIN_DEADLINE_MS)
        call = self._node.messenger.call(source, BEGIN_COPY, [encode(begin)], deadline_ms=deadline_ms, lane=Lane.BULK)

        def answered(call: asyncio.Future[Response]) -> None:
            found = _result_of(call)
            if isinstance(found, Response):
                self._begun(found, begin.tablet_id, done)
            elif isinstance(found, DeadlineExceeded) and ask_again():
                self._ask(source, begin, ask_again, done, again=True)
            elif isinstance(found, Overloaded) and again and ask_again():
                repeat = partial(self._ask, source, begin, ask_again, done, again=True)
                turns.call_at(turns.now_us() + BEGIN_AGAIN_US, repeat)
            else:
                done(found)

        call.add_done_callback(answered)

    def _begun(self, found: Response, tablet_id: TabletId, done: Callable[[CopyOffer | Exception], None]) -> None:
        if sum(memoryview(frame).nbytes for frame in found.body) > DECODED_BYTES_MAX:
            # The copy that asks has a thread of this pool, which waits for the answer.
            self._node.copies.run(f"tablet/{tablet_id}", partial(_checked, found, found.sender), done)
            return
        try:
            offer = _checked(found, found.sender)
        except StelaeError as error:
            done(error)
        else:
            done(offer)


class MessengerNetwork:
    """A ``CopyNetwork`` over the node's messenger. One thread asks and waits; answers arrive on the event loop."""

    def __init__(self, node: Node, calls: ThreadCalls) -> None:
        self._node = node
        self._calls = calls
        self._answers: Answers = calls.queue()

    def ask(self, ticket: int, source: NodeId, request: SourceRequest) -> None:
        """Send a request over the loop."""
        if not self._calls.post(lambda: self._send(ticket, source, request)):
            self._answers.put((ticket, Unavailable("the node has stopped")))

    def wait(self, timeout_us: int) -> Sequence[tuple[int, SourceAnswer | StelaeError]]:
        """Block until there is an answer, or the time has passed."""
        found = []
        try:
            found.append(self._answers.get(timeout=timeout_us / 1_000_000))
            while True:
                found.append(self._answers.get_nowait())
        except Empty:
            return found

    def _send(self, ticket: int, source: NodeId, request: SourceRequest) -> None:
        try:
            body = encode(AskSource(request=request))
            deadline_ms = _bounded(self._node, ASK_DEADLINE_MS)
            call = self._node.messenger.call(source, ASK_COPY, [body], deadline_ms=deadline_ms, lane=Lane.BULK)
        except StelaeError as error:
            self._answers.put((ticket, error))
            return
        call.add_done_callback(lambda call: self._answers.put((ticket, _answer(call))))


def _bounded(node: Node, deadline_ms: int) -> int:
    return min(deadline_ms, node.config.wire.deadline_ms_max)


def _checked(response: Response, source: NodeId) -> CopyOffer:
    return check_session(_offer(response), source)


def _offer(response: Response) -> CopyOffer:
    if len(response.body) != 1:
        raise PeerError(f"an offer of a copy has {len(response.body)} frames")
    try:
        return decode(response.body[0], CopyOffer)
    except CallerError as error:
        raise PeerError(str(error)) from error


def _answer(call: asyncio.Future[Response]) -> SourceAnswer | StelaeError:
    found = _result_of(call)
    if not isinstance(found, Response):
        return found
    try:
        return decode_answer(list(found.body))
    except CallerError as error:
        return PeerError(f"{found.sender} answers a copy with something else: {error}")


def _result_of(call: asyncio.Future[Response]) -> Response | StelaeError:
    """Return the result of a call that is done. A call that was cancelled has an error too."""
    if call.cancelled():
        return Unavailable("the node is stopping")
    error = call.exception()
    if error is None:
        return call.result()
    return error if isinstance(error, StelaeError) else Unavailable(f"the call failed: {error}")
