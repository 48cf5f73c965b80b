"""The serving side: it guards the session table with a lock, and reads the items of snapshots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock

from crc32c import crc32c

from stelae.spi.copy import (
    Alive,
    CopyContent,
    CopySession,
    CopySource,
    FetchChecksum,
    FetchChunk,
    KeepAlive,
    PrefixChecksum,
    SessionKey,
    SessionView,
    SourceAnswer,
    SourceRequest,
)
from stelae.spi.copy_plan import CHUNK_BYTES_MAX, Chunk
from stelae.spi.errors import CallerError, Corrupt, Overloaded
from stelae.spi.ids import NodeId, TabletId
from stelae.spi.services import Clock, Metrics
from stelae_copy_streaming.config import StreamingConfig
from stelae_copy_streaming.sessions import OpenSession, SessionTable
from stelae_copy_streaming.shared_limit import SharedLimit

_READ_BYTES = 1 << 20


class StreamingSource(CopySource):
    """Serves the copies from one node. Snapshots are taken and released, and items are read, outside the lock."""

    def __init__(self, config: StreamingConfig, clock: Clock, metrics: Metrics, incarnation: str) -> None:
        self._ttl_ms = config.session_ttl_ms
        self._clock = clock
        self._metrics = metrics
        self._lock = Lock()
        self._table = SessionTable(config.source_slots, config.session_ttl_ms * 1000, incarnation)
        self._limit = SharedLimit(config.serve_bytes_per_s_max, config.busy_bytes_per_s_max, clock)

    def begin(self, key: SessionKey, take: Callable[[], CopyContent]) -> CopySession:
        with self._lock:
            session = self._table.admit(key, self._clock.monotonic_us())
        return self._described(session or self._taken(key, take))

    def answer(self, peer: NodeId, request: SourceRequest) -> SourceAnswer:
        with self._lock:
            session = self._table.use(request.session, peer)
        sent = 0
        try:
            found = self._serve(session, request)
            sent = len(found.data) if isinstance(found, Chunk) else 0
            return found
        finally:
            with self._lock:
                released = self._table.done(session, sent, self._clock.monotonic_us())
            self._release([] if released is None else [released])

    def end(self, peer: NodeId, session: str) -> None:
        with self._lock:
            released = self._table.end(session, peer)
        self._release(released)

    def end_all(self, tablet_id: TabletId | None = None) -> None:
        with self._lock:
            released = self._table.end_all(tablet_id)
        self._release(released)

    def expire(self) -> None:
        with self._lock:
            released = self._table.expire(self._clock.monotonic_us())
        if released:
            self._metrics.count("copy_sessions_expired", len(released))
        self._release(released)

    def sessions(self) -> Sequence[SessionView]:
        now_us = self._clock.monotonic_us()
        with self._lock:
            return [
                SessionView(
                    id=found.id,
                    key=found.key,
                    bytes_sent=found.bytes_sent,
                    idle_ms=0 if found.serving else (now_us - found.used_us) // 1000,
                )
                for found in self._table.sessions()
            ]

    def bytes_per_s_max(self) -> int | None:
        return self._limit.configured

    def set_bytes_per_s_max(self, bytes_per_s: int) -> None:
        self._limit.configure(bytes_per_s)

    def beside_clients(self, busy: bool) -> None:
        self._limit.set_busy(busy)

    def _taken(self, key: SessionKey, take: Callable[[], CopyContent]) -> OpenSession:
        try:
            content = take()
        except BaseException:
            with self._lock:
                self._table.failed(key)
            raise
        with self._lock:
            session = self._table.opened(key, content, self._clock.monotonic_us())
        if session is None:
            self._release([content])
            raise Overloaded(f"the copy of tablet {key.tablet_id} was ended while it began; ask again")
        return session

    def _described(self, session: OpenSession) -> CopySession:
        return CopySession(id=session.id, ttl_ms=self._ttl_ms, snapshot=session.content.snapshot)

    def _serve(self, session: OpenSession, request: SourceRequest) -> SourceAnswer:
        if isinstance(request, KeepAlive):
            return Alive()
        size_bytes = session.sizes.get(request.item)
        if size_bytes is None:
            raise CallerError(f"the snapshot has no item {request.item[:80]!r}")
        if isinstance(request, FetchChecksum):
            return self._checksum(session, request, size_bytes)
        return self._chunk(session, request, size_bytes)

    def _chunk(self, session: OpenSession, request: FetchChunk, size_bytes: int) -> Chunk:
        offset = request.offset
        if not 0 <= offset < size_bytes or not 0 < request.bytes_max <= CHUNK_BYTES_MAX:
            raise CallerError(f"bytes {offset} + {request.bytes_max} of {request.item}, which has {size_bytes} bytes")
        wanted = min(request.bytes_max, size_bytes - offset)
        if self._limit.take(wanted):
            raise Overloaded("the limit of bytes per second of copies from this node is reached; ask again")
        data = self._read(session, request.item, offset, wanted)
        self._metrics.count("copy_bytes_sent", len(data))
        return Chunk(offset=offset, data=data, crc=crc32c(data))

    def _checksum(self, session: OpenSession, request: FetchChecksum, size_bytes: int) -> PrefixChecksum:
        if not 0 < request.size_bytes <= size_bytes:
            raise CallerError(f"a part of {request.size_bytes} bytes of {request.item}, which has {size_bytes} bytes")
        crc = 0
        for offset in range(0, request.size_bytes, _READ_BYTES):
            wanted = min(_READ_BYTES, request.size_bytes - offset)
            crc = crc32c(self._read(session, request.item, offset, wanted), crc)
        return PrefixChecksum(crc)

    def _read(self, session: OpenSession, item: str, offset: int, wanted: int) -> bytes:
        data = session.content.read(item, offset, wanted)
        if len(data) != wanted:
            raise Corrupt(f"item {item} ends at byte {offset + len(data)}, before its size", offset=offset)
        return data

    def _release(self, contents: Sequence[CopyContent]) -> None:
        for content in contents:
            content.release()
