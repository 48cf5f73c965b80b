"""The source of one run: whether it can be asked now, and why it is lost. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from stelae.spi.copy_plan import CopyOffer, Interruption
from stelae.spi.errors import Overloaded, RetryableError, StelaeError

FAILURES_MAX = 6  #: A source that fails so often in a row is lost for this run.
PAUSE_US_MIN = 100_000  #: The pause after a failure. It doubles with each further one.
PAUSE_US_MAX = 3_000_000
DAMAGED_CHUNKS_MAX = 16  #: A source whose chunks arrive damaged so often in a row is lost for this run.


@dataclass(slots=True, eq=False)
class FetchSource:
    """The source, with its session."""

    offer: CopyOffer
    in_flight: int = 0  #: Requests for chunks that are not answered yet.
    not_before_us: int = 0  #: Nothing is asked before.
    heard_us: int = 0  #: When it last proved that the session is open.
    keeping: bool = False  #: A ``KeepAlive`` is not answered yet.
    failures: int = 0  #: In a row.
    damaged_chunks: int = 0  #: In a row.
    #: Why it is not used any more, with the code of its last error; ``None`` while it is used.
    lost: tuple[Interruption | None, str, str] | None = None

    def usable(self, now_us: int) -> bool:
        """Return whether it may be asked now."""
        return self.lost is None and now_us >= self.not_before_us

    def answered(self, now_us: int) -> None:
        """Note that it served a request."""
        self.failures = 0
        self.heard_us = max(self.heard_us, now_us)

    def failed(self, error: StelaeError, now_us: int) -> None:
        """Note that a request failed with an error that may pass. Failures during a pause count once."""
        if isinstance(error, Overloaded):
            self.not_before_us = max(self.not_before_us, now_us + PAUSE_US_MIN)
            self.heard_us = max(self.heard_us, now_us)
        elif now_us >= self.not_before_us:
            self.failures += 1
            self.not_before_us = now_us + min(PAUSE_US_MIN << (self.failures - 1), PAUSE_US_MAX)
            if self.failures >= FAILURES_MAX:
                self.lose(Interruption.SOURCE_LOST, error.code, f"{self.offer.source} does not answer: {error}")

    def lose(self, why: Interruption | None, code: str, reason: str) -> None:
        """Do not use the source any more. ``why`` is ``None`` if it refused this copy."""
        if self.lost is None:
            self.lost = (why, code, reason)

    def keep_alive_due_us(self) -> int:
        """Return when the session needs its next ``KeepAlive``, long before its time to live has passed."""
        return max(self.heard_us + self.offer.ttl_ms * 1000 // 3, self.not_before_us)


def passes(error: StelaeError) -> bool:
    """Return whether the same request may succeed later at the same source."""
    return isinstance(error, RetryableError)
