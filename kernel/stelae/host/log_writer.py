"""The log writer: order by reservation, group commit over all logs of a node, error fan-out.

The source's Reserve and AsyncAppend (seed "consensus", *CommitGroup commit implementation details*) with
its open ends closed: the queue is bounded in bytes, one drained group is one vectored write. A pure
core: ``machine.log_driver`` or the simulator drives ``take_work``, ``perform`` and ``post``.

Ordering and durability
    1. Per log, entries are committed in reservation order; a slot that is reserved but not yet
       filled holds back the slots behind it in its log, and no other log.
    2. Every ``done`` is called exactly once, in slot order per log, with ``Durable`` only after
       the engine reported its bytes durable.
    3. After a failure every slot of that log, in the group and behind it, gets the same
       ``Failed``; the log refuses new reservations until ``repair``. Other logs go on."""

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
"""A callback and its one argument, to be run on the event loop."""


@dataclass(slots=True, eq=False)
class Slot:
    """A reserved place in a log; ``void`` is set when the log failed before it was filled."""

    log: LogId
    state: "_LogQueue"
    size_bytes: int
    entries: tuple[Entry, ...] | None = None
    replace_from: int | None = None
    commit_hint: int = 0
    done: Done | None = None
    void: Failed | None = None


@dataclass(slots=True)
class CommitGroup:
    """One drained group: what ``commit`` is called with, and the slots that wait for it."""

    appends: dict[LogId, Append]
    slots: dict[LogId, list[Slot]]


@dataclass(slots=True)
class _Job:
    work: Job
    done: Callable[[object], None]


Work: TypeAlias = CommitGroup | _Job


@dataclass(slots=True)
class _LogQueue:
    durable: OpId
    queue: deque[Slot] = field(default_factory=deque)
    failed: Failed | None = None
    committing: bool = False


@dataclass(eq=False, repr=False, kw_only=True)
class LogWriter:
    """CommitGroup commit for every log of a node."""

    lock: AbstractContextManager[object]  #: Guards the queues.
    wake: Callable[[], None]  #: Tells the driver that ``take_work`` may find something.
    post: Callable[[list[Completion]], None]  #: Runs completions on the event loop, in order.
    queue_bytes_max: int  #: Beyond it ``reserve`` pushes back.
    group_bytes_max: int  #: Most bytes of a group, or one larger append.
    queued_bytes: int = 0

    def __post_init__(self) -> None:
        self._logs: dict[LogId, _LogQueue] = {}
        self._jobs: deque[_Job] = deque()
        self._ready: dict[LogId, _LogQueue] = {}
        self._on_room: list[Callable[[None], None]] = []
        self._closing = self._awake = False  # awake: the driver asks ``take_work`` until it says None

    # -- event loop side -------------------------------------------------------------------------

    def open_log(self, log: LogId, durable: OpId) -> None:
        """Accept appends to a log whose last durable op id is ``durable``."""
        self._logs[log] = _LogQueue(durable)

    def close_log(self, log: LogId) -> None:
        """Forget a log; what waits for it still goes to the engine, which says what became of it."""
        self._logs.pop(log, None)

    def durable(self, log: LogId) -> OpId:
        """The last op id of a log that is known to be durable; of a log that is not open nothing is."""
        return self._logs[log].durable if log in self._logs else ZERO

    def has_room(self) -> bool:
        """Say whether ``reserve`` would be accepted now."""
        return self.queued_bytes < self.queue_bytes_max

    def when_room(self, callback: Callable[[None], None]) -> None:
        """Call back once, on the event loop and with ``None``, after the queue has shrunk below its bound."""
        with self.lock:
            if not self.has_room():
                self._on_room.append(callback)
                return
        self.post([(callback, None)])  # the queue has shrunk meanwhile

    def reserve(self, log: LogId, size_bytes: int) -> Slot:
        """Fix the place of an append of ``size_bytes`` in its log. O(1). ``Overloaded``: the queue is at its bound; try
        after ``when_room``. Any other ``StelaeError``: what failed the log; or the writer is closing."""
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
                raise Overloaded(f"{self.queued_bytes} bytes wait for the log; the bound is {self.queue_bytes_max}")
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
        """Fill a slot; ``done`` gets its outcome once, on the event loop. See ``Append``."""
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
        """Run ``work(engine)`` between groups; ``done(result or StelaeError)`` on the loop."""
        with self.lock:
            self._jobs.append(_Job(work, done))
            wake, self._awake = not self._awake, True
        if wake:
            self.wake()

    def repair(self, log: LogId, done: Callable[[object], None]) -> None:
        """Try to make a failed log usable; the result is its durable ``OpId`` or the error."""
        state = self._logs[log]

        def finished(result: object) -> None:
            if isinstance(result, OpId):
                state.failed, state.durable = None, result
            done(result)

        self.submit_job(lambda engine: engine.repair(log), finished)

    def close(self, done: Callable[[object], None]) -> None:
        """Refuse new reservations; ``done`` follows once everything filled is committed."""
        self._closing = True
        self.submit_job(lambda _engine: None, done)

    # -- driver side -------------------------------------------------------------------------------

    def take_work(self) -> Work | None:
        """Take the next job or group, if any; while closing, every filled append goes first."""
        with self.lock:
            if self._jobs and not (self._closing and self._ready):
                return self._jobs.popleft()
            self._awake = bool(self._ready)
            return self._take_group() if self._ready else None

    def perform(self, work: Work, engine: WalEngine) -> list[Completion]:
        """Do the work (may block) and return what ``post`` is to run on the event loop."""
        if isinstance(work, _Job):
            try:
                result: object = work.work(engine)
            except (StelaeError, OSError) as error:
                result = error
            return [(work.done, result)]
        return self.complete(work, engine.commit(work.appends, sync=True))

    def complete(self, group: CommitGroup, outcomes: dict[LogId, Outcome]) -> list[Completion]:
        """Record the outcome of a group; return the callbacks that it owes, in slot order."""
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
            state.durable = outcome.durable
            slots = slots + list(state.queue)
            state.queue.clear()
        for slot in slots:
            self.queued_bytes -= slot.size_bytes
            if slot.done is None:
                assert isinstance(outcome, Failed)
                slot.void = outcome
            elif slot is not slots[-1] and slot.entries and isinstance(outcome, Durable):
                completions.append((slot.done, Durable(slot.entries[-1].op_id)))  # its own last, not the group's
            else:
                completions.append((slot.done, outcome))


def _drain(queue: deque[Slot], budget: int) -> list[Slot]:
    """Take the filled slots at the head; a replacement only as the first, so that one append holds it."""
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
