"""One copy of the serial transport (``copy_serial``): item after item, and chunk after chunk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count

from crc32c import crc32c

from stelae.spi.copy import (
    CopyControl,
    CopyNetwork,
    CopySink,
    FetchChecksum,
    FetchChunk,
    KeepAlive,
    PrefixChecksum,
    SourceAnswer,
    SourceRequest,
)
from stelae.spi.copy_plan import (
    Chunk,
    Complete,
    CopyOutcome,
    CopyPlan,
    CopyProgress,
    CopySessionEnded,
    Interruption,
    Partial,
    Refused,
    SourceDamaged,
)
from stelae.spi.errors import CallerError, Corrupt, Full, StelaeError, StorageError
from stelae.spi.services import Clock
from stelae.spi.wal import SnapshotUnit

_FAILURES_MAX = 5
_PAUSE_US = 200_000
_WAIT_US = 50_000


class _EndedError(Exception):
    """Ends the run with an outcome."""

    def __init__(self, outcome: CopyOutcome) -> None:
        self.outcome = outcome


class SerialRun:
    """The state of one run."""

    def __init__(
        self,
        plan: CopyPlan,
        sink: CopySink,
        network: CopyNetwork,
        control: CopyControl,
        clock: Clock,
        chunk_bytes: int,
        take: Callable[[int, int], int],
    ) -> None:
        self._plan = plan
        self._sink = sink
        self._network = network
        self._control = control
        self._clock = clock
        self._chunk_bytes = chunk_bytes
        self._take = take
        self._have: dict[str, str] = {}
        self._tickets = count()
        self._fetched = 0
        self._began_us = clock.monotonic_us()
        self._offer = plan.offer
        self._heard_us = self._began_us

    def outcome(self, have: Mapping[str, str]) -> CopyOutcome:
        """Fetch what is missing."""
        fenced = self._plan.fences.refusal(self._offer.snapshot)
        if fenced is not None:
            return Refused(code="FENCED", reason=fenced)
        self._have = {unit.name: unit.digest for unit in self._plan.items if have.get(unit.name) == unit.digest}
        try:
            self._report()
            for unit in self._plan.items:
                if unit.name not in self._have:
                    self._fetch(unit)
        except _EndedError as ended:
            return ended.outcome
        except Full as error:
            return self._partial(Interruption.NO_SPACE, str(error))
        except StorageError as error:
            return self._partial(Interruption.STAGE_FAILED, str(error))
        return Complete(bytes_fetched=self._fetched)

    def _fetch(self, unit: SnapshotUnit) -> None:
        """Make one item durable. Raises ``_EndedError`` if the source is lost."""
        clean = False  # The next attempt fetches every byte from one source.
        while True:
            if clean or self._sink.stored(unit.name) > unit.size_bytes:
                self._sink.discard(unit.name)
            whole = self._sink.stored(unit.name) == 0
            self._fetch_rest(unit)
            try:
                self._sink.finish(unit.name)
            except Corrupt as error:
                clean = True
                if whole:
                    detail = str(error)
                    raise _EndedError(
                        SourceDamaged(source=self._offer.source, item=unit.name, detail=detail)
                    ) from error
                continue
            self._have[unit.name] = unit.digest
            self._report()
            return

    def _fetch_rest(self, unit: SnapshotUnit) -> None:
        """Fetch the rest of an item. Raises ``_EndedError`` if the source is lost."""
        session = self._offer.session
        stored = self._sink.stored(unit.name)
        if stored and stored < unit.size_bytes:
            found = self._ask(FetchChecksum(session, unit.name, stored))
            if not isinstance(found, PrefixChecksum) or found.crc != self._sink.checksum(unit.name):
                self._sink.discard(unit.name)
        damaged = 0
        while (offset := self._sink.stored(unit.name)) < unit.size_bytes:
            wanted = min(self._chunk_bytes, unit.size_bytes - offset)
            self._wait_for_admission(wanted)
            chunk = self._ask(FetchChunk(session, unit.name, offset, wanted))
            if not isinstance(chunk, Chunk) or not _is_undamaged(chunk, offset, wanted):
                damaged += 1
                if damaged > _FAILURES_MAX:
                    raise _EndedError(self._partial(Interruption.SOURCE_LOST, "chunks always arrive damaged"))
                continue
            self._fetched += len(chunk.data)
            self._sink.write(unit.name, offset, chunk.data)
            self._report()

    def _wait_for_admission(self, wanted: int) -> None:
        while wait_us := self._control.admit(wanted):
            self._wait(wait_us)
        while wait_us := self._take(wanted, self._clock.monotonic_us()):
            self._wait(wait_us)

    def _ask(self, request: SourceRequest) -> SourceAnswer:
        """Return the answer of the source. Raises ``_EndedError`` if it is lost."""
        failures = 0
        while True:
            answer = self._answer(request)
            if not isinstance(answer, StelaeError):
                self._heard_us = self._clock.monotonic_us()
                return answer
            if (lost := self._loss(request, answer)) is not None:
                raise _EndedError(lost)
            failures += answer.code != "OVERLOADED"
            if failures > _FAILURES_MAX:
                raise _EndedError(self._partial(Interruption.SOURCE_LOST, str(answer)))
            self._wait(_PAUSE_US)
            if isinstance(request, FetchChunk):
                self._wait_for_admission(request.bytes_max)

    def _answer(self, request: SourceRequest) -> SourceAnswer | StelaeError:
        ticket = next(self._tickets)
        self._network.ask(ticket, self._offer.source, request)
        while True:
            self._check_cancelled()
            for found, answer in self._network.wait(_WAIT_US):
                if found == ticket:
                    return answer
            self._keep_alive()

    def _loss(self, request: SourceRequest, error: StelaeError) -> SourceDamaged | Refused | Partial | None:
        """Return the outcome if a source must not be asked again, or ``None`` if the error may pass."""
        code = str(getattr(error, "remote_code", error.code))
        if isinstance(error, CopySessionEnded):
            return self._partial(Interruption.SESSION_ENDED, str(error))
        if code == "CORRUPT":
            item = "" if isinstance(request, KeepAlive) else request.item
            return SourceDamaged(source=self._offer.source, item=item, detail=str(error))
        if isinstance(error, CallerError):
            return Refused(code=code, reason=str(error))
        return None

    def _wait(self, wait_us: int) -> None:
        until_us = self._clock.monotonic_us() + wait_us
        while (now_us := self._clock.monotonic_us()) < until_us:
            self._check_cancelled()
            self._keep_alive()
            self._network.wait(min(until_us - now_us, _WAIT_US))

    def _keep_alive(self) -> None:
        now_us = self._clock.monotonic_us()
        if now_us - self._heard_us >= self._offer.ttl_ms * 1000 // 3:
            self._heard_us = now_us
            self._network.ask(next(self._tickets), self._offer.source, KeepAlive(self._offer.session))

    def _check_cancelled(self) -> None:
        if self._control.cancelled():
            raise _EndedError(self._partial(Interruption.CANCELLED, "the copy was cancelled"))

    def _report(self) -> None:
        total = self._plan.bytes_total
        sizes = [
            unit.size_bytes if unit.name in self._have else self._sink.stored(unit.name) for unit in self._plan.items
        ]
        done, passed_us = sum(sizes), self._clock.monotonic_us() - self._began_us
        eta_ms = (total - done) * passed_us // (self._fetched * 1000) if self._fetched else None
        self._control.progress(
            CopyProgress(bytes_done=done, bytes_total=total, bytes_fetched=self._fetched, eta_ms=eta_ms)
        )

    def _partial(self, why: Interruption, reason: str) -> Partial:
        return Partial(why=why, reason=reason)


def _is_undamaged(chunk: Chunk, offset: int, wanted: int) -> bool:
    return chunk.offset == offset and 0 < len(chunk.data) <= wanted and crc32c(chunk.data) == chunk.crc
