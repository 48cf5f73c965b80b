"""When a write without an outcome is sent again, and when it is given up. Pure."""

from __future__ import annotations

import random

from stelae.spi.errors import DeadlineExceeded

BACKOFF_S_MIN = 0.005
"""The shortest pause before a retry."""

BACKOFF_S_MAX = 0.25
"""The longest random part of a pause. The pause grows with each failure in a row."""


class WriteRetries:
    """The pauses between the retries of one writer, and its reason to give a write up.

    Args:
        rng: draws the pauses.
    """

    def __init__(self, rng: random.Random) -> None:
        self.last_error = "no node answered"  #: Why the last request had no outcome.
        self._rng = rng
        self._failures = 0

    def given_up(self, deadline_s: float, now_s: float) -> DeadlineExceeded | None:
        """Return the error of a write without an outcome after its deadline; ``None``: it is sent again."""
        if now_s < deadline_s:
            return None
        return DeadlineExceeded(f"no leader accepted the write in time; the last answer was: {self.last_error}")

    def next_pause_s(self) -> float:
        """Count a failure, and return for how long to wait after it."""
        self._failures += 1
        ceiling = min(BACKOFF_S_MAX, BACKOFF_S_MIN * 2 ** min(self._failures, 10))
        drawn: float = self._rng.random() * ceiling
        return BACKOFF_S_MIN + drawn

    def served(self) -> None:
        """End the row of failures: a node has answered."""
        self._failures = 0
