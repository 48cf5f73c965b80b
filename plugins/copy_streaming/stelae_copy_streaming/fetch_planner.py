"""Decides what a copy asks its source for next, and what an answer means. Pure: time is an argument.

The driver (``copy_run``) calls ``next_request`` and ``sent``, ``answered`` for each answer, and ``finished`` or
``not_as_digest`` after the sink has looked at an item. The planner returns what is to be done with the sink as a list
of ``SinkCall``, in order.

The bytes of an item are asked for in order, of several items at a time. The digest of an item decides whether what an
earlier run has stored, perhaps from another source, belongs to the rest. If it does not, the item is fetched again as a
whole. A run ends when its source is lost; the kernel begins the next one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, count
from typing import TypeAlias

from crc32c import crc32c

from stelae.spi.copy import FetchChecksum, FetchChunk, KeepAlive, PrefixChecksum, SourceAnswer, SourceRequest
from stelae.spi.copy_plan import Chunk, CopyPlan, CopySessionEnded, Interruption, Partial, Refused, SourceDamaged
from stelae.spi.errors import StelaeError
from stelae_copy_streaming.fetch_source import DAMAGED_CHUNKS_MAX, FetchSource, passes
from stelae_copy_streaming.fetched_item import FetchedItem

FENCED = "FENCED"  #: The code of ``Refused`` if the source has not reached the fences.


@dataclass(frozen=True, slots=True)
class StoreBytes:
    """Store bytes of an item."""

    item: str
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Finish:
    """All bytes of an item are written: verify it and make it durable."""

    item: str


@dataclass(frozen=True, slots=True)
class Discard:
    """Forget the stored bytes of an item."""

    item: str


SinkCall: TypeAlias = StoreBytes | Finish | Discard


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """A request to send. ``size_bytes`` must be admitted before; 0: nothing needs to be admitted."""

    body: SourceRequest
    size_bytes: int
    item: FetchedItem | None


@dataclass(slots=True)
class _Asked:
    request: FetchRequest
    epoch: int


class FetchPlanner:
    """The plan of one run.

    Args:
        plan: what to fetch from where.
        missing: the items of the plan that are not durable, each with the bytes that are stored, fewer than its size.
        part_crcs: the checksum of the stored bytes of each item that has any.
        chunk_bytes: the size of a chunk.
        chunks_max: how many chunks may be asked for or wait in memory at a time.
        now_us: the present time."""

    def __init__(
        self,
        plan: CopyPlan,
        missing: Mapping[str, int],
        part_crcs: Mapping[str, int],
        *,
        chunk_bytes: int,
        chunks_max: int,
        now_us: int,
    ) -> None:
        self._plan = plan
        self._chunk_bytes = chunk_bytes
        self._chunks_max = chunks_max
        self._part_crcs = part_crcs
        # Ordered, because items leave at the front: a plain dict would then be walked over what has left.
        self._waiting = OrderedDict((u.name, FetchedItem(u, missing[u.name])) for u in plan.items if u.name in missing)
        self._active: dict[str, FetchedItem] = {}  # Those that were asked for.
        self._source = FetchSource(plan.offer, heard_us=now_us)
        #: The bytes that are not written yet.
        self.bytes_left = sum(item.bytes_left for item in self._waiting.values())
        self._tickets = count(1)
        self._asked: dict[int, _Asked] = {}
        self._damaged: tuple[str, str] | None = None  # An item, and what is wrong with it.

    @property
    def complete(self) -> bool:
        """Whether every item is durable."""
        return not self._waiting and not self._active

    # -- requests --------------------------------------------------------------------------------

    def next_request(self, now_us: int) -> FetchRequest | None:
        """Return the next request to send now, or ``None``. ``sent`` must follow before the next call."""
        source = self._source
        if source.lost is None and not source.keeping and now_us >= source.keep_alive_due_us():
            return FetchRequest(KeepAlive(source.offer.session), 0, None)
        if not source.usable(now_us) or self._chunks_waiting() >= self._chunks_max:
            return None
        items = chain(self._active.values(), self._waiting.values())
        return next((found for item in items if (found := self._request_for(item)) is not None), None)

    def sent(self, request: FetchRequest) -> int:
        """Note that a request is sent now. Return its ticket."""
        source, item, ticket = self._source, request.item, next(self._tickets)
        self._asked[ticket] = _Asked(request, item.epoch if item is not None else 0)
        if item is None:
            source.keeping = True
            return ticket
        if (waiting := self._waiting.pop(item.unit.name, None)) is not None:
            self._active[item.unit.name] = waiting
        source.in_flight += 1
        if isinstance(request.body, FetchChunk):
            item.asked(request.body.offset, request.body.bytes_max)
        else:
            item.checking = True
        return ticket

    def next_deadline(self, now_us: int) -> int:
        """Return when ``next_request`` may have something to send although no answer has arrived."""
        source, due = self._source, [now_us + 1_000_000]
        if source.lost is None and not source.keeping:
            due.append(max(source.keep_alive_due_us(), now_us))
        if source.lost is None and source.not_before_us > now_us:
            due.append(source.not_before_us)
        return min(due)

    def _request_for(self, item: FetchedItem) -> FetchRequest | None:
        session, name = self._source.offer.session, item.unit.name
        if item.checking:
            return None
        if item.unchecked:
            return FetchRequest(FetchChecksum(session, name, item.stored), 0, item)
        if (found := item.next_range(self._chunk_bytes)) is None:
            return None
        offset, size_bytes = found
        return FetchRequest(FetchChunk(session, name, offset, size_bytes), size_bytes, item)

    def _chunks_waiting(self) -> int:
        return self._source.in_flight + sum(i.buffered for i in self._active.values())

    # -- answers ---------------------------------------------------------------------------------

    def answered(self, ticket: int, answer: SourceAnswer | StelaeError, now_us: int) -> list[SinkCall]:
        """Take the answer to a request. An unknown ticket is ignored. Return what to do with the sink."""
        asked = self._asked.pop(ticket, None)
        if asked is None:
            return []
        request, source = asked.request, self._source
        if isinstance(request.body, KeepAlive):
            source.keeping = False
        else:
            source.in_flight -= 1
        item = request.item
        stale = item is None or item.epoch != asked.epoch or item.unit.name not in self._active
        if isinstance(answer, StelaeError):
            if item is not None and not stale:
                self._ask_again(item, request.body)
            self._source_failed(answer, now_us, request)
            return []
        source.answered(now_us)
        if item is None or stale:
            return []
        if isinstance(request.body, FetchChecksum):
            return self._part_checked(item, answer)
        assert isinstance(request.body, FetchChunk)
        return self._chunk_arrived(item, request.body, answer)

    def finished(self, item: str) -> None:
        """Note that an item is durable."""
        del self._active[item]

    def not_as_digest(self, item: str, detail: str) -> None:
        """Note that an item does not have its digest. The sink has forgotten it.

        If this source sent all of it, the source is damaged. Otherwise it is fetched again as a whole."""
        found = self._active[item]
        if found.of_one_source:
            self._source_damaged(item, detail)
        self._restart(found)

    def _part_checked(self, item: FetchedItem, answer: SourceAnswer) -> list[SinkCall]:
        item.checking = item.unchecked = False
        if isinstance(answer, PrefixChecksum) and answer.crc == self._part_crcs.get(item.unit.name):
            return []
        self._restart(item)
        return [Discard(item.unit.name)]

    def _restart(self, item: FetchedItem) -> None:
        self.bytes_left += item.stored
        item.restart()

    def _chunk_arrived(self, item: FetchedItem, asked: FetchChunk, answer: SourceAnswer) -> list[SinkCall]:
        source, name, wanted = self._source, item.unit.name, asked.bytes_max
        if not isinstance(answer, Chunk) or not _undamaged(answer, asked):
            item.missing(asked.offset, wanted)
            source.damaged_chunks += 1
            if source.damaged_chunks >= DAMAGED_CHUNKS_MAX:
                source.lose(Interruption.SOURCE_LOST, "CORRUPT", f"chunks of {name} always arrive damaged")
            return []
        source.damaged_chunks = 0
        calls: list[SinkCall] = [
            StoreBytes(name, at, data) for at, data in item.arrived(asked.offset, wanted, answer.data)
        ]
        self.bytes_left -= sum(len(call.data) for call in calls if isinstance(call, StoreBytes))
        if not item.bytes_left:
            calls.append(Finish(name))
        return calls

    def _ask_again(self, item: FetchedItem, body: SourceRequest) -> None:
        if isinstance(body, FetchChunk):
            item.missing(body.offset, body.bytes_max)
        else:
            item.checking = False

    # -- the source ------------------------------------------------------------------------------

    def _source_failed(self, error: StelaeError, now_us: int, request: FetchRequest) -> None:
        source = self._source
        code = str(getattr(error, "remote_code", error.code))
        if isinstance(error, CopySessionEnded):
            source.lose(Interruption.SESSION_ENDED, code, f"{source.offer.source}: {error}")
        elif code == "CORRUPT":
            self._source_damaged(request.item.unit.name if request.item is not None else "", str(error))
        elif passes(error):
            source.failed(error, now_us)
        else:
            source.lose(None, code, f"{source.offer.source}: {error}")

    def _source_damaged(self, item: str, detail: str) -> None:
        self._damaged = self._damaged or (item, detail)
        self._source.lose(Interruption.SOURCE_LOST, "CORRUPT", detail)

    # -- the end ---------------------------------------------------------------------------------

    def ended(self, *, fetched: bool) -> Partial | SourceDamaged | Refused | None:
        """Return the outcome if the source is lost and items are missing, else ``None``.

        ``fetched`` says whether this run has received anything."""
        if self.complete or self._source.lost is None:
            return None
        if self._damaged is not None:
            item, detail = self._damaged
            return SourceDamaged(source=self._source.offer.source, item=item, detail=detail)
        why, code, reason = self._source.lost
        if why is None and not fetched:
            return Refused(code=code, reason=reason)
        return Partial(why=why or Interruption.SOURCE_LOST, reason=reason)


def _undamaged(chunk: Chunk, asked: FetchChunk) -> bool:
    right_range = chunk.offset == asked.offset and 0 < len(chunk.data) <= asked.bytes_max
    return right_range and crc32c(chunk.data) == chunk.crc


def refusal_of(plan: CopyPlan) -> Refused | None:
    """Return the outcome if the snapshot must not be used."""
    fenced = plan.fences.refusal(plan.offer.snapshot)
    return None if fenced is None else Refused(code=FENCED, reason=fenced)
