"""One copy: it drives a ``FetchPlanner`` with a clock, a network and a sink, on the thread that runs the copy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import assert_never

from stelae.spi.copy import CopyControl, CopyNetwork, CopySink, SourceAnswer
from stelae.spi.copy_plan import (
    Chunk,
    Complete,
    CopyOutcome,
    CopyPlan,
    CopyProgress,
    Interruption,
    Partial,
    SourceDamaged,
)
from stelae.spi.errors import Corrupt, Full, StelaeError, StorageError
from stelae.spi.services import Clock
from stelae.spi.wal import SnapshotUnit
from stelae_copy_streaming.config import StreamingConfig
from stelae_copy_streaming.fetch_planner import Discard, FetchPlanner, Finish, SinkCall, StoreBytes, refusal_of
from stelae_copy_streaming.transfer_rate import TransferRate

_WAIT_US_MAX = 50_000  #: ``cancelled`` is asked at least this often.


class CopyRun:
    """The state of one run.

    Args:
        config: sizes of chunks and of the window.
        clock: for limits, pauses and rates.
        plan, sink, network, control: the arguments of ``CopyTarget.run``.
        take: the node's limit: admits bytes at a time and returns 0, or returns the microseconds to wait."""

    def __init__(
        self,
        config: StreamingConfig,
        clock: Clock,
        plan: CopyPlan,
        sink: CopySink,
        network: CopyNetwork,
        control: CopyControl,
        take: Callable[[int], int],
    ) -> None:
        self._config = config
        self._clock = clock
        self._plan = plan
        self._sink = sink
        self._network = network
        self._control = control
        self._take = take
        self._bytes_total = plan.bytes_total
        self._rate = TransferRate(clock.monotonic_us())
        self._units = {unit.name: unit for unit in plan.items}
        self._have: dict[str, str] = {}
        self._admitted = False  # ``control`` has admitted the next chunk already.

    @property
    def bytes_fetched(self) -> int:
        """The bytes of chunks that have arrived."""
        return self._rate.bytes_total

    def outcome(self, have: Mapping[str, str]) -> CopyOutcome:
        """Fetch what is missing. Blocks until the copy has ended."""
        try:
            return self._fetch(have)
        except Full as error:
            return self._partial(Interruption.NO_SPACE, f"the stage has no space: {error}")
        except StorageError as error:
            return self._partial(Interruption.STAGE_FAILED, f"the stage cannot be used: {error}")

    def _fetch(self, have: Mapping[str, str]) -> CopyOutcome:
        self._have.update({unit.name: unit.digest for unit in self._plan.items if have.get(unit.name) == unit.digest})
        if (refusal := refusal_of(self._plan)) is not None:
            return refusal
        missing = self._missing()
        if isinstance(missing, SourceDamaged):
            return missing
        planner = self._planner(missing)
        self._report(planner)
        while not planner.complete:
            if self._control.cancelled():
                return self._partial(Interruption.CANCELLED, "the copy was cancelled")
            until_us = self._send(planner)
            if (ended := planner.ended(fetched=self.bytes_fetched > 0)) is not None:
                return ended
            wait_us = max(until_us - self._clock.monotonic_us(), 1)
            for ticket, answer in self._network.wait(min(wait_us, _WAIT_US_MAX)):
                self._answered(planner, ticket, answer)
        return Complete(bytes_fetched=self.bytes_fetched)

    def _planner(self, missing: Mapping[str, int]) -> FetchPlanner:
        return FetchPlanner(
            self._plan,
            missing,
            {name: self._sink.checksum(name) for name, stored in missing.items() if stored},
            chunk_bytes=self._config.chunk_bytes,
            chunks_max=self._config.chunks_in_flight,
            now_us=self._clock.monotonic_us(),
        )

    def _missing(self) -> dict[str, int] | SourceDamaged:
        """Return the items to fetch, each with its stored bytes. Items that are stored as a whole are finished."""
        missing: dict[str, int] = {}
        for unit in self._plan.items:
            if unit.name in self._have:
                continue
            stored = self._sink.stored(unit.name)
            if stored > unit.size_bytes:
                self._sink.discard(unit.name)
                stored = 0
            if stored == unit.size_bytes:
                error = self._finish(unit)
                if error is not None and not unit.size_bytes:
                    # An empty item has only one possible digest, so the source has said a wrong one.
                    return SourceDamaged(source=self._plan.offer.source, item=unit.name, detail=str(error))
                stored = 0
            if unit.name not in self._have:
                missing[unit.name] = stored
        return missing

    def _finish(self, unit: SnapshotUnit) -> Corrupt | None:
        try:
            self._sink.finish(unit.name)
        except Corrupt as error:
            return error
        self._have[unit.name] = unit.digest
        return None

    def _send(self, planner: FetchPlanner) -> int:
        """Send what may be sent now. Return when to try again, if no answer comes before."""
        while True:
            now_us = self._clock.monotonic_us()
            if (request := planner.next_request(now_us)) is None:
                return planner.next_deadline(now_us)
            if request.size_bytes and (wait_us := self._wait_us(request.size_bytes)):
                return min(now_us + wait_us, planner.next_deadline(now_us))
            self._network.ask(planner.sent(request), self._plan.offer.source, request.body)

    def _wait_us(self, size_bytes: int) -> int:
        """Admit the next chunk and return 0, or return the time to wait.

        If the caller's limit has admitted it and the node's has not, the caller's is not asked again."""
        if not self._admitted and (wait_us := self._control.admit(size_bytes)):
            return wait_us
        self._admitted = True
        if wait_us := self._take(size_bytes):
            return wait_us
        self._admitted = False
        return 0

    def _answered(self, planner: FetchPlanner, ticket: int, answer: SourceAnswer | StelaeError) -> None:
        now_us = self._clock.monotonic_us()
        if isinstance(answer, Chunk):
            self._rate.add(len(answer.data), now_us)
        calls = planner.answered(ticket, answer, now_us)
        for call in calls:
            self._perform(planner, call)
        if calls:
            self._report(planner)

    def _perform(self, planner: FetchPlanner, call: SinkCall) -> None:
        match call:
            case StoreBytes(item, offset, data):
                self._sink.write(item, offset, data)
            case Discard(item):
                self._sink.discard(item)
            case Finish(item):
                error = self._finish(self._units[item])
                if error is None:
                    planner.finished(item)
                else:
                    planner.not_as_digest(item, str(error))
            case _:
                assert_never(call)

    def _report(self, planner: FetchPlanner) -> None:
        left, total = planner.bytes_left, self._bytes_total
        eta_ms = self._rate.eta_ms(left, self._clock.monotonic_us())
        progress = CopyProgress(
            bytes_done=total - left, bytes_total=total, bytes_fetched=self.bytes_fetched, eta_ms=eta_ms
        )
        self._control.progress(progress)

    def _partial(self, why: Interruption, reason: str) -> Partial:
        return Partial(why=why, reason=reason)
