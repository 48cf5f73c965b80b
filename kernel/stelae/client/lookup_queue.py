"""Sends the lookups of one tablet: the calls of one turn of the event loop share requests.

The first attempt is made within the turn's deferred calls, without a task, and so leaves with the messages of that
turn. If it fails, a task repeats the request as for any other read (``Connection.ask_any``)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias

from stelae.client.found_parts import FoundPage, FoundPart, FoundValues, found_pages
from stelae.client.leader_tracker import LeaderTracker
from stelae.client.lookup_requests import divided
from stelae.client.turns import check_loop
from stelae.protocol.codec import decode, encode
from stelae.protocol.lookup_messages import LOOKUP, LookupReply, LookupRequest
from stelae.protocol.tablet_messages import NoSuchTablet
from stelae.spi.errors import NotLeader, PeerError, RetryableError, StelaeError
from stelae.spi.ids import NodeId, TabletId
from stelae.spi.schema import Schema
from stelae.wire.messenger import Response
from stelae.wire.refusals import RemoteError

Followed: TypeAlias = Callable[[], LeaderTracker]
"""Returns the tracker that chooses the nodes to ask."""


SHARED_KEYS_MAX = 32
"""Calls share a request up to this number of keys.

If 64 callers shared one, each cycle would begin when the last one has its row, and client and server would wait for
each other. With two requests, the client asks for the next rows while the server reads those of the other request."""


class LookupPort(Protocol):
    """Sends the requests of a queue."""

    def call(self, node: NodeId, kind: str, body: bytes) -> asyncio.Future[Response]:
        """Send one request to one node, without a retry."""

    async def repeat(self, tracker: LeaderTracker, kind: str, body: bytes, deadline: float) -> Response:
        """Send a request until a node serves it, as ``Connection.ask_any`` does."""


class _LookupCall:
    """The keys of one caller that have no answer yet, and what was found for the others."""

    __slots__ = ("future", "keys", "parts")

    def __init__(self, keys: Sequence[bytes], future: asyncio.Future[list[FoundPart]]) -> None:
        self.keys = keys
        self.future = future
        self.parts: list[FoundPart] = []

    def take(self, part: FoundPart, count: int) -> bool:
        """Add what was found for the next keys. Return whether no key is left."""
        self.parts.append(part)
        if count < len(self.keys):
            self.keys = self.keys[count:]
            return False
        if not self.future.done():
            self.future.set_result(self.parts)
        return True

    def fail(self, error: Exception) -> None:
        """End the call with an error."""
        if not self.future.done():
            self.future.set_exception(error)


class _LookupGroup(NamedTuple):
    """The calls of one turn with the same time and the same deadline."""

    at: int | None
    deadline: float  #: In seconds of the event loop's clock.
    followed: Followed
    calls: list[_LookupCall]


class LookupQueue:
    """The lookups of one tablet.

    Args:
        port: sends the requests.
        defer: runs a call at the end of the turn.
        tablet_id: id of the tablet.
        schema: that the client knows.
    """

    def __init__(
        self, port: LookupPort, defer: Callable[[Callable[[], None]], None], tablet_id: TabletId, schema: Schema
    ):
        self._loop = asyncio.get_running_loop()
        self._port = port
        self._defer = defer
        self._tablet_id = tablet_id
        self._schema = schema
        self._groups: dict[tuple[int | None, float], _LookupGroup] = {}
        self._retries: set[asyncio.Task[None]] = set()
        self._error: StelaeError | None = None

    def add(
        self, keys: Sequence[bytes], at: int | None, timeout_s: float, followed: Followed
    ) -> asyncio.Future[list[FoundPart]]:
        """Look up 1 to ``LOOKUP_KEYS_MAX`` keys, and return the future with their rows, in the order of the keys.

        Args:
            keys: encoded keys.
            at: hybrid timestamp of the snapshot; ``None``: the latest rows.
            timeout_s: how long the request is repeated.
            followed: returns the tracker that chooses the nodes to ask.

        Raises:
            CallerError: another event loop runs than the one on which the queue was made.
        """
        check_loop(self._loop)
        future: asyncio.Future[list[FoundPart]] = self._loop.create_future()
        if self._error is not None:
            future.set_exception(self._error)
            return future
        group = self._groups.get((at, timeout_s))
        if group is None:
            if not self._groups:
                self._defer(self._flush)
            group = self._groups[at, timeout_s] = _LookupGroup(at, self._loop.time() + timeout_s, followed, [])
        group.calls.append(_LookupCall(keys, future))
        return future

    def close(self, error: StelaeError) -> None:
        """End all lookups with an error."""
        self._error = error
        groups, self._groups = self._groups, {}
        for group in groups.values():
            _fail(group.calls, error)
        for task in self._retries:
            task.cancel()

    def _flush(self) -> None:
        groups, self._groups = self._groups, {}
        for group in groups.values():
            for calls in divided(group.calls, _keys_of, SHARED_KEYS_MAX):
                self._send(group._replace(calls=calls))

    def _send(self, group: _LookupGroup) -> None:
        keys = tuple([key for call in group.calls for key in call.keys])
        tracker = group.followed()
        try:
            body = encode(LookupRequest(self._tablet_id, keys, self._schema.version, group.at))
            future = self._port.call(tracker.current, LOOKUP, body)
        except StelaeError as error:
            _fail(group.calls, error)
            return
        future.add_done_callback(partial(self._answered, group, tracker, body))

    def _answered(
        self, group: _LookupGroup, tracker: LeaderTracker, body: bytes, done: asyncio.Future[Response]
    ) -> None:
        try:
            answer = done.result()
        except (RetryableError, NotLeader, NoSuchTablet, RemoteError, asyncio.CancelledError) as error:
            if self._error is not None:
                _fail(group.calls, self._error)
            elif isinstance(error, asyncio.CancelledError):
                _fail(group.calls, PeerError("the lookup was cancelled"))
            else:
                task = asyncio.get_running_loop().create_task(self._repeat(group, tracker, body))
                self._retries.add(task)
                task.add_done_callback(partial(self._repeated, group))
        except StelaeError as error:
            _fail(group.calls, error)
        else:
            tracker.served()
            self._take(group, answer)

    async def _repeat(self, group: _LookupGroup, tracker: LeaderTracker, body: bytes) -> None:
        try:
            answer = await self._port.repeat(tracker, LOOKUP, body, group.deadline)
        except StelaeError as error:
            _fail(group.calls, error)
        else:
            self._take(group, answer)

    def _repeated(self, group: _LookupGroup, task: asyncio.Task[None]) -> None:
        """End the calls of a repetition that was cancelled. It may have been cancelled before its first step."""
        self._retries.discard(task)
        if task.cancelled():
            _fail(group.calls, self._error or PeerError("the lookup was cancelled"))

    def _take(self, group: _LookupGroup, answer: Response) -> None:
        """Pass the rows of an answer to the callers, and ask again for the keys without an answer."""
        try:
            reply = decode(answer.body[0], LookupReply)
            pages = found_pages(reply, answer.body[1:], self._schema)
        except (StelaeError, IndexError) as error:
            _fail(group.calls, PeerError(f"the reply to a lookup cannot be read: {error}"))
            return
        ids = self._schema.layout.ids if reply.ids is None else reply.ids
        rest = _take_values(group.calls, ids, reply.rows)
        for page in pages:
            rest = _take_page(rest, page)
        if rest and not reply.rows and not pages:
            _fail(rest, PeerError("the reply to a lookup has no rows"))
        elif rest:
            self._send(group._replace(calls=rest))


def _take_values(calls: Sequence[_LookupCall], ids: Sequence[int], rows: Sequence[Any]) -> list[_LookupCall]:
    """Pass rows in row form to the calls. Return those that have keys without an answer."""
    rest: list[_LookupCall] = []
    start = 0
    for call in calls:
        part = rows[start : start + len(call.keys)]
        start += len(part)
        if not part or not call.take(FoundValues(ids, part), len(part)):
            rest.append(call)
    return rest


def _take_page(calls: Sequence[_LookupCall], page: FoundPage) -> list[_LookupCall]:
    """Pass a page to the calls. Return those that have keys without an answer."""
    rest: list[_LookupCall] = []
    start = 0
    for call in calls:
        part = page.positions[start : start + len(call.keys)]
        start += len(part)
        if not part or not call.take(FoundPage(page.rows, part), len(part)):
            rest.append(call)
    return rest


def _keys_of(call: _LookupCall) -> Sequence[bytes]:
    return call.keys


def _fail(calls: Sequence[_LookupCall], error: Exception) -> None:
    for call in calls:
        call.fail(error)
