"""Looks up the rows of keys in the replicas of a node.

The requests for the latest rows of one replica in one turn of the loop share one read index. It is asked for at the end
of the turn, and so after all of them have arrived. Rows in memory are returned on the event loop. What needs the disk
goes to the pool for scans, in one piece for all requests that were answered by the same read index. Requests that were
given up before a thread comes to them are not read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import NamedTuple, Protocol, TypeAlias

from stelae.host.ports import BlockingPool, Turns
from stelae.host.replica import Replica
from stelae.host.replica_state import ReplicaState
from stelae.protocol.lookup_messages import LookupRequest, encode_found
from stelae.protocol.tablet_messages import ScanRequest
from stelae.server.tserver.scan_time import ReadNode, choose_time
from stelae.spi.errors import StelaeError, Unavailable
from stelae.spi.scan import ScanSpec
from stelae.spi.store import FoundRows, TabletStore

Done: TypeAlias = Callable[[bytes | Exception], None]
"""Gets the encoded ``LookupReply``, or the error."""

_NOT_SERVING = (ReplicaState.FAILED, ReplicaState.STOPPING)


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
    found: FoundRows


class Lookups:
    """Looks up keys in the replicas of one node, on its event loop.

    Args:
        node: its clock, its turns and its pool for scans.
    """

    def __init__(self, node: LookupNode) -> None:
        self._node = node
        self._waiting: dict[Replica, list[_Lookup]] = {}
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
        """Answer what can be answered at once, and pass the rest to the pool."""
        if replica.state in _NOT_SERVING:
            at = _stopped(replica)
        if isinstance(at, StelaeError):
            for lookup in lookups:
                lookup.done(at)
            return
        store = replica.applier.store
        rest: list[_Rest] = []
        for lookup in lookups:
            try:
                found = store.lookup_inline(lookup.asked.keys, at)
            except Exception as error:
                lookup.done(error)
                continue
            if found.unread:
                rest.append(_Rest(lookup, found))
            else:
                lookup.done(encode_found(lookup.asked, found))
        if rest:
            work = partial(_read_all, store, rest, at)
            self._node.scans.run(f"lookup/{next(self._numbers)}", work, partial(_deliver, replica, rest))


def _read_all(store: TabletStore, rest: Sequence[_Rest], at: int) -> list[bytes | Exception | None]:
    """Return the answer or the error of each request; ``None``: it was given up. Blocks."""
    answers: list[bytes | Exception | None] = []
    for lookup, found in rest:
        if not lookup.is_open():
            answers.append(None)
            continue
        try:
            answers.append(encode_found(lookup.asked, _completed(store, lookup.asked.keys, found, at)))
        except Exception as error:
            answers.append(error)
    return answers


def _completed(store: TabletStore, keys: Sequence[bytes], found: FoundRows, at: int) -> FoundRows:
    """Return the rows of all keys, of which ``found`` has some. Blocks."""
    if len(found.unread) < len(keys):
        read = store.lookup([keys[position] for position in found.unread], at)
        if read.schema.version == found.schema.version:
            rows = list(found.rows)
            for position, row in zip(found.unread, read.rows, strict=True):
                rows[position] = row
            return FoundRows(found.schema, rows)
    return store.lookup(keys, at)


def _deliver(replica: Replica, rest: Sequence[_Rest], answers: list[bytes | Exception | None] | Exception) -> None:
    if replica.state in _NOT_SERVING:
        answers = _stopped(replica)
    for number, one in enumerate(rest):
        answer = answers if isinstance(answers, Exception) else answers[number]
        if answer is not None:
            one.lookup.done(answer)


def _stopped(replica: Replica) -> Unavailable:
    """Return the answer of a replica whose store may have been closed meanwhile. A closed store has no rows."""
    return Unavailable(f"the replica is {replica.state.value}; try again")
