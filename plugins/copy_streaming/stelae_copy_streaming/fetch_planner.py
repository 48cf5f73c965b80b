"""Decides what a copy asks for next, from which source, and what an answer means. Pure: time is an argument.

The driver (``copy_run``) calls ``next_request`` and ``sent``, ``answered`` for each answer, and ``finished`` or
``not_as_digest`` after the sink has looked at an item. The planner returns what is to be done with the sink as a list
of ``SinkCall``, in order.

Each item is fetched from one source at a time, in order. Different items are fetched from different sources at the same
time. An item whose source is lost continues from another one. Its digest decides whether the bytes of several sources,
and of an earlier run, belong together; if they do not, the item is fetched again as a whole."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import TypeAlias

from crc32c import crc32c

from stelae.spi.copy import ChecksumPart, FetchChunk, KeepAlive, PartChecksum, SourceAnswer, SourceRequest
from stelae.spi.copy_plan import Chunk, CopyPlan, CopySessionEnded, Interruption, Partial, Refused, SourceDamaged
from stelae.spi.errors import StelaeError
from stelae.spi.ids import NodeId
from stelae_copy_streaming.fetch_sources import DAMAGED_CHUNKS_MAX, FetchSource, passes
from stelae_copy_streaming.fetched_item import FetchedItem

FENCED = "FENCED"  #: The code of ``Refused`` if no source has reached the fences.


@dataclass(frozen=True, slots=True)
class Write:
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


SinkCall: TypeAlias = Write | Finish | Discard


@dataclass(frozen=True, slots=True)
class Request:
    """A request to send. ``size_bytes`` must be admitted before; 0: nothing needs to be admitted."""

    source: NodeId
    body: SourceRequest
    size_bytes: int
    number: int  #: Of the source.
    item: FetchedItem | None


@dataclass(slots=True)
class _Asked:
    request: Request
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
        self._active: dict[str, FetchedItem] = {}  # Those that have a source.
        self._sources = [FetchSource(offer, heard_us=now_us) for offer in plan.offers]
        for source in self._sources:
            source.missing_count = sum(source.has(item.unit) for item in self._waiting.values())
        #: The bytes that are not written yet.
        self.bytes_left = sum(item.bytes_left for item in self._waiting.values())
        self._tickets = count(1)
        self._asked: dict[int, _Asked] = {}
        self._damaged: tuple[NodeId, str, str] | None = None
        for source in self._sources:
            if (refusal := plan.fences.refusal(source.offer.snapshot)) is not None:
                source.lose(None, FENCED, refusal)

    @property
    def complete(self) -> bool:
        """Whether every item is durable."""
        return not self._waiting and not self._active

    # -- requests --------------------------------------------------------------------------------

    def next_request(self, now_us: int) -> Request | None:
        """Return the next request to send now, or ``None``. ``sent`` must follow before the next call."""
        for number, source in enumerate(self._sources):
            if source.lost is None and not source.keeping and now_us >= source.keep_alive_due_us():
                return Request(source.offer.source, KeepAlive(source.offer.session), 0, number, None)
        if self._chunks_waiting() >= self._chunks_max:
            return None
        return next(self._item_requests(now_us), None)

    def sent(self, request: Request) -> int:
        """Note that a request is sent now. Return its ticket."""
        source, item, ticket = self._sources[request.number], request.item, next(self._tickets)
        self._asked[ticket] = _Asked(request, item.epoch if item is not None else 0)
        if isinstance(request.body, KeepAlive):
            source.keeping = True
            return ticket
        assert item is not None
        if item.source is None:
            item.source = request.number
            self._active[item.unit.name] = self._waiting.pop(item.unit.name)
        source.in_flight += 1
        if isinstance(request.body, FetchChunk):
            item.asked(request.body.offset, request.body.bytes_max)
        else:
            item.checking = True
        return ticket

    def next_deadline(self, now_us: int) -> int:
        """Return when ``next_request`` may have something to send although no answer has arrived."""
        due = [max(s.keep_alive_due_us(), now_us) for s in self._sources if s.lost is None and not s.keeping]
        due += [s.not_before_us for s in self._sources if s.lost is None and s.not_before_us > now_us]
        return min(due, default=now_us + 1_000_000)

    def _item_requests(self, now_us: int) -> Iterator[Request]:
        useful = sum(source.usable(now_us) and source.missing_count > 0 for source in self._sources)
        share = max(self._chunks_max // max(useful, 1), 1)
        for item in self._active.values():
            number = item.source
            assert number is not None, "an active item has a source"
            if self._sources[number].usable(now_us) and self._sources[number].in_flight < share:
                request = self._request_for(item, number)
                if request is not None:
                    yield request
        free = [s for s in self._sources if s.usable(now_us) and s.missing_count and s.in_flight < share]
        for item in self._waiting.values() if free else ():
            source = min((s for s in free if s.has(item.unit)), key=lambda s: s.in_flight, default=None)
            request = self._request_for(item, self._sources.index(source)) if source is not None else None
            if request is not None:
                yield request

    def _request_for(self, item: FetchedItem, number: int) -> Request | None:
        offer, name = self._sources[number].offer, item.unit.name
        if item.checking:
            return None
        if item.unchecked:
            return Request(offer.source, ChecksumPart(offer.session, name, item.stored), 0, number, item)
        if (found := item.next_range(self._chunk_bytes)) is None:
            return None
        offset, size_bytes = found
        return Request(offer.source, FetchChunk(offer.session, name, offset, size_bytes), size_bytes, number, item)

    def _chunks_waiting(self) -> int:
        return sum(s.in_flight for s in self._sources) + sum(i.buffered for i in self._active.values())

    # -- answers ---------------------------------------------------------------------------------

    def answered(self, ticket: int, answer: SourceAnswer | StelaeError, now_us: int) -> list[SinkCall]:
        """Take the answer to a request. An unknown ticket is ignored. Return what to do with the sink."""
        asked = self._asked.pop(ticket, None)
        if asked is None:
            return []
        request, source = asked.request, self._sources[asked.request.number]
        if isinstance(request.body, KeepAlive):
            source.keeping = False
        else:
            source.in_flight -= 1
        item = request.item
        stale = item is None or item.epoch != asked.epoch or item.unit.name not in self._active
        if isinstance(answer, StelaeError):
            if item is not None and not stale:
                self._ask_again(item, request.body)
            self._source_failed(request.number, answer, now_us, request)
            return []
        source.answered(now_us)
        if item is None or stale:
            return []
        if isinstance(request.body, ChecksumPart):
            return self._part_checked(item, answer)
        assert isinstance(request.body, FetchChunk)
        return self._chunk_arrived(item, source, request.body, answer)

    def finished(self, item: str) -> None:
        """Note that an item is durable."""
        found = self._active.pop(item)
        for source in self._sources:
            source.missing_count -= source.has(found.unit)

    def not_as_digest(self, item: str, detail: str) -> None:
        """Note that an item does not have its digest. The sink has forgotten it.

        If one source sent all of it, that source is damaged. Otherwise it is fetched again as a whole."""
        found = self._active[item]
        number = found.source
        if found.of_one_source and number is not None:
            self._source_damaged(number, item, detail)
        self._restart(found)

    def _part_checked(self, item: FetchedItem, answer: SourceAnswer) -> list[SinkCall]:
        item.checking = item.unchecked = False
        if isinstance(answer, PartChecksum) and answer.crc == self._part_crcs.get(item.unit.name):
            return []
        self._restart(item)
        return [Discard(item.unit.name)]

    def _restart(self, item: FetchedItem) -> None:
        self.bytes_left += item.stored
        item.restart()
        self._deactivate(item)

    def _deactivate(self, item: FetchedItem) -> None:
        name = item.unit.name
        if self._active.pop(name, None) is not None:
            self._waiting[name] = item
            self._waiting.move_to_end(name, last=False)

    def _chunk_arrived(
        self, item: FetchedItem, source: FetchSource, asked: FetchChunk, answer: SourceAnswer
    ) -> list[SinkCall]:
        name, wanted = item.unit.name, asked.bytes_max
        if not isinstance(answer, Chunk) or not _undamaged(answer, asked):
            item.missing(asked.offset, wanted)
            source.damaged_chunks += 1
            if source.damaged_chunks >= DAMAGED_CHUNKS_MAX:
                self._lose(source, Interruption.SOURCES_LOST, "CORRUPT", f"chunks of {name} always arrive damaged")
            return []
        source.damaged_chunks = 0
        calls: list[SinkCall] = [Write(name, at, data) for at, data in item.arrived(asked.offset, wanted, answer.data)]
        self.bytes_left -= sum(len(call.data) for call in calls if isinstance(call, Write))
        if not item.bytes_left:
            calls.append(Finish(name))
        return calls

    def _ask_again(self, item: FetchedItem, body: SourceRequest) -> None:
        if isinstance(body, FetchChunk):
            item.missing(body.offset, body.bytes_max)
        else:
            item.checking = False

    # -- sources ---------------------------------------------------------------------------------

    def _source_failed(self, number: int, error: StelaeError, now_us: int, request: Request) -> None:
        source = self._sources[number]
        code = str(getattr(error, "remote_code", error.code))
        if isinstance(error, CopySessionEnded):
            self._lose(source, Interruption.SESSIONS_ENDED, code, f"{source.offer.source}: {error}")
        elif code == "CORRUPT":
            name = request.item.unit.name if request.item is not None else ""
            self._source_damaged(number, name, str(error))
        elif passes(error):
            source.failed(error, now_us)
            if source.lost is not None:
                self._leave(source)
        else:
            self._lose(source, None, code, f"{source.offer.source}: {error}")

    def _source_damaged(self, number: int, item: str, detail: str) -> None:
        source = self._sources[number]
        self._damaged = self._damaged or (source.offer.source, item, detail)
        self._lose(source, Interruption.SOURCES_LOST, "CORRUPT", detail)

    def _lose(self, source: FetchSource, why: Interruption | None, code: str, reason: str) -> None:
        source.lose(why, code, reason)
        self._leave(source)

    def _leave(self, source: FetchSource) -> None:
        number = self._sources.index(source)
        for item in [item for item in self._active.values() if item.source == number]:
            item.leave_source()
            self._deactivate(item)

    # -- the end ---------------------------------------------------------------------------------

    def ended(self, have: Mapping[str, str], fetched: bool) -> Partial | SourceDamaged | Refused | None:
        """Return the outcome if no remaining source has any of the missing items, else ``None``.

        ``have`` are the durable items, and ``fetched`` says whether this run has received anything."""
        alive = [source for source in self._sources if source.lost is None]
        if self.complete or any(source.missing_count for source in alive):
            return None
        if self._damaged is not None:
            node, item_name, detail = self._damaged
            return SourceDamaged(source=node, item=item_name, detail=detail, have=have)
        losses = [source.lost for source in self._sources if source.lost is not None]
        reason = "; ".join(text for _, _, text in losses) or "no source has the missing items"
        reasons = [why for why, _, _ in losses if why is not None]
        if not reasons and not fetched and losses:
            return Refused(code=losses[0][1], reason=reason)
        ended = Interruption.SESSIONS_ENDED in reasons
        why = Interruption.SESSIONS_ENDED if ended else Interruption.SOURCES_LOST
        return Partial(why=why, have=have, reason=reason)


def _undamaged(chunk: Chunk, asked: FetchChunk) -> bool:
    right_range = chunk.offset == asked.offset and 0 < len(chunk.data) <= asked.bytes_max
    return right_range and crc32c(chunk.data) == chunk.crc


def refusal_of(plan: CopyPlan) -> Refused | None:
    """Return the outcome if the snapshot that would be copied must not be used."""
    if not plan.offers:
        return Refused(code="NO_SOURCE", reason="the plan has no source")
    fenced = plan.fences.refusal(plan.offers[0].snapshot)
    return None if fenced is None else Refused(code=FENCED, reason=fenced)
