"""The writer of one tablet on asyncio: ``stelae.client.writer_core`` with a loop, a messenger and futures."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from stelae.client.leader import LeaderTracker
from stelae.client.writer_core import ATTEMPT_MS, WriterCore
from stelae.protocol.tablet_messages import WRITE, NoSuchTablet
from stelae.rows.operations import Operation
from stelae.spi.errors import PeerError, StelaeError
from stelae.spi.ids import ClientId, NodeId, TabletId
from stelae.spi.services import Buffer
from stelae.spi.write import OpResult
from stelae.wire.messenger import Response


class Caller(Protocol):
    """What of the messenger a client uses."""

    def call(self, to: NodeId, kind: str, frames: Sequence[Buffer], *, deadline_ms: int) -> asyncio.Future[Response]:
        """Send a request; the future gets the answer or a ``StelaeError``."""
        ...


class TabletWriter:
    """Sends the writes of one client to one tablet. Implements ``WriterPorts``.

    Args:
        caller: the messenger.
        leader: whom to ask; told of hints and failures.
        tablet_id, client_id, schema_version: what the operations are for.
        rng: for the jitter of pauses.
        defer: runs a call when this turn of the loop is over.
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
        self.now_s = self._loop.time
        self.call_later = self._loop.call_later
        self.defer = defer
        self.is_gone: Callable[[], Awaitable[bool]] | None = None
        """Says whether the tablet is gone for good; asked when no member has a replica. Unset: nobody knows."""
        self._asking: asyncio.Task[None] | None = None
        self._core = WriterCore(
            self, leader, tablet_id=tablet_id, client_id=client_id, schema_version=schema_version, rng=rng
        )

    @property
    def pending(self) -> int:
        """Operations that are not answered yet."""
        return self._core.pending

    @property
    def retries(self) -> int:
        """How many times operations had to be sent again."""
        return self._core.retries

    def write(self, operation: Operation, timeout_s: float, *, follows: bool = False) -> asyncio.Future[OpResult]:
        """Send one operation; the future gets its outcome. See ``WriterCore.write`` for outcomes and errors."""
        future: asyncio.Future[OpResult] = self._loop.create_future()
        self._core.write(operation, timeout_s, future, follows=follows)
        return future

    def close(self, error: StelaeError) -> None:
        """Give every unanswered operation an error and take no more."""
        if self._asking is not None:
            self._asking.cancel()
        for waiter in self._core.close(error):
            if isinstance(waiter, asyncio.Future) and not waiter.cancelled():
                waiter.exception()  # asyncio would log an error that is never read; a caller that waits still gets it.

    # -- WriterPorts -----------------------------------------------------------------------------

    def send(self, to: NodeId, request: bytes, answered: Callable[[Buffer | StelaeError], None]) -> None:
        """Call the node; a call that ends without an answer, or with one that has no body, is an error."""
        future = self._caller.call(to, WRITE, [request], deadline_ms=ATTEMPT_MS)
        future.add_done_callback(lambda done: answered(_answer_of(done)))

    def ask_if_gone(self, error: NoSuchTablet) -> None:
        """Ask ``is_gone``, if it is set and not being asked already."""
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
        return PeerError("bad reply")
