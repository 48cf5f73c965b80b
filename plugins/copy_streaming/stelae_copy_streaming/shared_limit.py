"""The limit of bytes per second that all copies of one side of a node share. Safe for several threads.

An operator's limit always holds. Without one, copies are slower while clients read or write on the node: a copy that
runs as fast as it can takes the processor time and the disk from them, and it seldom matters when it ends."""

from __future__ import annotations

from threading import Lock

from stelae.spi.services import Clock
from stelae_copy_streaming.token_bucket import TokenBucket


class SharedLimit:
    """One limit.

    Args:
        bytes_per_s: the configured limit; 0: none.
        busy_bytes_per_s: the limit without a configured one, while clients are busy; 0: none."""

    def __init__(self, bytes_per_s: int, busy_bytes_per_s: int, clock: Clock) -> None:
        self._configured = bytes_per_s
        self._busy_limit = busy_bytes_per_s
        self._busy = False
        self._clock = clock
        self._lock = Lock()
        self._bucket = TokenBucket(bytes_per_s, clock.monotonic_us())

    @property
    def configured(self) -> int:
        """The configured limit, or the one that an operator has set; 0: none."""
        return self._configured

    def configure(self, bytes_per_s: int) -> None:
        """Set another limit; 0 removes it."""
        with self._lock:
            self._configured = bytes_per_s
            self._apply()

    def set_busy(self, busy: bool) -> None:
        """Note whether clients are busy on this node."""
        with self._lock:
            self._busy = busy
            self._apply()

    def take(self, size_bytes: int) -> int:
        """Admit bytes and return 0, or admit nothing and return the microseconds after which to ask again."""
        with self._lock:
            return self._bucket.take(size_bytes, self._clock.monotonic_us())

    def _apply(self) -> None:
        limit = self._configured or (self._busy_limit if self._busy else 0)
        if limit != self._bucket.bytes_per_s:
            self._bucket.change(limit, self._clock.monotonic_us())
