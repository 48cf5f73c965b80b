"""What a reader is handed of one source: a stretch of its versions in key order.

Sources are chunks in memory and levels of blocks. A reader walks a key range in steps, cut at fences that the sources
propose, so that a step holds a bounded number of rows however many sources overlap in it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import Protocol, TypeAlias

from stelae.rows.key_order import Comparable, KeyOrder
from stelae.spi.store import BATCH_BYTES_MAX
from stelae_store_columnar.versions import Versions

STEP_BYTES = BATCH_BYTES_MAX  #: Bytes of a step, about, where texts are long.

Fence: TypeAlias = tuple[Comparable, float]
"""A key at which to cut, and the share of a step between it and the fence before."""


@dataclass(frozen=True, slots=True)
class Cut:
    """How a range is cut into steps: about ``rows`` in each."""

    order: KeyOrder
    rows: int

    def share(self, rows: float, size_bytes: float) -> float:
        """Return how much of a step some rows are."""
        return max(rows / self.rows, size_bytes / STEP_BYTES)


class Part(ABC):
    """A stretch of one source. ``stamp_min``, ``stamp_max``: none of its timestamps is below, and none above."""

    __slots__ = ()
    stamp_min: int
    stamp_max: int

    @abstractmethod
    def read(self, ids: Sequence[int], *, again: bool) -> Versions:
        """Return its versions by key, then as applied, with those of the columns that the source has.

        ``again``: somebody will soon read close by, so that it pays to keep what was decoded."""

    @property
    @abstractmethod
    def row_bytes(self) -> float:
        """Bytes of a version, on the average of its source."""

    @property
    @abstractmethod
    def bounds(self) -> tuple[Comparable, Comparable]:
        """The keys of its first and its last version, or some below and above."""

    @abstractmethod
    def plain(self, at: int | None) -> bool:
        """Whether, read alone, each version is a row as of a time (``None``: of now)."""


class Source(Protocol):
    """Versions in key order, older or newer as a whole than those of another source, key by key."""

    def fences(self, low: Comparable | None, high: Comparable | None, cut: Cut) -> list[Fence]:
        """Propose where to cut a range; ``None`` is no bound."""

    def parts(self, low: Comparable | None, high: Comparable | None) -> Sequence[Part]:
        """Return what lies in a range, in key order. Cheap: nothing is read."""


Interval: TypeAlias = tuple[Comparable | None, Comparable | None]
"""Keys from the first, inclusive, to the second, exclusive."""


def steps(sources: Sequence[Source], low: Comparable | None, high: Comparable | None, cut: Cut) -> list[Interval]:
    """Cut a range into steps, in key order."""
    fences = [fence for source in sources for fence in source.fences(low, high, cut)]
    fences.sort(key=itemgetter(0))
    found: list[Interval] = []
    share = 0.0
    for (key, weight), (following, _) in pairwise((*fences, (None, 0.0))):
        share += weight
        if key == following:
            continue
        if share >= 1 and (low is None or key > low) and (high is None or key < high):
            found.append((low, key))
            low, share = key, 0.0
    if share > 0:
        found.append((low, high))
    return found
