"""Sources of versions, the slices that a reader gets from them, and the steps in which it reads a key range.

Sources are chunks in memory and levels of blocks. A reader goes through a key range in steps. A step ends at a cut
point that a source proposes, so it has a bounded number of rows, however many sources overlap in it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple, Protocol, TypeAlias

from stelae.rows.key_order import Comparable, KeyOrder
from stelae.spi.store import BATCH_BYTES_MAX
from stelae_store_columnar.plain_rows import PlainRows
from stelae_store_columnar.versions import RowVersions

STEP_BYTES = BATCH_BYTES_MAX  #: Approximate limit on the bytes of a step. It matters for rows with long texts.

INLINE_BYTES_MAX = 1 << 20
"""The event loop reads up to this many bytes for a short step, and sorts chunks of up to this size for it."""

INLINE_VERSIONS_MAX = 4096
"""The same as a number of versions, also for lookups. To sort them takes a millisecond, to read them a few."""


class MustBlock(Exception):
    """The event loop cannot read this: a row group is not decoded, a large chunk is not sorted, or it takes long."""


CutPoint: TypeAlias = tuple[Comparable, float]
"""A key at which a step may end, and the share of a step between it and the cut point before."""


@dataclass(frozen=True, slots=True)
class StepSize:
    """The size of a step: about ``rows`` rows, and about ``size_bytes``.

    Unless it ``may_block``, a source raises ``MustBlock`` instead of reading a file to find the end of the step."""

    order: KeyOrder
    rows: float
    size_bytes: int = STEP_BYTES
    may_block: bool = True

    def count(self, row_bytes: float) -> int:
        """Return the number of rows of a size that are one step, at least 1."""
        return max(1, int(1 / self.share(1, row_bytes)))

    def share(self, rows: float, size_bytes: float) -> float:
        """Return the share of a step that some rows are."""
        return max(rows / self.rows, size_bytes / self.size_bytes)


class PlainSlice(NamedTuple):
    """The versions of a slice by their places in ``rows``."""

    keys: Any  #: Comparables, in an array of Arrow.
    rows: PlainRows
    places: Any  #: A range, or an array of Arrow.
    stamp_max: int  #: No timestamp is above it.


class SourceSlice(ABC):
    """The versions of one source in a key range. Their timestamps are from ``stamp_min`` to ``stamp_max``."""

    __slots__ = ()
    stamp_min: int
    stamp_max: int

    @abstractmethod
    def read(self, ids: Sequence[int], *, use_cache: bool) -> RowVersions:
        """Return the versions by key, then in log order, with those of the columns that the source has.

        ``use_cache`` is true if neighbouring rows will be read soon, so that decoded columns should be cached."""

    @abstractmethod
    def plain(self, *, may_block: bool = True) -> PlainSlice:
        """Return the versions in the same order, for a reader of single values. This slice then keeps them in memory.

        ``MustBlock``: a row group must be decoded for this, or many versions sorted, and this may not block."""

    @property
    @abstractmethod
    def row_bytes(self) -> float:
        """Average size of a version in the source."""

    @property
    @abstractmethod
    def size_bytes(self) -> int:
        """Upper bound of the approximate bytes that a read returns."""

    @property
    @abstractmethod
    def bounds(self) -> tuple[Comparable, Comparable]:
        """A key at or below the first version, and one at or above the last."""

    @abstractmethod
    def is_plain(self, at: int | None) -> bool:
        """Return true if each version is a visible row as of a time (``None``: now), without regard to other slices."""


class VersionSource(Protocol):
    """Versions in key order. For each key, all versions of one source are older or newer than those of another."""

    def cut_points(self, low: Comparable | None, high: Comparable | None, step_size: StepSize) -> list[CutPoint]:
        """Return cut points in a range; ``None`` is no bound."""

    def end_of_first(self, low: Comparable | None, high: Comparable | None, step_size: StepSize) -> Comparable | None:
        """Return the key before which about one step of versions is, from the beginning of a range on.

        It is above the first of them. ``None``: the range has no more. May read a block, like the next method."""

    def begin_of_last(self, low: Comparable | None, high: Comparable | None, step_size: StepSize) -> Comparable | None:
        """Return the first key of the last step of versions of a range, which has about the size of a step.

        It is at or below the last of them. ``None``: the range has no more."""

    def slices(self, low: Comparable | None, high: Comparable | None) -> Sequence[SourceSlice]:
        """Return the slices in a range, in key order. This reads nothing."""


KeyInterval: TypeAlias = tuple[Comparable | None, Comparable | None]
"""The keys from the first (inclusive) to the second (exclusive); ``None`` is no bound."""


def steps(
    sources: Sequence[VersionSource], low: Comparable | None, high: Comparable | None, step_size: StepSize
) -> list[KeyInterval]:
    """Cut a range into steps, in key order."""
    cut_points = [fence for source in sources for fence in source.cut_points(low, high, step_size)]
    cut_points.sort(key=itemgetter(0))
    found: list[KeyInterval] = []
    share = 0.0
    for (key, weight), (following, _) in pairwise((*cut_points, (None, 0.0))):
        share += weight
        if key == following:
            continue
        if share >= 1 and (low is None or key > low) and (high is None or key < high):
            found.append((low, key))
            low, share = key, 0.0
    if share > 0:
        found.append((low, high))
    return found
