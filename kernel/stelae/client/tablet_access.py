"""Types by which a table reaches its tablets: writes, scans and lookups of one tablet, and lookups of the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol

from stelae.client.found_parts import FoundPart
from stelae.client.locations import TableLocation
from stelae.client.page_streams import ReadableTablet
from stelae.client.planned_write import WritableTablet


class TabletAccess(WritableTablet, ReadableTablet, Protocol):
    """A tablet that can be written and read."""

    @property
    def retries(self) -> Mapping[str, int]:
        """How many times an operation was sent again, by the code of the error that made it necessary."""
        ...

    def look_up(self, keys: Sequence[bytes], *, at: int | None, timeout_s: float) -> Awaitable[Sequence[FoundPart]]:
        """Return the rows of 1 to ``LOOKUP_KEYS_MAX`` encoded keys, in the order of the keys."""
        ...


Newer = Callable[[TableLocation, float], Awaitable[tuple[TableLocation, Sequence[TabletAccess]] | None]]
"""Looks a table up again within a number of seconds; returns ``None`` if it has the same tablets as before.

It does not wait for a change of the table that is under way."""

Reopen = Callable[[TableLocation, float], Awaitable[tuple[TableLocation, Sequence[TabletAccess]]]]
"""Looks a table up again within a number of seconds, and returns its location and its tablets."""


def retries_of(tablets: Iterable[TabletAccess]) -> Counter[str]:
    """Return how many times operations of some tablets were sent again, by the code of the error."""
    found: Counter[str] = Counter()
    for tablet in tablets:
        found.update(tablet.retries)
    return found
