"""What the two halves of a messenger share: identity, time, chance, counters, and the way out."""

import logging
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from stelae.spi.errors import ClockError, StelaeError
from stelae.spi.ids import NodeId
from stelae.spi.services import Buffer, Clock, Metrics
from stelae.wire.envelope import Identity, encode_envelope
from stelae.wire.faults import Direction, FaultSeam
from stelae.wire.parcels import Batch, Credit
from stelae.wire.settings import WireSettings

_log = logging.getLogger(__name__)


class TimeSource(Protocol):
    """The node's hybrid clock, as headers need it; ``last``: the highest given out or observed. ``ClockError``: from
    ``now``, its ceiling cannot be saved; from ``observe``, too far ahead, and the clock is not moved."""

    @property
    def last(self) -> int: ...
    def now(self) -> int: ...
    def observe(self, timestamp: int) -> None: ...


@dataclass(slots=True)
class Common:
    """Handed to every part of one messenger. ``identity`` changes once, if it had no cluster."""

    identity: Identity
    settings: WireSettings
    clock: Clock
    time: TimeSource
    metrics: Metrics
    faults: FaultSeam | None
    rng: random.Random
    call_later: Callable[[float, Callable[[], None]], object]
    _logged: set[tuple[str, type[BaseException] | None]] = field(default_factory=set)

    def now_us(self) -> int:
        return self.clock.monotonic_us()

    def write(
        self, batch: Batch, peer: str, run: str, credit: Credit | None, put: Callable[[list[Buffer]], None]
    ) -> None:
        """Put a message for a run of a peer on the wire, as the fault seam decides. ``credit``, from which the batch
        was taken, is corrected by what that loses or repeats: so it agrees with what the peer will count."""
        try:
            now = self.time.now()
        except ClockError:
            now = self.time.last  # a header may repeat it: a clock at its ceiling silences nobody
        had = credit.report() if credit else 0
        header = encode_envelope(
            self.identity, recipient=peer, run=run, timestamp=now, credit=had, parcels=batch.parcels
        )
        copies = self.through(peer, Direction.OUTBOUND, partial(put, [header, *batch.body()]))
        if credit and copies != 1:
            credit.adjust((copies - 1) * batch.cost)

    def through(self, peer: str, direction: Direction, deliver: Callable[[], None]) -> int:
        """Deliver a peer's message as the fault seam decides, now or later; return how often."""
        if self.faults is None or not self.faults.active or not peer:
            deliver()
            return 1
        delays_ms = self.faults.judge(NodeId(peer), direction)
        if not delays_ms:
            self.metrics.count("wire_faults_dropped")
        for delay_ms in delays_ms:
            if delay_ms:
                self.call_later(delay_ms / 1000, deliver)
            else:
                deliver()
        return len(delays_ms)

    def refused(self, error: StelaeError) -> None:
        """Count something that arrived and was not accepted, in all and by code."""
        self.metrics.count("wire_refused_total")
        self.metrics.count(f"wire_refused_{error.code.lower()}")

    def unexpected(self, where: str) -> None:
        """Count the exception that is being handled, which no code foresaw; its trace is logged once per ``where`` and
        type. So a peer that repeats its message fills no disk. ``where`` comes from a small fixed set."""
        self.metrics.count("wire_handlers_failed")
        raised = sys.exc_info()[0]
        if (where, raised) not in self._logged:
            self._logged.add((where, raised))
            _log.exception("unexpected error in %s; more of this type are only counted: wire_handlers_failed", where)
