"""The log writer: group commit over all logs of a node.

It implements Reserve and AsyncAppend of the source (seed "consensus", *Group commit implementation details*), with a
queue that is bounded in bytes. This module is pure: ``machine.log_driver`` or the simulator calls ``take_work`` and
``perform``, and provides ``post``.

An append goes through these steps:

1. ``reserve`` fixes its place in its log, on the event loop.
2. ``append_async`` fills this slot with entries, on the event loop. The log is now ready.
3. ``take_work`` collects the filled slots of all ready logs into a group, on the driver's side.
4. ``perform`` commits the group with the log engine, on the driver's side.
5. ``post`` calls each ``done`` with its outcome, on the event loop.

Ordering and durability
    1. The entries of a log are committed in the order of reservation. A slot that is reserved but not filled delays the
       later slots of its log, and no other log.
    2. Every ``done`` is called exactly once, in slot order per log. It gets ``Durable`` only after the engine has
       reported its bytes as durable.
    3. After a failure all slots of that log, in the group and after it, get the same ``Failed``, and the log refuses
       new reservations until ``repair``. Other logs continue."""

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TypeAlias

from stelae.spi.errors import CallerError, Overloaded, StelaeError, Unavailable
from stelae.spi.ids import ZERO, LogId, OpId
from stelae.spi.log import Entry
from stelae.spi.wal import Append, Durable, Failed, Outcome, WalEngine

Done: TypeAlias = Callable[[Outcome], None]
Job: TypeAlias = Callable[[WalEngine], object]
Completion: TypeAlias = tuple[Callable[..., None], object]
"""A callback and its argument, to be called on the event loop."""


@dataclass(slots=True, eq=False)
class Slot:
    """A reserved place in a log."""

    log: LogId
    state: "_LogQueue"
    size_bytes: int
    entries: tuple[Entry, ...] | None = None  #: ``None`` until the slot is filled.
    replace_from: int | None = None
    commit_hint: int = 0
    done: Done | None = None
    void: Failed | None = None  #: Set if the log failed before the slot was filled.


@dataclass(slots=True)
class CommitGroup:
    """The appends of one commit."""

    appends: dict[LogId, Append]  #: The argument of ``WalEngine.commit``.
    slots: dict[LogId, list[Slot]]  #: The slots that wait for the outcome.


@dataclass(slots=True)
class _Job:
    work: Job
    done: Callable[[object], None]


Work: TypeAlias = CommitGroup | _Job


@dataclass(slots=True)
class _LogQueue:
    durable: OpId
    acknowledged: OpId = ZERO  #: What was durable when the log failed.
    queue: deque[Slot] = field(default_factory=deque)
    failed: Failed | None = None
    committing: bool = False


