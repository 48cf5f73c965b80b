"""Runs the writer of one tablet (``stelae.client.writer_core``) on asyncio, with a messenger and futures."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from stelae.client.leader_tracker import LeaderTracker
from stelae.client.messenger_ports import monotonic_s
from stelae.client.turns import check_loop
from stelae.client.writer_core import ATTEMPT_MS, WriterCore
from stelae.protocol.tablet_messages import WRITE, NoSuchTablet
from stelae.rows.operation_encoding import Operation
from stelae.spi.errors import PeerError, StelaeError
from stelae.spi.ids import ClientId, NodeId, TabletId
from stelae.spi.services import Buffer
from stelae.spi.write import OpResult
from stelae.wire.messenger import Response


class Caller(Protocol):
    """The part of the messenger that a writer needs."""

    def call(self, to: NodeId, kind: str, frames: Sequence[Buffer], *, deadline_ms: int) -> asyncio.Future[Response]:
        """Send a request. The future gets the answer or a ``StelaeError``."""
        ...


class TabletWriter:
    """Sends the writes of one client to one tablet. Implements ``WriterPorts``.

    Args:
        caller: the messenger.
        leader: chooses the node to send to; it learns of hints and failures.
        tablet_id, client_id, schema_version: fields of every request.
        rng: for the random part of pauses.
        defer: runs a call at the end of this turn of the loop.
    """

    def __init__(
        self,
        caller: Caller,
        leader: LeaderTracker,
        *,
        tablet_id: TabletId,
        client_id: ClientId,
        schema_version: int,
        rng: random.Random,
        defer: Callable[[Callable[[], None]], None],
    ) -> None:
        self._caller = caller
        self._loop = asyncio.get_running_loop()
        self.now_s = monotonic_s  # The clock of the loop stops while the machine is suspended.
        self.call_later = self._loop.call_later
        self.defer = defer
        self.is_gone: Callable[[], Awaitable[bool]] | None = None
        """Returns whether the tablet is gone for good. It is called when no member has a replica. ``None``: it cannot
        be found out, so operations are retried until their deadlines."""
        self._asking: asyncio.Task[None] | None = None
        self._core = WriterCore(
            self, leader, tablet_id=tablet_id, client_id=client_id, schema_version=schema_version, rng=rng
        )

    @property
    def pending(self) -> int:
        """Number of operations without an outcome."""
        return self._core.pending

    @property
    def retries(self) -> Mapping[str, int]:
        """How many times an operation was sent again, by the code of the error that made it necessary."""
        return self._core.retries

    def write(self, operation: Operation, timeout_s: float, *, follows: bool = False) -> asyncio.Future[OpResult]:
        """Send one operation. The future gets its outcome; see ``WriterCore.write`` for outcomes and errors.

        ``CallerError``: another event loop runs than the one on which this was made."""
        check_loop(self._loop)
        future: asyncio.Future[OpResult] = self._loop.create_future()
        self._core.write(operation, timeout_s, future, follows=follows)
        return future

    def close(self, error: StelaeError) -> None:
        """End every operation without an outcome with an error, and refuse new ones."""
        if self._asking is not None:
            self._asking.cancel()
        for waiter in self._core.close(error):
            if isinstance(waiter, asyncio.Future) and not waiter.cancelled():
                waiter.exception()  # Else asyncio logs an error that is never read. A caller that waits still gets it.

    # -- WriterPorts -----------------------------------------------------------------------------

    def send(self, to: NodeId, request: bytes, answered: Callable[[Buffer | StelaeError], None]) -> None:
        """Call the node. A call without an answer, or whose answer has no body, ends with an error.

        A request that cannot be sent ends with the reason."""
        try:
            future = self._caller.call(to, WRITE, [request], deadline_ms=ATTEMPT_MS)
        except StelaeError as error:
            self._loop.call_soon(answered, error)
            return
        future.add_done_callback(lambda done: answered(_answer_of(done)))

    def ask_if_gone(self, error: NoSuchTablet) -> None:
        """Call ``is_gone``, if it is set and no call of it is under way."""
        if self.is_gone is not None and self._asking is None:
            self._asking = self._loop.create_task(self._ask(self.is_gone, error))

    async def _ask(self, is_gone: Callable[[], Awaitable[bool]], error: NoSuchTablet) -> None:
        try:
            if await is_gone():
                self._core.tablet_gone(error)
        finally:
            self._asking = None


def _answer_of(done: asyncio.Future[Response]) -> Buffer | StelaeError:
    try:
        return memoryview(done.result().body[0])
    except StelaeError as error:
        return error
    except asyncio.CancelledError:
        return PeerError("the call was cancelled")
    except IndexError:
        return PeerError("the reply to a write has no body")
