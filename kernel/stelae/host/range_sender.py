"""Sends the ranges that a leader's core asks for: from the entry cache, or read from the log.

Ordering
    The ranges to one peer are sent in the order in which they were asked for, one read at a time. A range in the cache
    waits for earlier ones that are being read; otherwise the peer would refuse it, because entries are missing.

    A range that does not continue the one before it says that the core has begun again: it has given up what it asked
    for earlier. Ranges to this peer that still wait are dropped then. Otherwise a log that is read more slowly than the
    core repeats its requests would be read ever further behind: each repetition would add ranges that are not needed.

    A read goes on for a range that begins again at the same entry, and its result is sent with that range. Otherwise
    such a log would be read again and again, and never sent. The result of any other read is dropped."""

from collections import deque

from stelae.host.entry_cache import EntryCache
from stelae.host.ports import LogReader, PeerNetwork, ReadySink
from stelae.spi.consensus import Outbound, Range
from stelae.spi.consensus_events import RangeCompacted, RangeSent
from stelae.spi.errors import Compacted, StelaeError
from stelae.spi.ids import LogId, NodeId, OpId
from stelae.spi.log import Entry


class RangeSender:
    """Sends the ranges of one replica, on the event loop.

    ``term`` is the core's term. The executor sets it before it passes on a range of that term."""

    def __init__(
        self,
        log: LogId,
        reader: LogReader,
        network: PeerNetwork,
        sink: ReadySink,
        cache: EntryCache,
        range_bytes_max: int,
    ) -> None:
        self.term = 0
        self._log = log
        self._reader = reader
        self._network = network
        self._sink = sink
        self._cache = cache
        self._range_bytes_max = range_bytes_max
        #: The ranges to each peer that are not sent yet. The entries of the first one are being read.
        self._waiting: dict[NodeId, deque[Range]] = {}
        #: The range for which the present read of each peer was begun.
        self._reading: dict[NodeId, Range] = {}

    def send(self, asked: Range) -> None:
        """Send a range, or let it wait for those before it. It is dropped if the log has changed."""
        waiting = self._waiting.setdefault(asked.to, deque())
        read_goes_on = bool(waiting)
        if waiting and waiting[-1].last != asked.prev:
            first = waiting[0]
            read_goes_on = (first.term, first.prev) == (asked.term, asked.prev)
            waiting.clear()
        waiting.append(asked)
        if not read_goes_on:
            self._reading.pop(asked.to, None)
            self._send_waiting(asked.to)

    def _send_waiting(self, peer: NodeId) -> None:
        """Send what waits for a peer, until entries must be read."""
        waiting = self._waiting[peer]
        while waiting:
            asked = waiting[0]
            if not self._matches_log(asked):
                waiting.popleft()
                self._sink.deliver(RangeSent(peer, asked.last, None))
                continue
            first, end = asked.prev.index + 1, asked.last.index + 1
            entries = self._cache.get(first, end, self._range_bytes_max) if first < end else []
            if entries is None:
                self._read(asked, first, min(end, self._cache.first_index))
                return
            waiting.popleft()
            self._send_entries(asked, entries)

    def _matches_log(self, asked: Range) -> bool:
        """Return whether both ends of a range are still in the log, with the same terms (``durability.md`` rule 2).

        Within one term the leader's log only grows. So old, durable entries that the cache no longer has cannot have
        changed either."""
        if asked.term != self.term or asked.last.index >= self._cache.end_index:
            return False
        for op_id in (asked.prev, asked.last):
            cached = self._cache.op_id_at(op_id.index)
            if cached is not None and cached != op_id:
                return False
        return True

    def _read(self, asked: Range, first: int, end: int) -> None:
        peer, waiting = asked.to, self._waiting[asked.to]
        self._reading[peer] = asked

        def arrived(result: list[Entry] | StelaeError) -> None:
            if self._reading.get(peer) is not asked:
                return  # The core has begun again elsewhere meanwhile.
            del self._reading[peer]
            newest = waiting.popleft()
            if isinstance(result, list) and self._matches_log(newest):
                self._send_entries(newest, [entry for entry in result if entry.op_id.index <= newest.last.index])
            elif isinstance(result, Compacted):
                self._sink.deliver(RangeCompacted(peer, newest.last, OpId(*result.base)))
            else:
                self._sink.deliver(RangeSent(peer, newest.last, None))
            self._send_waiting(peer)

        self._reader.read(self._log, first, end, self._range_bytes_max, arrived)

    def _send_entries(self, asked: Range, entries: list[Entry]) -> None:
        outbound = Outbound(asked.to, asked.message, asked.term)
        self._network.send(self._log.tablet_id, outbound, entries)
        through = entries[-1].op_id if entries else asked.prev
        if through != asked.last:
            self._sink.deliver(RangeSent(asked.to, asked.last, through))