@dataclass(eq=False, repr=False, kw_only=True)
class LogWriter:
    """Group commit for every log of a node."""

    lock: AbstractContextManager[object]  #: Guards the queues.
    wake: Callable[[], None]  #: Notifies the driver that ``take_work`` may have work.
    post: Callable[[list[Completion]], None]  #: Runs completions on the event loop, in order.
    queue_bytes_max: int  #: ``reserve`` refuses appends while more bytes than this are queued.
    group_bytes_max: int  #: The most bytes of a group, unless it is a single larger append.
    queued_bytes: int = 0  #: Bytes that are reserved and not committed.

    def __post_init__(self) -> None:
        self._logs: dict[LogId, _LogQueue] = {}
        self._jobs: deque[_Job] = deque()
        self._ready: dict[LogId, _LogQueue] = {}
        self._on_room: list[Callable[[None], None]] = []
        self._closing = False
        self._job_was_last = False
        self._awake = False  # The driver was woken and has not yet got ``None`` from ``take_work``.

    # -- event loop side -------------------------------------------------------------------------

    def open_log(self, log: LogId, durable: OpId) -> None:
        """Accept appends to a log. ``durable`` is its last durable op id."""
        self._logs[log] = _LogQueue(durable)

    def close_log(self, log: LogId) -> None:
        """Forget a log. Appends that are queued still go to the engine, and their outcomes are reported."""
        self._logs.pop(log, None)

    def durable(self, log: LogId) -> OpId:
        """Return the last op id of a log that is known to be durable; ``ZERO`` for a log that is not open."""
        return self._logs[log].durable if log in self._logs else ZERO

    def acknowledged(self, log: LogId) -> OpId:
        """Return the last op id that may have been acknowledged: ``durable``, or later if damage has cut the log."""
        return max(self._logs[log].durable, self._logs[log].acknowledged) if log in self._logs else ZERO

    def has_queued(self, log: LogId) -> bool:
        """Return whether appends to a log are queued, or are being committed."""
        with self.lock:
            state = self._logs.get(log)
            return state is not None and (state.committing or bool(state.queue))

    def has_room(self) -> bool:
        """Return whether ``reserve`` would accept an append now."""
        return self.queued_bytes < self.queue_bytes_max

    def when_room(self, callback: Callable[[None], None]) -> None:
        """Call ``callback(None)`` once, on the event loop, when the queue is below its bound."""
        with self.lock:
            if not self.has_room():
                self._on_room.append(callback)
                return
        self.post([(callback, None)])  # The queue is below its bound by now.

    def reserve(self, log: LogId, size_bytes: int) -> Slot:
        """Reserve the next place in a log for an append of ``size_bytes``. O(1).

        Raises ``Overloaded`` if the queue is at its bound; try again after ``when_room``. Raises another
        ``StelaeError`` if the log has failed or is not open, or if the writer is closing."""
        if self._closing:
            raise Unavailable("the log writer is closing")
        state = self._logs.get(log)
        if state is None:
            raise CallerError(f"log {log} is not open")
        slot = Slot(log, state, size_bytes)
        with self.lock:
            if state.failed is not None:
                raise state.failed.error
            if self.queued_bytes >= self.queue_bytes_max:
                raise Overloaded(
                    f"{self.queued_bytes} bytes are queued for the log; the limit is {self.queue_bytes_max}"
                )
            state.queue.append(slot)
            self.queued_bytes += size_bytes
        return slot

    def append_async(
        self,
        slot: Slot,
        entries: tuple[Entry, ...],
        *,
        replace_from: int | None = None,
        commit_hint: int = 0,
        done: Done,
    ) -> None:
        """Fill a slot. ``done`` gets the outcome, once, on the event loop. For the arguments see ``Append``."""
        with self.lock:
            slot.replace_from, slot.commit_hint = replace_from, commit_hint
            slot.done, slot.entries = done, entries
            state = slot.state
            wake = False
            if not state.committing and state.queue and state.queue[0].entries is not None:
                self._ready[slot.log] = state
                wake, self._awake = not self._awake, True
            void = slot.void
        if void is not None:
            self.post([(done, void)])
        elif wake:
            self.wake()

    def submit_job(self, work: Job, done: Callable[[object], None]) -> None:
        """Run ``work(engine)`` between two groups, then ``done(result or error)`` on the event loop."""
        with self.lock:
            self._jobs.append(_Job(work, done))
            wake, self._awake = not self._awake, True
        if wake:
            self.wake()

    def repair(self, log: LogId, done: Callable[[object], None]) -> None:
        """Try to make a failed log usable. ``done`` gets its last durable ``OpId``, or the error."""
        state = self._logs[log]

        def finished(result: object) -> None:
            if isinstance(result, OpId):
                state.failed, state.durable, state.acknowledged = None, result, ZERO
            done(result)

        self.submit_job(lambda engine: engine.repair(log), finished)

    def close(self, done: Callable[[object], None]) -> None:
        """Refuse new reservations. ``done`` is called once every filled slot is committed."""
        self._closing = True
        self.submit_job(lambda _engine: None, done)

    # -- driver side -------------------------------------------------------------------------------

    def take_work(self) -> Work | None:
        """Return the next job or group, or ``None``. Jobs and groups take turns; while closing, groups go first.

        So appends wait for one job at most. Many may be queued, because a node collects the logs of all its tablets."""
        with self.lock:
            groups_first = self._closing or self._job_was_last
            self._job_was_last = bool(self._jobs) and not (groups_first and self._ready)
            if self._job_was_last:
                return self._jobs.popleft()
            self._awake = bool(self._ready)
            return self._take_group() if self._ready else None

    def perform(self, work: Work, engine: WalEngine) -> list[Completion]:
        """Do the work. May block. Return the completions that ``post`` must run on the event loop."""
        if isinstance(work, _Job):
            try:
                result: object = work.work(engine)
            except (StelaeError, OSError) as error:
                result = error
            return [(work.done, result)]
        return self.complete(work, engine.commit(work.appends, sync=True))

    def complete(self, group: CommitGroup, outcomes: dict[LogId, Outcome]) -> list[Completion]:
        """Record the outcomes of a group. Return its completions, in slot order."""
        completions: list[Completion] = []
        with self.lock:
            for log, slots in group.slots.items():
                state = slots[0].state
                state.committing = False
                self._settle(state, slots, outcomes[log], completions)
                if state.queue and state.queue[0].entries is not None:
                    self._ready[log] = state
            if self._on_room and self.has_room():
                completions.extend((callback, None) for callback in self._on_room)
                self._on_room.clear()
        return completions

    # -- under the lock --------------------------------------------------------------------------

    def _take_group(self) -> CommitGroup:
        group = CommitGroup({}, {})
        budget = self.group_bytes_max
        for log, state in list(self._ready.items()):
            if budget <= 0 and group.slots:
                break
            del self._ready[log]
            slots = group.slots[log] = _drain(state.queue, budget)
            budget -= slots[0].size_bytes if len(slots) == 1 else sum([slot.size_bytes for slot in slots])
            state.committing = True
            group.appends[log] = _merge(slots)
        return group

    def _settle(self, state: _LogQueue, slots: list[Slot], outcome: Outcome, completions: list[Completion]) -> None:
        if isinstance(outcome, Durable):
            state.durable = outcome.last
        else:
            state.failed = outcome
            state.acknowledged = max(state.acknowledged, state.durable)
            state.durable = outcome.durable
            slots = slots + list(state.queue)
            state.queue.clear()
        for slot in slots:
            self.queued_bytes -= slot.size_bytes
            if slot.done is None:
                assert isinstance(outcome, Failed)
                slot.void = outcome
            elif slot is not slots[-1] and slot.entries and isinstance(outcome, Durable):
                # The slot's own last op id, not that of the whole append.
                completions.append((slot.done, Durable(slot.entries[-1].op_id)))
            else:
                completions.append((slot.done, outcome))


def _drain(queue: deque[Slot], budget: int) -> list[Slot]:
    """Remove the filled slots at the head, up to ``budget`` bytes, and at least one.

    A slot with a replacement can only be the first one, because they become one ``Append``."""
    slots = [queue.popleft()]
    while queue and (slot := queue[0]).entries is not None:
        budget -= slots[-1].size_bytes
        if slot.replace_from is not None or slot.size_bytes > budget:
            break
        slots.append(queue.popleft())
    return slots


def _merge(slots: list[Slot]) -> Append:
    first = slots[0]
    entries, hint = first.entries or (), first.commit_hint
    if len(slots) > 1:
        entries = tuple([entry for slot in slots for entry in slot.entries or ()])
        hint = max([slot.commit_hint for slot in slots])
    return Append(entries=entries, replace_from=first.replace_from, commit_hint=hint)
