"""What the two halves of a messenger share: identity, time, chance, counters, and the way out."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from stelae.spi.errors import ClockError, StelaeError
from stelae.spi.ids import ClusterId, NodeId
from stelae.spi.services import Buffer, Clock, Metrics
from stelae.wire.credit import Credit
from stelae.wire.envelope import Identity, encode_envelope
from stelae.wire.faults import Direction, Faults
from stelae.wire.parcels import Batch
from stelae.wire.settings import WireSettings


class TimeSource(Protocol):
    """The node's hybrid clock, as headers need it."""

    @property
    def last(self) -> int:
        """The highest hybrid timestamp given out or observed."""

    def now(self) -> int:
        """Return a hybrid timestamp for a message that leaves.

        Raises:
            ClockError: there is none left until the clock's ceiling can be saved again.
        """

    def observe(self, timestamp: int) -> None:
        """Take notice of a timestamp that arrived.

        Raises:
            ClockError: it is too far ahead; the clock has not moved, and the message is refused.
        """


@dataclass(slots=True)
class Common:
    """Handed to every part of one messenger. ``identity`` changes once, if it had no cluster."""

    identity: Identity
    settings: WireSettings
    clock: Clock
    time: TimeSource
    metrics: Metrics
    faults: Faults | None
    rng: random.Random
    call_later: Callable[[float, Callable[[], None]], object]

    def now_us(self) -> int:
        """Monotonic microseconds."""
        return self.clock.monotonic_us()

    def write(
        self,
        batch: Batch,
        peer: str,
        run: str,
        credit: Credit | None,
        put: Callable[[list[Buffer]], None],
    ) -> None:
        """Put a message for a run of a peer on the wire, as the fault seam decides.

        What it loses was never under way, and what it repeats is under way twice, so ``credit``,
        from which the batch was taken, still agrees with what the peer will count.
        """
        header = encode_envelope(
            self.identity,
            recipient=peer,
            recipient_incarnation=run,
            timestamp=self._timestamp(),
            credit=credit.report() if credit else 0,
            parcels=batch.parcels,
        )
        frames = [header, *batch.body()]
        copies = self.through(peer, Direction.OUTBOUND, partial(put, frames))
        if credit and copies != 1:
            credit.adjust((copies - 1) * batch.cost)

    def _timestamp(self) -> int:
        """A header may repeat the last timestamp, so a clock at its ceiling does not silence us."""
        try:
            return self.time.now()
        except ClockError:
            return self.time.last

    def through(self, peer: str, direction: Direction, deliver: Callable[[], None]) -> int:
        """Deliver a message as the fault seam decides, now or later; return how many times.

        What is not known to be of or for a peer passes.
        """
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

    def learn_cluster(self, cluster_id: str) -> None:
        """Take the cluster id of a first hello, if this process does not have one."""
        if not self.identity.cluster_id and cluster_id:
            self.identity = replace(self.identity, cluster_id=ClusterId(cluster_id))
