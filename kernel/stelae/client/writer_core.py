"""Writes of one client to one tablet: many in flight, coalesced per turn, exactly once.

This is the state machine of a writer. It imports no event loop and no socket: time, timers and requests come through
``WriterPorts``. ``stelae.client.tablet_writer`` drives it on asyncio, and the simulator drives it in virtual time.

Rules that keep every operation exactly-once (``durability.md`` rule 16):

1. An operation gets the next sequence and keeps it, with its encoded bytes, through all retries.
2. ``first_incomplete`` of a request is the lowest sequence that the client still waits for, in this request or in
   another one. A server may forget the results below it.
3. An operation whose outcome is unknown is sent again under its own sequence, or ends with ``DeadlineExceeded``. It is
   never reported as done and never numbered anew.

The operations of one turn of the loop travel in one request."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Protocol

import msgspec

from stelae.client.leader import LeaderTracker
from stelae.protocol.tablet_messages import NoSuchTablet
from stelae.rows.operations import Operation, sequence_ranges_of
from stelae.spi.errors import (
    CallerError,
    DeadlineExceeded,
    NotLeader,
    Overloaded,
    PeerError,
    RetryableError,
    StelaeError,
)
from stelae.spi.ids import ClientId, NodeId, TabletId
from stelae.spi.services import Buffer
from stelae.spi.write import OPS_MAX, OpResult, WriteReply, WriteRequest, decode_reply, encode_request

PENDING_OPS_MAX = 65_536
"""Operations that may be unanswered; more are refused until some are."""

REQUEST_BYTES_MAX = 4 << 20
"""Bytes of operations that travel as one request; one larger operation still goes alone."""

TIMEOUT_S_MAX = 300.0
"""Longest that an operation is retried, well within the time for which results are kept: later, a
retry could not be told from a new operation."""

BACKOFF_S_MIN = 0.005
BACKOFF_S_MAX = 0.25
ATTEMPT_MS = 2_000
"""How long one attempt may stay unanswered before the operations are sent again."""


class Waiter(Protocol):
    """Receives the outcome of one operation, once. An ``asyncio.Future`` is one."""

    def done(self) -> bool:
        """Return true if it has an outcome, or if its owner has cancelled it."""
        ...

    def set_result(self, result: OpResult, /) -> None:
        """Take the result: the operation is committed and applied, or was refused for good."""
        ...

    def set_exception(self, error: StelaeError, /) -> None:
        """Take an error; see ``WriterCore.write`` for what each error says about the outcome."""
        ...


class WriterPorts(Protocol):
    """What a writer needs from its event loop and its network."""

    def now_s(self) -> float:
        """Return monotonic seconds."""
        ...

    def call_later(self, delay_s: float, call: Callable[[], None]) -> object:
        """Run ``call`` once, ``delay_s`` seconds from now."""
        ...

    def defer(self, call: Callable[[], None]) -> None:
        """Run ``call`` when this turn of the loop is over."""
        ...

    def send(self, to: NodeId, request: bytes, answered: Callable[[Buffer | StelaeError], None]) -> None:
        """Send one encoded write request.

        ``answered`` runs exactly once, in a later turn: with the encoded reply, or with an error when the node refused,
        or when no answer came within ``ATTEMPT_MS``."""
        ...

    def ask_if_gone(self, error: NoSuchTablet) -> None:
        """No member has a replica: find out whether the tablet is gone for good, and then call ``tablet_gone``."""
        ...


class _Op(msgspec.Struct, eq=False):
    sequence: int
    operation: Operation
    waiter: Waiter
    deadline: float
    follows: bool  #: Whether it travels in one request with the operation before it.
    unsure: bool = False  #: Whether somebody may have taken it.


class WriterCore:
    """Sends the writes of one client to one tablet.

    Args:
        ports: time, timers and requests.
        leader: whom to ask; told of hints and failures.
        tablet_id, client_id, schema_version: what the operations are for.
        rng: for the jitter of pauses; only ``random()`` is drawn.
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
        self._rng = rng
        self._last_sequence = 0
        self._pending: dict[int, _Op] = {}
        """Operations without an outcome, by sequence, in ascending order."""
        self._queue: list[_Op] = []
        self._flush_due = False
        self._paused = False
        self._failures = 0
        self._closed: StelaeError | None = None
        self._last_said = "nobody answered"
        self._without: set[NodeId] = set()
        """Members whose last word was that they have no replica."""
        self.retries = 0
        """How many times operations had to be sent again."""

    @property
    def pending(self) -> int:
        """Operations that are not answered yet."""
        return len(self._pending)

    def write(self, operation: Operation, timeout_s: float, waiter: Waiter, *, follows: bool = False) -> int:
        """Send one operation (``stelae.rows.operations``) and return its sequence.

        Requests may overtake each other: one may be refused and sent again when a later one is in the log. So
        operations of one turn whose order matters have to share one: ``follows`` ties an operation to the one before.

        The waiter gets the operation's result once a majority has made it durable and it is
        applied. Otherwise it gets ``NoSuchTablet``, when no member has a replica, and none was ever
        asked that had or the tablet is gone for good: it has no effect then; or
        ``DeadlineExceeded``: then the outcome is unknown, since the operation may still take
        effect, at most once. A waiter that is done already, because its owner cancelled it, gets nothing.

        Raises:
            Overloaded: too many operations are unanswered.
            CallerError: the time is above ``TIMEOUT_S_MAX``.
            StelaeError: the writer is closed.
        """
        if self._closed is not None:
            raise self._closed
        if not 0 < timeout_s <= TIMEOUT_S_MAX:
            raise CallerError(f"timeout_s is {timeout_s}; above 0, at most {TIMEOUT_S_MAX:.0f}")
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
        """Give every unanswered operation an error and take no more; return the waiters of these operations."""
        self._closed = error
        waiters = [op.waiter for op in self._pending.values()]
        self._fail_all(error)
        return waiters

    def tablet_gone(self, error: StelaeError) -> None:
        """Give every unanswered operation an error: the tablet is gone for good, and its rows with it."""
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
        queue, self._queue = [op for op in self._queue if op.sequence in self._pending], []
        for batch in _requests(queue):
            self._send(batch)

    def _send(self, batch: list[_Op]) -> None:
        request = WriteRequest(
            self._tablet_id,
            self._client_id,
            next(iter(self._pending)),
            self._schema_version,
            sequence_ranges_of((op.sequence, op.operation) for op in batch),
        )
        node = self._leader.current
        self._ports.send(node, encode_request(request), lambda answer: self._answered(batch, node, answer))

    # -- answers ---------------------------------------------------------------------------------

    def _answered(self, batch: list[_Op], node: NodeId, answer: Buffer | StelaeError) -> None:
        error: StelaeError | None = None
        reply: WriteReply | None = None
        if isinstance(answer, StelaeError):
            error = answer
        else:
            try:
                reply = decode_reply(answer)
            except StelaeError:
                # A reply that cannot be read decides nothing: the operations are sent again.
                error = PeerError("bad reply")
        if self._closed is not None:
            return
        if error is not None:
            self._last_said = str(error) or type(error).__name__
        if isinstance(error, NoSuchTablet):
            self._no_replica(batch, node, error)
            return
        self._without.discard(node)
        for op in batch:
            op.unsure = True
        if reply is not None:
            self._take(batch, reply)
        elif isinstance(error, NotLeader):
            moved = self._leader.refused_by(node, error.leader)
            self._again(batch, pause=not moved)
        elif isinstance(error, RetryableError):
            if not isinstance(error, Overloaded):  # Who pushes back leads: nobody else could take it.
                self._leader.failed(node)
            self._again(batch, pause=True)
        elif isinstance(error, CallerError):
            for op in batch:
                self._fail(op, error)
        else:
            # A peer that speaks nonsense, or met a defect: another node may do better.
            self._leader.failed(node)
            self._again(batch, pause=True)

    def _no_replica(self, batch: list[_Op], node: NodeId, error: NoSuchTablet) -> None:
        """A node has let go of its replica: another one may have one, or the tablet is gone, or elsewhere.

        What somebody may have taken before is sent until its time is over, as a new operation it could count twice;
        or until it is known that the tablet is gone for good, and whatever was written to it with it."""
        self._without.add(node)
        self._leader.failed(node)
        if self._without >= set(self._leader.members):
            for op in batch:
                if not op.unsure and op.sequence in self._pending:
                    self._fail(op, error)
            if self._pending:
                self._ports.ask_if_gone(error)
        self._again(batch, pause=True)

    def _take(self, batch: list[_Op], reply: WriteReply) -> None:
        self._failures = 0
        for answer in reply.answers:
            first = answer.first_sequence
            for sequence in range(first, first + min(answer.count, len(batch))):
                op = self._pending.pop(sequence, None)
                if op is not None and not op.waiter.done():
                    op.waiter.set_result(answer.result)
        undecided = [op for op in batch if op.sequence in self._pending]
        if undecided:
            self._again(undecided, pause=True)

    def _again(self, batch: list[_Op], *, pause: bool) -> None:
        """Queue operations once more under their old sequences, those in time at least."""
        now = self._ports.now_s()
        for op in batch:
            if op.sequence not in self._pending:
                continue
            if op.waiter.done() or now >= op.deadline:
                fact = f"no leader took the write in time; the last one asked said: {self._last_said}"
                self._fail(op, DeadlineExceeded(fact))
            else:
                self._queue.append(op)
                self.retries += 1
        if not self._queue:
            return
        if pause:
            self._pause()
        else:
            self._schedule()

    def _pause(self) -> None:
        if self._paused:
            return
        self._failures += 1
        ceiling = min(BACKOFF_S_MAX, BACKOFF_S_MIN * 2 ** min(self._failures, 10))
        self._paused = True
        self._ports.call_later(BACKOFF_S_MIN + self._rng.random() * ceiling, self._resume)

    def _resume(self) -> None:
        self._paused = False
        self._queue.sort(key=lambda op: op.sequence)
        self._schedule()

    def _fail_all(self, error: StelaeError) -> None:
        for op in list(self._pending.values()):
            self._fail(op, error)

    def _fail(self, op: _Op, error: StelaeError) -> None:
        self._pending.pop(op.sequence, None)
        if not op.waiter.done():
            op.waiter.set_exception(error)


def _requests(queue: list[_Op]) -> Iterator[list[_Op]]:
    """Divide operations among as few requests as possible; those that are tied stay together."""
    if len(queue) <= OPS_MAX and _size(queue) <= REQUEST_BYTES_MAX:
        if queue:
            yield queue
        return
    batch: list[_Op] = []
    size = start = 0
    ends = [place for place, op in enumerate(queue) if place and not op.follows]
    for end in [*ends, len(queue)]:
        tied, start = queue[start:end], end
        own = _size(tied)
        if batch and (size + own > REQUEST_BYTES_MAX or len(batch) + len(tied) > OPS_MAX):
            yield batch
            batch, size = [], 0
        batch += tied
        size += own
    yield batch


def _size(ops: list[_Op]) -> int:
    return sum([len(op.operation.rows) for op in ops])
