"""Work that one thread leaves to another one, in order: digests and syncs of a copy, while its next bytes arrive.

A disk needs as long to sync an item as the network to send the next one, and a digest as long as a write. One after the
other they took twice the time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

WAITING_MAX: Final = 2
"""Pieces of work that may be begun and not done. More would only fill the memory with bytes to hash or to write."""


class SideWork(Protocol):
    """A sequence of pieces of work. One thread calls both methods."""

    def begin(self, work: Callable[[], None]) -> None:
        """Begin a piece. May block until an earlier one is done, and raises its error then; ``work`` is not run."""

    def wait(self) -> None:
        """Wait until all have ended. Raises the first error that was not raised yet."""


class DoneAtOnce:
    """All work is done before ``begin`` returns: for one thread, as in the simulator."""

    def begin(self, work: Callable[[], None]) -> None:
        """Do the work."""
        work()

    def wait(self) -> None:
        """Do nothing: all is done."""
