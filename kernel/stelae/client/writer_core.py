"""The state machine that sends one client's operations to one tablet, each exactly once.

It imports no event loop and no socket: time, timers and requests come through ``WriterPorts``.
``stelae.client.tablet_writer`` drives it on asyncio, and the simulator drives it in virtual time.

Many operations may be in flight. The operations of one turn of the loop are sent in one request, up to the limits of a
request.

Three rules ensure that every operation takes effect exactly once (``durability.md`` rule 16):

1. An operation gets the next sequence number. It keeps the number and its encoded bytes through all retries.
2. ``first_incomplete`` of a request is the lowest sequence number without an outcome, in this request or in another
   one. A server may forget the results below it.
3. An operation whose outcome is unknown is sent again under its own sequence number, or ends with ``DeadlineExceeded``.
   It is never reported as done and never gets a new number. It is not sent again after its deadline, even if the
   program or its machine was suspended during a pause: servers forget a client that has not written for an hour, and
   would take a retry for a new operation."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Protocol

import msgspec

from stelae.client.leader_tracker import LeaderTracker
from stelae.client.write_retries import WriteRetries
from stelae.protocol.tablet_messages import NoSuchTablet
from stelae.rows.operation_encoding import Operation, sequence_ranges_of
from stelae.spi.errors import CallerError, NotLeader, Overloaded, PeerError, RetryableError, StelaeError
from stelae.spi.ids import ClientId, NodeId, TabletId
from stelae.spi.services import Buffer
from stelae.spi.write import OPS_MAX, OpResult, WriteReply, WriteRequest, decode_reply, encode_request

PENDING_OPS_MAX = 65_536
"""The most operations without an outcome. More are refused until some of them have one."""

REQUEST_BYTES_MAX = 4 << 20
"""The most bytes of operations in one request. A larger operation is sent in a request of its own."""

TIMEOUT_S_MAX = 300.0
"""The longest time for which an operation is retried. Servers keep results for much longer: without the result, a
server could not distinguish a retry from a new operation."""

ATTEMPT_MS = 2_000
"""How long a request may stay unanswered before its operations are sent again."""

UNANSWERED = "UNANSWERED"
"""Counts operations without a result in the reply to their request. No error has this code."""


class Waiter(Protocol):
    """Receives the outcome of one operation, once. An ``asyncio.Future`` is one."""

    def done(self) -> bool:
        """Return whether it has an outcome, or was cancelled by its owner."""
        ...

    def set_result(self, result: OpResult, /) -> None:
        """Receive the result: the operation is committed and applied, or was refused for good."""
        ...

    def set_exception(self, error: StelaeError, /) -> None:
        """Receive an error. ``WriterCore.write`` documents what each error says about the outcome."""
        ...


class WriterPorts(Protocol):
    """What a writer needs from its event loop and its network."""

    def now_s(self) -> float:
        """Return monotonic seconds, with the time in which the machine was suspended."""
        ...

    def call_later(self, delay_s: float, call: Callable[[], None]) -> object:
        """Run ``call`` once, ``delay_s`` seconds from now."""
        ...

    def defer(self, call: Callable[[], None]) -> None:
        """Run ``call`` at the end of this turn of the loop."""
        ...

    def send(self, to: NodeId, request: bytes, answered: Callable[[Buffer | StelaeError], None]) -> None:
        """Send one encoded write request.

        ``answered`` is called exactly once, in a later turn: with the encoded reply, or with an error if the node
        refused the request or no answer arrived within ``ATTEMPT_MS``."""
        ...

    def ask_if_gone(self, error: NoSuchTablet) -> None:
        """Find out whether the tablet is gone for good, and call ``tablet_gone`` if it is.

        The writer asks when every member has answered that it has no replica."""
        ...


class _Op(msgspec.Struct, eq=False):
    """An operation without an outcome."""

    sequence: int
    operation: Operation
    waiter: Waiter
    deadline: float  #: In monotonic seconds.
    follows: bool  #: Whether it must be in the same request as the operation before it.
    unsure: bool = False  #: Whether a node may have accepted it.


class WriterCore:
    """Sends the writes of one client to one tablet.

    Args:
        ports: time, timers and requests.
        leader: chooses the node to send to; it learns of hints and failures.
        tablet_id, client_id, schema_version: fields of every request.
        rng: for the random part of pauses; only ``random()`` is drawn.
    """

    def __init__(
        self,
        ports: WriterPorts,
        leader: LeaderTracker,
        *,
        tablet_id: TabletId,
        client_id: ClientId,
        schema_version: int,
        rng: random.Random,
    ) -> None:
        self._ports = ports
        self._leader = leader
        self._tablet_id = tablet_id
        self._client_id = client_id
        self._schema_version = schema_version
        self._retries = WriteRetries(rng)
        self._last_sequence = 0
        self._pending: dict[int, _Op] = {}
        """Operations without an outcome, by sequence, in ascending order."""
        self._queue: list[_Op] = []
        self._flush_due = False
        self._paused = False
        self._closed: StelaeError | None = None
        self._without_replica: set[NodeId] = set()
        """Members whose last answer was that they have no replica."""
        self.retries: Counter[str] = Counter()
        """How many times an operation was sent again, by the code of the error that made it necessary."""

    @property
    def pending(self) -> int:
        """Number of operations without an outcome."""
        return len(self._pending)

    def write(self, operation: Operation, timeout_s: float, waiter: Waiter, *, follows: bool = False) -> int:
        """Send one operation (``stelae.rows.operation_encoding``) and return its sequence number.

        A request may be refused and sent again when a later request is already in the log. So operations of one turn
        whose order matters must be in one request: with ``follows``, the operation shares the request of the operation
        before it.

        The waiter gets the operation's result once a majority has made the operation durable and it is applied.
        Otherwise the waiter gets an error:

        - ``NoSuchTablet``: the operation has no effect. No member has a replica, and either the operation never
          reached a node that had one, or the tablet is gone for good.
        - ``DeadlineExceeded``: the outcome is unknown. The operation may still take effect, at most once.

        A waiter that its owner has cancelled gets nothing.

        Raises:
            Overloaded: too many operations have no outcome yet.
            CallerError: the timeout is not above 0, or is above ``TIMEOUT_S_MAX``.
            StelaeError: the writer is closed.
        """
        if self._closed is not None:
            raise self._closed
        if not 0 < timeout_s <= TIMEOUT_S_MAX:
            raise CallerError(f"timeout_s is {timeout_s}; it must be above 0 and at most {TIMEOUT_S_MAX:.0f}")
        if len(self._pending) >= PENDING_OPS_MAX:
            raise Overloaded(f"{len(self._pending)} operations are unanswered; await some first")
        self._last_sequence = sequence = self._last_sequence + 1
        op = _Op(sequence, operation, waiter, self._ports.now_s() + timeout_s, follows)
        self._pending[sequence] = op
        self._queue.append(op)
        if not self._flush_due:
            self._schedule()
        return sequence

    def close(self, error: StelaeError) -> list[Waiter]:
        """End every operation without an outcome with an error and return their waiters; refuse new operations."""
        self._closed = error
        waiters = [op.waiter for op in self._pending.values()]
        self._fail_all(error)
        return waiters

    def tablet_gone(self, error: StelaeError) -> None:
        """End every operation without an outcome with an error, because the tablet is gone for good."""
        self._fail_all(error)

    # -- sending ---------------------------------------------------------------------------------

    def _schedule(self) -> None:
        if not self._flush_due and not self._paused:
            self._flush_due = True
            self._ports.defer(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        if self._paused or self._closed is not None:
            return
        now = self._ports.now_s()
        for op in self._queue:
            if op.unsure and (given_up := self._retries.given_up(op.deadline, now)) is not None:
                self._fail(op, given_up)
        queue, self._queue = [op for op in self._queue if op.sequence in self._pending], []
        for ops in _requests(queue):
            self._send(ops)

    def _send(self, ops: list[_Op]) -> None:
        request = WriteRequest(
            self._tablet_id,
            self._client_id,
            next(iter(self._pending)),
            self._schema_version,
            sequence_ranges_of((op.sequence, op.operation) for op in ops),
        )
        node = self._leader.current
        self._ports.send(node, encode_request(request), lambda answer: self._answered(ops, node, answer))

    # -- answers ---------------------------------------------------------------------------------

    def _answered(self, ops: list[_Op], node: NodeId, answer: Buffer | StelaeError) -> None:
        error: StelaeError | None = None
        reply: WriteReply | None = None
        if isinstance(answer, StelaeError):
            error = answer
        else:
            try:
                reply = decode_reply(answer)
            except StelaeError:
                # A reply that cannot be read says nothing about the outcome, so the operations are sent again.
                error = PeerError("the reply to a write cannot be read")
        if self._closed is not None:
            return
        if error is not None:
            self._retries.last_error = str(error) or type(error).__name__
        if isinstance(error, NoSuchTablet):
            self._no_replica(ops, node, error)
            return
        self._without_replica.discard(node)
        for op in ops:
            op.unsure = True
        if reply is not None:
            self._take_reply(ops, reply)
        elif isinstance(error, NotLeader):
            moved = self._leader.refused_by(node, error.leader)
            self._retry(ops, error, pause=not moved)
        elif isinstance(error, RetryableError):
            if not isinstance(error, Overloaded):  # An overloaded node leads, so no other node can accept the write.
                self._leader.failed(node)
            self._retry(ops, error, pause=True)
        elif isinstance(error, CallerError):
            for op in ops:
                self._fail(op, error)
        else:
            # The node has a defect or sent an invalid message. Another node may accept the write.
            self._leader.failed(node)
            self._retry(ops, error, pause=True)

    def _no_replica(self, ops: list[_Op], node: NodeId, error: NoSuchTablet) -> None:
        """Handle the answer that a node has no replica: another member may have one, or the tablet was moved or
        deleted.

        When no member has a replica, an operation that no node can have accepted fails. An operation that a node may
        have accepted is retried until its deadline, or until it is known that the tablet and its rows are gone for
        good. If it failed earlier, the table's writer would send its rows as a new operation, and both operations could
        take effect."""
        self._without_replica.add(node)
        self._leader.failed(node)
        if self._without_replica >= set(self._leader.members):
            for op in ops:
                if not op.unsure and op.sequence in self._pending:
                    self._fail(op, error)
            if self._pending:
                self._ports.ask_if_gone(error)
        self._retry(ops, error, pause=True)

    def _take_reply(self, ops: list[_Op], reply: WriteReply) -> None:
        """Give the results of a reply to their operations, and retry the operations without a result."""
        self._retries.served()
        self._leader.served()
        for answer in reply.answers:
            first = answer.first_sequence
            for sequence in range(first, first + min(answer.count, len(ops))):
                op = self._pending.pop(sequence, None)
                if op is not None and not op.waiter.done():
                    op.waiter.set_result(answer.result)
        undecided = [op for op in ops if op.sequence in self._pending]
        if undecided:
            self._retry(undecided, None, pause=True)

    def _retry(self, ops: list[_Op], error: StelaeError | None, *, pause: bool) -> None:
        """Queue operations again under their sequence numbers, and end those whose deadline has passed.

        ``error`` is why they have no outcome yet; ``None``: the reply had none for them."""
        code = UNANSWERED if error is None else error.code
        now = self._ports.now_s()
        for op in ops:
            if op.sequence not in self._pending:
                continue
            given_up = self._retries.given_up(op.deadline, now)
            if given_up is not None or op.waiter.done():
                self._fail(op, given_up)
            else:
                self._queue.append(op)
                self.retries[code] += 1
        if not self._queue:
            return
        if pause:
            self._pause()
        else:
            self._schedule()

    def _pause(self) -> None:
        if self._paused:
            return
        self._paused = True
        self._ports.call_later(self._retries.next_pause_s(), self._resume)

    def _resume(self) -> None:
        self._paused = False
        self._queue.sort(key=lambda op: op.sequence)
        self._schedule()

    def _fail_all(self, error: StelaeError) -> None:
        for op in list(self._pending.values()):
            self._fail(op, error)

    def _fail(self, op: _Op, error: StelaeError | None) -> None:
        """End an operation with an error; ``None``: its caller waits no more."""
        self._pending.pop(op.sequence, None)
        if error is not None and not op.waiter.done():
            op.waiter.set_exception(error)


def _requests(queue: list[_Op]) -> Iterator[list[_Op]]:
    """Divide operations among as few requests as possible. An operation that ``follows`` stays with the one before."""
    if len(queue) <= OPS_MAX and _size(queue) <= REQUEST_BYTES_MAX:
        if queue:
            yield queue
        return
    request: list[_Op] = []
    request_bytes = start = 0
    ends = [number for number, op in enumerate(queue) if number and not op.follows]
    for end in [*ends, len(queue)]:
        together, start = queue[start:end], end
        size_bytes = _size(together)
        if request and (request_bytes + size_bytes > REQUEST_BYTES_MAX or len(request) + len(together) > OPS_MAX):
            yield request
            request, request_bytes = [], 0
        request += together
        request_bytes += size_bytes
    yield request


def _size(ops: list[_Op]) -> int:
    return sum([len(op.operation.rows) for op in ops])
