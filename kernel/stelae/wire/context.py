"""What the parts of a messenger share: identity, clocks, random numbers, counters, and the writing of packets."""

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
from stelae.wire.credit import Credit
from stelae.wire.envelope import Identity, encode_envelope
from stelae.wire.faults import Direction, FaultSeam
from stelae.wire.packets import Packet
from stelae.wire.settings import WireSettings

_log = logging.getLogger(__name__)


class TimeSource(Protocol):
    """The node's hybrid clock, as far as envelopes need it."""

    @property
    def last(self) -> int:
        """The highest timestamp that ``now`` returned or ``observe`` accepted."""

    def now(self) -> int:
        """Return a new timestamp. Raises ``ClockError`` if the clock's ceiling cannot be made durable."""

    def observe(self, timestamp: int) -> None:
        """Move the clock to at least ``timestamp``.

        Raises ``ClockError`` if it is too far ahead of the wall clock; the clock is then unchanged."""


@dataclass(slots=True)
class MessengerContext:
    """The shared state of one messenger."""

    #: It is replaced once if it had no cluster id: the cluster id is learned at the first hello.
    identity: Identity
    settings: WireSettings
    clock: Clock
    time: TimeSource
    metrics: Metrics
    faults: FaultSeam | None
    rng: random.Random
    call_later: Callable[[float, Callable[[], None]], object]
    address: str = ""  #: Where this process listens, as it tells its peers in its hello.
    _logged: set[tuple[str, type[BaseException] | None]] = field(default_factory=set)

    def now_us(self) -> int:
        """Return the monotonic time in microseconds."""
        return self.clock.monotonic_us()

    def write(
        self, packet: Packet, peer: str, incarnation: str, credit: Credit | None, put: Callable[[list[Buffer]], None]
    ) -> None:
        """Send a packet to an incarnation of a peer with ``put``, as often as the fault seam decides.

        ``credit`` is what the packet was taken from. It is corrected by the copies that the fault seam lost or added,
        so that it agrees with what the peer will count."""
        try:
            now = self.time.now()
        except ClockError:
            now = self.time.last  # An envelope may repeat a timestamp, so a node at its ceiling can still send.
        consumed = credit.report() if credit else 0
        header = encode_envelope(
            self.identity,
            recipient=peer,
            incarnation=incarnation,
            timestamp=now,
            credit=consumed,
            messages=packet.messages,
        )
        copies = self.through(peer, Direction.OUTBOUND, partial(put, [header, *packet.body()]))
        if credit and copies != 1:
            credit.adjust((copies - 1) * packet.cost)

    def through(self, peer: str, direction: Direction, deliver: Callable[[], None]) -> int:
        """Call ``deliver`` for each copy that the fault seam allows, now or later. Return the number of copies."""
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
        """Count a refused packet or message, in total and by error code."""
        self.metrics.count("wire_refused_total")
        self.metrics.count(f"wire_refused_{error.code.lower()}")

    def unexpected(self, where: str) -> None:
        """Count the unexpected exception that is being handled.

        Its traceback is logged once for each ``where`` and type, so that a peer that repeats its message cannot fill
        the disk with log lines. ``where`` must come from a small fixed set."""
        self.metrics.count("wire_handlers_failed")
        raised = sys.exc_info()[0]
        if (where, raised) not in self._logged:
            self._logged.add((where, raised))
            _log.exception("unexpected error in %s; more of this type are only counted: wire_handlers_failed", where)
