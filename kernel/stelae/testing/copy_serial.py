"""A copy transport for tests: it asks for one chunk at a time, from one source at a time.

It holds to the contract and has the fewest lines that do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, ClassVar

from crc32c import crc32c

from stelae.spi.copy import (
    Alive,
    CopyContent,
    CopyControl,
    CopyNetwork,
    CopySession,
    CopySink,
    CopySource,
    CopyTarget,
    CopyTransport,
    FetchChecksum,
    KeepAlive,
    PrefixChecksum,
    SessionKey,
    SessionView,
    SourceAnswer,
    SourceRequest,
)
from stelae.spi.copy_plan import CHUNK_BYTES_MAX, Chunk, CopyOutcome, CopyPlan, CopySessionEnded
from stelae.spi.errors import CallerError, Overloaded
from stelae.spi.ids import NodeId, TabletId
from stelae.spi.services import Clock, EngineServices
from stelae.testing.copy_serial_run import SerialRun


@dataclass(frozen=True, slots=True, kw_only=True)
class SerialConfig:
    """The settings of the fake: those of the reference engine that the contract needs."""

    source_slots: int = 4
    target_slots: int = 4
    session_ttl_ms: int = 60_000
    chunk_bytes: int = 1 << 20
    fetch_bytes_per_s_max: int = 0  #: 0: no limit.
    serve_bytes_per_s_max: int = 0


class SpacedBytes:
    """A limit of bytes per second: after each chunk the next one waits for as long as it takes at this rate."""

    def __init__(self, bytes_per_s: int) -> None:
        self.rate = bytes_per_s
        self._free_us = 0

    def change(self, bytes_per_s: int) -> None:
        """Admit at another rate from now on."""
        self.rate, self._free_us = bytes_per_s, 0

    def take(self, size_bytes: int, now_us: int) -> int:
        """Admit bytes and return 0, or return the microseconds to wait."""
        if not self.rate or now_us >= self._free_us:
            self._free_us = now_us + size_bytes * 1_000_000 // (self.rate or 1 << 60)
            return 0
        return self._free_us - now_us


@dataclass
class _Session:
    id: str
    key: SessionKey
    content: CopyContent
    used_us: int
    bytes_sent: int = 0
    serving: int = 0
    ended: bool = False
    sizes: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.sizes = {unit.name: unit.size_bytes for unit in self.content.snapshot.items}


class SerialSource(CopySource):
    """The serving side. For one thread."""

    def __init__(self, config: SerialConfig, clock: Clock, incarnation: str) -> None:
        self._config = config
        self._clock = clock
        self._ids = (f"{incarnation}.{number}" for number in count())
        self._open: dict[str, _Session] = {}
        self._taking: dict[SessionKey, bool] = {}  # Whether the session was ended meanwhile.
        self._limit = SpacedBytes(config.serve_bytes_per_s_max)

    def begin(self, key: SessionKey, take: Callable[[], CopyContent]) -> CopySession:
        found = next((s for s in self._open.values() if s.key == key), None)
        if found is None:
            found = self._new(key, take)
        found.used_us = self._clock.monotonic_us()
        return CopySession(id=found.id, ttl_ms=self._config.session_ttl_ms, snapshot=found.content.snapshot)

    def _new(self, key: SessionKey, take: Callable[[], CopyContent]) -> _Session:
        if key in self._taking or len(self._open) + len(self._taking) >= self._config.source_slots:
            raise Overloaded("no slot is free, or this snapshot is being taken")
        self._taking[key] = False
        try:
            content = take()
        finally:
            ended = self._taking.pop(key)
        if ended:
            content.release()
            raise Overloaded("the session was ended while it began")
        session = _Session(next(self._ids), key, content, self._clock.monotonic_us())
        self._open[session.id] = session
        return session

    def answer(self, peer: NodeId, request: SourceRequest) -> SourceAnswer:
        session = self._open.get(request.session)
        if session is None or session.key.peer != peer:
            raise CopySessionEnded("no such session")
        session.serving += 1
        try:
            return self._serve(session, request)
        finally:
            session.serving -= 1
            session.used_us = self._clock.monotonic_us()
            if session.ended and not session.serving:
                session.content.release()

    def _serve(self, session: _Session, request: SourceRequest) -> SourceAnswer:
        if isinstance(request, KeepAlive):
            return Alive()
        size_bytes = session.sizes.get(request.item, -1)
        if isinstance(request, FetchChecksum):
            if not 0 < request.size_bytes <= size_bytes:
                raise CallerError("no such part")
            return PrefixChecksum(crc32c(session.content.read(request.item, 0, request.size_bytes)))
        if not 0 <= request.offset < size_bytes or not 0 < request.bytes_max <= CHUNK_BYTES_MAX:
            raise CallerError("no such range")
        wanted = min(request.bytes_max, size_bytes - request.offset)
        if self._limit.take(wanted, self._clock.monotonic_us()):
            raise Overloaded("ask again")
        data = session.content.read(request.item, request.offset, wanted)
        session.bytes_sent += len(data)
        return Chunk(offset=request.offset, data=data, crc=crc32c(data))

    def end(self, peer: NodeId, session: str) -> None:
        found = self._open.get(session)
        if found is not None and found.key.peer == peer:
            self._end(found)

    def end_all(self, tablet_id: TabletId | None = None) -> None:
        for key in self._taking:
            self._taking[key] = self._taking[key] or tablet_id in (None, key.tablet_id)
        for session in list(self._open.values()):
            if tablet_id in (None, session.key.tablet_id):
                self._end(session)

    def expire(self) -> None:
        idle_since = self._clock.monotonic_us() - self._config.session_ttl_ms * 1000
        for session in list(self._open.values()):
            if session.used_us <= idle_since and not session.serving:
                self._end(session)

    def sessions(self) -> Sequence[SessionView]:
        now_us = self._clock.monotonic_us()
        return [
            SessionView(
                id=s.id, key=s.key, bytes_sent=s.bytes_sent, idle_ms=0 if s.serving else (now_us - s.used_us) // 1000
            )
            for s in self._open.values()
        ]

    def bytes_per_s_max(self) -> int | None:
        return self._limit.rate

    def set_bytes_per_s_max(self, bytes_per_s: int) -> None:
        self._limit.change(bytes_per_s)

    def _end(self, session: _Session) -> None:
        del self._open[session.id]
        session.ended = True
        if not session.serving:
            session.content.release()


class SerialTarget(CopyTarget):
    """The fetching side."""

    def __init__(self, config: SerialConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._slots: set[TabletId] = set()
        self._limit = SpacedBytes(config.fetch_bytes_per_s_max)

    def reserve(self, tablet_id: TabletId) -> None:
        if tablet_id in self._slots or len(self._slots) >= self._config.target_slots:
            raise Overloaded("no slot is free, or the tablet is being copied")
        self._slots.add(tablet_id)

    def release(self, tablet_id: TabletId) -> None:
        self._slots.discard(tablet_id)

    def run(
        self, plan: CopyPlan, *, have: Mapping[str, str], sink: CopySink, network: CopyNetwork, control: CopyControl
    ) -> CopyOutcome:
        run = SerialRun(plan, sink, network, control, self._clock, self._config.chunk_bytes, self._limit.take)
        return run.outcome(have)

    def bytes_per_s_max(self) -> int | None:
        return self._limit.rate

    def set_bytes_per_s_max(self, bytes_per_s: int) -> None:
        self._limit.change(bytes_per_s)


class SerialTransport(CopyTransport):
    """The engine class."""

    name: ClassVar[str] = "serial"
    Config: ClassVar[type[Any]] = SerialConfig

    @classmethod
    def target_slots(cls, config: Any) -> int:
        slots: int = config.target_slots
        return slots

    @classmethod
    def source(cls, config: Any, services: EngineServices, incarnation: str) -> CopySource:
        return SerialSource(config, services.clock, incarnation)

    @classmethod
    def target(cls, config: Any, services: EngineServices) -> CopyTarget:
        return SerialTarget(config, services.clock)
