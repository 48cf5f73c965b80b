"""A world for copy transports without threads, disks, sockets and real time.

``CopyWorld`` has a clock, sources that serve snapshots in memory, and the network between them and one target. Time
passes only while a target waits, and with ``pass_ms``. Every message takes ``latency_us``. Faults are set on the
network: chunks that are damaged, requests that are lost or slow, sources that are gone."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

import msgspec
from crc32c import crc32c

from stelae.spi.copy import CopySource, CopyTarget, FetchChunk, SessionKey, SourceAnswer, SourceRequest
from stelae.spi.copy_plan import Chunk, CopyOffer, CopyOutcome, CopyPlan, CopyProgress, CopySnapshot, Fences
from stelae.spi.errors import Corrupt, DeadlineExceeded, Full, StelaeError, Unavailable
from stelae.spi.ids import ZERO, LogId, NodeId, OpId, TabletId
from stelae.spi.members import TabletConfig
from stelae.spi.services import Buffer
from stelae.spi.wal import SnapshotUnit
from stelae.wire.refusals import error_fields, error_of

TABLET = TabletId("t1")
TARGET = NodeId("f" * 32)
NO_FENCES = Fences(tombstone=ZERO, config_op_id=ZERO)
LOST_US = 2_000_000  #: After this time without an answer, a request has failed.
RUN_US_MAX = 600_000_000  #: A run that takes longer in virtual time hangs.
ASKED_MAX = 5_000  #: A run with more requests than this never ends.


class ManualClock:
    """A ``Clock`` that is moved by hand."""

    def __init__(self) -> None:
        self.now_us = 1_000_000

    def monotonic_us(self) -> int:
        return self.now_us

    def wall_us(self) -> int:
        return self.now_us


def unit_of(name: str, data: bytes) -> SnapshotUnit:
    """Return the description of an item with these bytes."""
    return SnapshotUnit(name=name, size_bytes=len(data), digest=hashlib.sha256(data).hexdigest())


def snapshot_of(items: Mapping[str, bytes], *, last: OpId = OpId(3, 30), config: OpId = OpId(2, 5)) -> CopySnapshot:
    """Return the description of a snapshot with these items."""
    return CopySnapshot(
        tablet_id=TABLET,
        log=LogId(TABLET, 1),
        base=OpId(3, 20),
        last=last,
        term=last.term,
        committed_config=TabletConfig(op_id=config, members=()),
        facts=b"facts",
        items=tuple(unit_of(name, data) for name, data in items.items()),
    )


class MemoryContent:
    """A ``CopyContent`` in memory.

    ``bytes_of`` may be changed after the snapshot was described: the source is then damaged. ``on_read`` is called
    before each read, and may raise. ``read_bytes`` is the number of bytes that were asked for."""

    def __init__(self, items: Mapping[str, bytes], snapshot: CopySnapshot | None = None) -> None:
        self.bytes_of = dict(items)
        self._snapshot = snapshot or snapshot_of(items)
        self.on_read: Callable[[str], None] = lambda item: None
        self.released = 0
        self.read_bytes = 0

    @property
    def snapshot(self) -> CopySnapshot:
        return self._snapshot

    def read(self, item: str, offset: int, size_bytes: int) -> bytes:
        assert not self.released, "a released snapshot was read"
        self.on_read(item)
        self.read_bytes += size_bytes
        return self.bytes_of[item][offset : offset + size_bytes]

    def release(self) -> None:
        self.released += 1
        assert self.released == 1, "a snapshot was released twice"


class MemorySink:
    """A ``CopySink`` in memory. It refuses writes that are out of order, and what does not fit into ``space_bytes``."""

    def __init__(self, items: Sequence[SnapshotUnit]) -> None:
        self.units = {unit.name: unit for unit in items}
        self.parts: dict[str, bytearray] = {}
        self.durable: dict[str, bytes] = {}
        self.space_bytes = 1 << 40
        self.written_bytes = 0

    @property
    def have(self) -> dict[str, str]:
        """The digests of the durable items."""
        return {name: hashlib.sha256(data).hexdigest() for name, data in self.durable.items()}

    def stored(self, item: str) -> int:
        return len(self.parts.get(item, b""))

    def checksum(self, item: str) -> int:
        return crc32c(bytes(self.parts[item]))

    def write(self, item: str, offset: int, data: Buffer) -> None:
        assert item in self.units, f"{item} is not in the plan"
        assert item not in self.durable, f"{item} is durable and was written again"
        part = self.parts.setdefault(item, bytearray())
        assert offset == len(part), f"{item} has {len(part)} bytes, but {offset} was written"
        if self.written_bytes + len(data) > self.space_bytes:
            raise Full("the stage is full")
        part += data
        self.written_bytes += len(data)

    def finish(self, item: str) -> None:
        data = bytes(self.parts.pop(item, b""))
        if hashlib.sha256(data).hexdigest() != self.units[item].digest:
            raise Corrupt(f"{item} does not have its digest")
        self.durable[item] = data

    def discard(self, item: str) -> None:
        self.parts.pop(item, None)


@dataclass
class MemoryControl:
    """A ``CopyControl``. Conditions are asked with the present time, in microseconds."""

    clock: ManualClock
    cancelled_when: Callable[[], bool] = lambda: False
    paused_when: Callable[[], bool] = lambda: False
    reports: list[CopyProgress] = field(default_factory=list)
    admitted_bytes: int = 0

    def admit(self, size_bytes: int) -> int:
        if self.paused_when():
            return 10_000
        self.admitted_bytes += size_bytes
        return 0

    def cancelled(self) -> bool:
        return self.cancelled_when()

    def progress(self, progress: CopyProgress) -> None:
        self.reports.append(progress)


@dataclass
class CopyFaults:
    """The faults of the network. Each is asked with the node of the source and the request."""

    damage: Callable[[NodeId, SourceRequest, Chunk], SourceAnswer] = lambda node, request, chunk: chunk
    lost: Callable[[NodeId, SourceRequest], bool] = lambda node, request: False
    delay_us: Callable[[NodeId, SourceRequest], int] = lambda node, request: 0
    gone: set[NodeId] = field(default_factory=set)  #: Nodes that do not answer: their connection is lost.


class WorldNetwork:
    """A ``CopyNetwork``. It notes what was asked, and lets the time pass. Errors arrive as they do over the wire."""

    def __init__(self, world: CopyWorld) -> None:
        self._world = world
        self._order = count()
        self._due: list[tuple[int, int, int, SourceAnswer | StelaeError]] = []
        self._began_us = world.clock.now_us
        self.asked: list[tuple[int, NodeId, SourceRequest]] = []

    def ask(self, ticket: int, source: NodeId, request: SourceRequest) -> None:
        world, faults = self._world, self._world.faults
        assert len(self.asked) < ASKED_MAX, "the run asks again and again"
        self.asked.append((world.clock.now_us, source, request))
        answer: SourceAnswer | StelaeError
        when_us = world.clock.now_us + world.latency_us + faults.delay_us(source, request)
        if source in faults.gone or source not in world.sources:
            answer = Unavailable(f"{source} is not connected")
        elif faults.lost(source, request):
            when_us, answer = world.clock.now_us + LOST_US, DeadlineExceeded("no answer")
        else:
            answer = self._served(source, request)
        heappush(self._due, (when_us, next(self._order), ticket, answer))

    def wait(self, timeout_us: int) -> Sequence[tuple[int, SourceAnswer | StelaeError]]:
        assert timeout_us > 0, "a wait without a time-out"
        clock = self._world.clock
        end_us = clock.now_us + timeout_us
        until_us = min(end_us, self._due[0][0]) if self._due else end_us
        self._world.pass_us(max(until_us - clock.now_us, 0))
        assert clock.now_us - self._began_us < RUN_US_MAX, "the run does not end"
        found = []
        while self._due and self._due[0][0] <= clock.now_us:
            _, _, ticket, answer = heappop(self._due)
            found.append((ticket, answer))
        return found

    def chunks(self, source: NodeId | None = None) -> list[FetchChunk]:
        """Return the requests for chunks so far, of all sources or of one."""
        wanted = [request for _, node, request in self.asked if source in (None, node)]
        return [request for request in wanted if isinstance(request, FetchChunk)]

    def fetched(self, item: str) -> int:
        """Return how many bytes of an item were asked for."""
        return sum(request.bytes_max for request in self.chunks() if request.item == item)

    def _served(self, source: NodeId, request: SourceRequest) -> SourceAnswer | StelaeError:
        try:
            answer = self._world.sources[source].answer(TARGET, request)
        except StelaeError as error:
            return error_of(error_fields(error))
        return self._world.faults.damage(source, request, answer) if isinstance(answer, Chunk) else answer


class CopyWorld:
    """Sources with snapshots, and a target that copies from them.

    Args:
        clock: the clock of all of them.
        target: the target under test."""

    def __init__(self, clock: ManualClock, target: CopyTarget) -> None:
        self.clock = clock
        self.target = target
        self.sources: dict[NodeId, CopySource] = {}
        self.contents: dict[NodeId, MemoryContent] = {}
        self.faults = CopyFaults()
        self.latency_us = 1_000
        self.network = WorldNetwork(self)
        self.control = MemoryControl(clock)
        self._expired_us = clock.now_us

    def offer(self, node: NodeId, source: CopySource, content: MemoryContent) -> CopyOffer:
        """Begin a session at a source, or join the open one, and return the offer."""
        key = SessionKey(content.snapshot.tablet_id, TARGET, "form")
        session = source.begin(key, lambda: content)
        self.sources[node] = source
        self.contents[node] = content
        return CopyOffer(source=node, session=session.id, ttl_ms=session.ttl_ms, snapshot=session.snapshot)

    def plan(self, offer: CopyOffer, fences: Fences = NO_FENCES) -> CopyPlan:
        """Return the plan to copy everything of an offer."""
        return CopyPlan(offer=offer, items=offer.snapshot.items, fences=fences)

    def run(self, plan: CopyPlan, sink: MemorySink, have: Mapping[str, str] | None = None) -> CopyOutcome:
        """Run a copy with a new network. The target gets its answer when the virtual time has come."""
        self.network = WorldNetwork(self)
        found = sink.have if have is None else have
        return self.target.run(plan, have=found, sink=sink, network=self.network, control=self.control)

    def pass_us(self, passed_us: int) -> None:
        """Let time pass. Sources look for expired sessions once a second."""
        end_us = self.clock.now_us + passed_us
        while self._expired_us + 1_000_000 <= end_us:
            self._expired_us += 1_000_000
            self.clock.now_us = max(self.clock.now_us, self._expired_us)
            for source in self.sources.values():
                source.expire()
        self.clock.now_us = end_us

    def pass_ms(self, passed_ms: int) -> None:
        """Let time pass."""
        self.pass_us(passed_ms * 1000)


def flipped(chunk: Chunk, at: int = 0) -> Chunk:
    """Return a chunk with one flipped bit in its data, and the checksum of the undamaged data."""
    data = bytearray(chunk.data)
    data[at] ^= 1
    return msgspec.structs.replace(chunk, data=bytes(data))
