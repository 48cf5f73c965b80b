"""How far the tests look that search: as far as `make check` has time for, or at length in `make soak`."""

from __future__ import annotations

import os
from typing import Final

AT_LENGTH: Final = bool(os.environ.get("STELAE_SOAK"))
"""Whether this is `make soak`."""

FACTOR: Final = 20


def times(count: int) -> int:
    """Return how many examples, seeds or attempts a search has: ``count``, and in `make soak` ``FACTOR`` times that."""
    return count * FACTOR if AT_LENGTH else count
