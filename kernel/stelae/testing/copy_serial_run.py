"""One copy of the serial transport (``copy_serial``): item after item, and chunk after chunk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count

from crc32c import crc32c

from stelae.spi.copy import (
    ChecksumPart,
    CopyControl,
    CopyNetwork,
    CopySink,
    FetchChunk,
    KeepAlive,
    PartChecksum,
    SourceAnswer,
    SourceRequest,
)
from stelae.spi.copy_plan import (
    Chunk,
    Complete,
    CopyOffer,
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
        self._offers = [offer for offer in plan.offers if plan.fences.refusal(offer.snapshot) is None]
        self._heard_us = {(offer.source, offer.session): self._began_us for offer in self._offers}
        self._lost: SourceDamaged | Refused | Partial | None = None

    def outcome(self, have: Mapping[str, str]) -> CopyOutcome:
        """Fetch what is missing."""
        fenced = self._plan.fences.refusal(self._plan.offers[0].snapshot)
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
        """Make one item durable, from one source after the other. Raises ``_EndedError`` if none has it."""
        clean = False  # The next attempt fetches every byte from one source.
        while True:
            offer = next((o for o in self._offers if unit in o.snapshot.items), None)
            if offer is None:
                raise _EndedError(self._lost or self._partial(Interruption.SOURCES_LOST, "no source has the item"))
            if clean or self._sink.stored(unit.name) > unit.size_bytes:
                self._sink.discard(unit.name)
            whole = self._sink.stored(unit.name) == 0
            if not self._fetch_from(offer, unit):
                continue
            try:
                self._sink.finish(unit.name)
            except Corrupt as error:
                clean = True
                if whole:
                    damaged = SourceDamaged(
                        source=offer.source, item=unit.name, detail=str(error), have=dict(self._have)
                    )
                    self._lose(offer, damaged)
                continue
            self._have[unit.name] = unit.digest
            self._report()
            return

    def _fetch_from(self, offer: CopyOffer, unit: SnapshotUnit) -> bool:
        """Fetch the rest of an item from a source. Return False if the source was lost."""
        stored = self._sink.stored(unit.name)
        if stored and stored < unit.size_bytes:
            found = self._ask(offer, ChecksumPart(offer.session, unit.name, stored))
            if found is None:
                return False
            if not isinstance(found, PartChecksum) or found.crc != self._sink.checksum(unit.name):
                self._sink.discard(unit.name)
        damaged = 0
        while (offset := self._sink.stored(unit.name)) < unit.size_bytes:
            wanted = min(self._chunk_bytes, unit.size_bytes - offset)
            self._wait_for_admission(wanted)
            chunk = self._ask(offer, FetchChunk(offer.session, unit.name, offset, wanted))
            if chunk is None:
                return False
            if not isinstance(chunk, Chunk) or not _is_undamaged(chunk, offset, wanted):
                damaged += 1
                if damaged > _FAILURES_MAX:
                    self._lose(offer, self._partial(Interruption.SOURCES_LOST, "chunks always arrive damaged"))
                    return False
                continue
            self._fetched += len(chunk.data)
            self._sink.write(unit.name, offset, chunk.data)
            self._report()
        return True

    def _wait_for_admission(self, wanted: int) -> None:
        while wait_us := self._control.admit(wanted):
            self._wait(wait_us)
        while wait_us := self._take(wanted, self._clock.monotonic_us()):
            self._wait(wait_us)

    def _ask(self, offer: CopyOffer, request: SourceRequest) -> SourceAnswer | None:
        """Return the answer of a source, or ``None`` if the source is lost."""
        failures = 0
        while True:
            answer = self._answer(offer, request)
            if not isinstance(answer, StelaeError):
                self._heard_us[offer.source, offer.session] = self._clock.monotonic_us()
                return answer
            if (lost := self._loss(offer, request, answer)) is not None:
                self._lose(offer, lost)
                return None
            failures += answer.code != "OVERLOADED"
            if failures > _FAILURES_MAX:
                self._lose(offer, self._partial(Interruption.SOURCES_LOST, str(answer)))
                return None
            self._wait(_PAUSE_US)
            if isinstance(request, FetchChunk):
                self._wait_for_admission(request.bytes_max)

    def _answer(self, offer: CopyOffer, request: SourceRequest) -> SourceAnswer | StelaeError:
        ticket = next(self._tickets)
        self._network.ask(ticket, offer.source, request)
        while True:
            self._check_cancelled()
            for found, answer in self._network.wait(_WAIT_US):
                if found == ticket:
                    return answer
            if not isinstance(request, KeepAlive):
                self._keep_alive()

    def _loss(
        self, offer: CopyOffer, request: SourceRequest, error: StelaeError
    ) -> SourceDamaged | Refused | Partial | None:
        """Return the outcome if a source must not be asked again, or ``None`` if the error may pass."""
        code = str(getattr(error, "remote_code", error.code))
        if isinstance(error, CopySessionEnded):
            return self._partial(Interruption.SESSIONS_ENDED, str(error))
        if code == "CORRUPT":
            item = "" if isinstance(request, KeepAlive) else request.item
            return SourceDamaged(source=offer.source, item=item, detail=str(error), have=dict(self._have))
        if isinstance(error, CallerError):
            return Refused(code=code, reason=str(error))
        return None

    def _lose(self, offer: CopyOffer, why: SourceDamaged | Refused | Partial) -> None:
        if offer in self._offers:
            self._offers.remove(offer)
        if self._lost is None or isinstance(why, SourceDamaged):
            self._lost = why

    def _wait(self, wait_us: int) -> None:
        until_us = self._clock.monotonic_us() + wait_us
        while (now_us := self._clock.monotonic_us()) < until_us:
            self._check_cancelled()
            self._keep_alive()
            self._network.wait(min(until_us - now_us, _WAIT_US))

    def _keep_alive(self) -> None:
        now_us = self._clock.monotonic_us()
        for offer in list(self._offers):
            if now_us - self._heard_us[offer.source, offer.session] >= offer.ttl_ms * 1000 // 3:
                self._heard_us[offer.source, offer.session] = now_us
                self._network.ask(next(self._tickets), offer.source, KeepAlive(offer.session))

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
        return Partial(why=why, have=dict(self._have), reason=reason)


def _is_undamaged(chunk: Chunk, offset: int, wanted: int) -> bool:
    return chunk.offset == offset and 0 < len(chunk.data) <= wanted and crc32c(chunk.data) == chunk.crc
