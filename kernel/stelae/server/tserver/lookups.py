"""Looks up the rows of keys in the replicas of a node.

The requests for the latest rows of one replica in one turn of the loop share one read index. It is asked for at the end
of the turn, and so after all of them have arrived. Rows in memory are returned on the event loop, which sends answers
and turns to other work between requests. Lookups that need the disk run on the pool for scans, as one task for all
requests of the same read index. A request that was given up before its turn is not read."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import NamedTuple, Protocol, TypeAlias

from stelae.host.ports import BlockingPool, Turns
from stelae.host.replica import Replica
from stelae.protocol.lookup_messages import LookupRequest
from stelae.protocol.tablet_messages import ScanRequest
from stelae.server.frames import Frames
from stelae.server.tserver.lookup_answer import LookupAnswer
from stelae.server.tserver.scan_time import ReadNode, choose_time
from stelae.server.tserver.stopped_replicas import unless_stopped
from stelae.spi.errors import StelaeError
from stelae.spi.scan import ScanSpec
from stelae.spi.store import TabletStore

LOOP_US = 4_000
"""How long the event loop looks up keys before it turns to other work, and to sending the answers."""

LOOP_KEYS = 32
"""After this number of keys it does so, too. Clients use their answers while it looks up the next keys."""

Done: TypeAlias = Callable[[Frames | Exception], None]
"""Gets the frames of the answer (``LookupReply``), or the error."""


class LookupNode(ReadNode, Protocol):
    """The parts of a node that lookups need."""

    @property
    def turns(self) -> Turns:
        """The turns of the event loop."""
        ...

    @property
    def scans(self) -> BlockingPool:
        """The pool for reads of stores."""
        ...


class _Lookup(NamedTuple):
    """A request that waits for its time."""

    asked: LookupRequest
    done: Done
    is_open: Callable[[], bool]  #: Returns whether its client still waits. Any thread may call it.


class _Rest(NamedTuple):
    """A request of whose keys some must be read from disk."""

    lookup: _Lookup
    answer: LookupAnswer  #: Has the rows of the keys before those.


class _Timed(NamedTuple):
    """Requests to one replica that have their time."""

    replica: Replica
    at: int
    lookups: deque[_Lookup]  #: Those that the loop has not tried yet.
    rest: list[_Rest]

    def answer_next(self) -> int:
        """Answer the next request if all its rows are in memory. Else it is one of the rest. Return how many keys it
        has."""
        lookup = self.lookups.popleft()
        if not lookup.is_open():
            return 0
        at = unless_stopped(self.replica, self.at)
        try:
            if isinstance(at, StelaeError):
                raise at
            answer = LookupAnswer(lookup.asked)
            while not answer.is_complete:
                found = self.replica.applier.store.lookup_inline(answer.next_keys, at)
                if found.unread:
                    self.rest.append(_Rest(lookup, answer))
                    return len(lookup.asked.keys)
                answer.add(found)
            frames: Frames | Exception = answer.frames()
        except Exception as error:
            frames = error
        lookup.done(frames)
        return len(lookup.asked.keys)


class Lookups:
    """Looks up keys in the replicas of one node, on its event loop.

    Args:
        node: its clock, its turns and its pool for scans.
    """

    def __init__(self, node: LookupNode) -> None:
        self._node = node
        self._waiting: dict[Replica, list[_Lookup]] = {}
        self._timed: deque[_Timed] = deque()
        self._numbers = count()

    def look_up(self, replica: Replica, asked: LookupRequest, done: Done, is_open: Callable[[], bool]) -> None:
        """Look up the keys of a request in a replica that has rows. ``done`` is called once, now or later.

        It is not called if the client gives up before. ``is_open`` returns whether the client still waits; it is called
        on the threads of the pool."""
        lookup = _Lookup(asked, done, is_open)
        if asked.at is not None:
            scan = ScanRequest(asked.tablet_id, ScanSpec(), asked.at)
            choose_time(self._node, replica, scan, partial(self._read, replica, [lookup]))
        elif replica in self._waiting:
            self._waiting[replica].append(lookup)
        else:
            self._waiting[replica] = [lookup]
            self._node.turns.defer(partial(self._confirm, replica))

    def _confirm(self, replica: Replica) -> None:
        replica.read_index(partial(self._read, replica, self._waiting.pop(replica)))

    def _read(self, replica: Replica, lookups: Sequence[_Lookup], at: int | StelaeError) -> None:
        """Answer what can be answered on the loop, and pass the rest to the pool."""
        at = unless_stopped(replica, at)
        if isinstance(at, StelaeError):
            for lookup in lookups:
                lookup.done(at)
            return
        self._timed.append(_Timed(replica, at, deque(lookups), []))
        if len(self._timed) == 1:
            self._read_some()

    def _read_some(self) -> None:
        """Read rows in memory, but not for long: other work of the node waits meanwhile, and so do the answers."""
        turns = self._node.turns
        now_us, keys = turns.now_us(), 0
        end_us = now_us + LOOP_US
        while self._timed:
            if now_us >= end_us or keys >= LOOP_KEYS:
                turns.call_at(now_us, self._read_some)
                return
            timed = self._timed[0]
            keys += timed.answer_next()
            now_us = turns.now_us()
            if not timed.lookups:
                self._timed.popleft()
                self._read_rest(timed)

    def _read_rest(self, timed: _Timed) -> None:
        if timed.rest:
            work = partial(_read_all, timed.replica.applier.store, timed.rest, timed.at)
            deliver = partial(_deliver, timed.replica, timed.rest)
            self._node.scans.run(f"lookup/{next(self._numbers)}", work, deliver)


def _read_all(store: TabletStore, rest: Sequence[_Rest], at: int) -> list[Frames | Exception | None]:
    """Return the answer or the error of each request; ``None``: it was given up. Blocks."""
    answers: list[Frames | Exception | None] = []
    for lookup, answer in rest:
        if not lookup.is_open():
            answers.append(None)
            continue
        try:
            while not answer.is_complete:
                answer.add(store.lookup(answer.next_keys, at))
            answers.append(answer.frames())
        except Exception as error:
            answers.append(error)
    return answers


def _deliver(replica: Replica, rest: Sequence[_Rest], answers: list[Frames | Exception | None] | Exception) -> None:
    answers = unless_stopped(replica, answers)
    for number, one in enumerate(rest):
        answer = answers if isinstance(answers, Exception) else answers[number]
        if answer is not None:
            one.lookup.done(answer)
