"""Chunks: versions in memory, as they were applied, and in key order once a reader asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow.compute as pc

from stelae.rows.key_order import Comparable
from stelae_store_columnar.parts import Cut, Fence, Part
from stelae_store_columnar.sorted_keys import SortedKeys
from stelae_store_columnar.versions import STAMP_MAX, Versions, combined, same_as_next

GATHERED_BYTES_MAX = 256 << 20  #: Far below what the 32-bit offsets of one array of texts can hold.
_NEVER = -1  #: In place of a timestamp.
_FENCES = 8  #: Where several chunks overlap, each proposes so many cuts for the rows of one step.


class Chunk:
    """Immutable versions in log order.

    ``ascending``: their keys never fall, so that log order is key order. Sorting is done by the first reader, on its
    thread; two readers at once do it twice and get the same."""

    __slots__ = ("_keys", "_order", "_plain_from", "ascending", "first", "last", "size_bytes", "versions")

    def __init__(
        self, versions: Versions, bounds: tuple[Comparable, Comparable], ascending: bool, size_bytes: int
    ) -> None:
        self.versions = versions
        self.first, self.last = bounds
        self.ascending = ascending
        self.size_bytes = size_bytes
        self._order: Any = None
        self._keys: SortedKeys | None = None
        self._plain_from: int | None = None

    def __len__(self) -> int:
        return len(self.versions)

    @property
    def row_bytes(self) -> float:
        """Bytes of a version, on average."""
        return self.size_bytes / len(self)

    def fences(self, low: Comparable | None, high: Comparable | None, cut: Cut) -> list[Fence]:
        """Return keys at which a reader may cut, each with the share of a step that lies before it."""
        if (low is not None and self.last < low) or (high is not None and self.first >= high):
            return []
        keys = self._sorted()
        start, end = keys.left(low, 0), keys.left(high, len(keys))
        weight = cut.share(1, self.row_bytes)
        apart = max(1, int(1 / weight) // _FENCES)
        found = [(keys.at(place), apart * weight) for place in range(start + apart, end, apart)]
        if start < end:
            rest = end - start - apart * len(found)
            found.append((cut.order.after(keys.at(end - 1)), rest * weight))
        return found

    def parts(self, low: Comparable | None, high: Comparable | None) -> Sequence[Part]:
        """Return what lies in a range: one part, or none."""
        if (low is not None and self.last < low) or (high is not None and self.first >= high):
            return ()
        keys = self._sorted()
        start, end = keys.left(low, 0), keys.left(high, len(keys))
        return (ChunkPart(self, start, end),) if start < end else ()

    def read(self, start: int, end: int, ids: Sequence[int]) -> Versions:
        """Return some versions by their places in key order."""
        self._sorted()
        own = self.versions.select(ids)
        return own.slice(start, end - start) if self._order is None else own.take(self._order.slice(start, end - start))

    def key_at(self, place: int) -> Comparable:
        """Return the key at a place in key order."""
        return self._sorted().at(place)

    def plain(self, at: int | None) -> bool:
        """Whether each version, read alone, is a row as of a time: none of them shares its key, says only a part of its
        row, is a deletion, or is younger. Looked at by the first reader."""
        since = self._plain_from
        if since is None:
            whole, keys = self.versions, self._sorted().array
            hides = whole.deleted is not None or whole.partial is not None or pc.any(same_as_next(keys)).as_py()
            since = self._plain_from = _NEVER if hides else pc.max(whole.stamps).as_py()
        return since != _NEVER and (at is None or since <= at)

    def _sorted(self) -> SortedKeys:
        keys = self._keys
        if keys is None:
            if self.ascending:
                keys = SortedKeys(self.versions.keys)
            else:
                self._order = pc.sort_indices(self.versions.keys)
                keys = SortedKeys(self.versions.keys.take(self._order))
            self._keys = keys  # last: who sees the keys sees the order
        return keys


class ChunkPart(Part):
    """Places ``start`` to before ``end`` of a chunk in key order."""

    __slots__ = ("_chunk", "_end", "_start")
    stamp_min = 0
    stamp_max = STAMP_MAX

    def __init__(self, chunk: Chunk, start: int, end: int) -> None:
        self._chunk, self._start, self._end = chunk, start, end

    @property
    def row_bytes(self) -> float:
        return self._chunk.row_bytes

    @property
    def bounds(self) -> tuple[Comparable, Comparable]:
        return self._chunk.key_at(self._start), self._chunk.key_at(self._end - 1)

    def plain(self, at: int | None) -> bool:
        return self._chunk.plain(at)

    def read(self, ids: Sequence[int], *, again: bool) -> Versions:
        return self._chunk.read(self._start, self._end, ids)


def overlap(chunks: Sequence[Chunk]) -> bool:
    """Whether some chunks share a range of keys, or one is not in key order in itself."""
    ordered = sorted(chunks, key=_first)
    meets = any(one.last >= other.first for one, other in pairwise(ordered))
    return meets or not all(chunk.ascending for chunk in chunks)


def gathered(chunks: Sequence[Chunk], types: Mapping[int, Any]) -> list[Chunk]:
    """Put neighbours together as far as one array can hold them: reading many that overlap costs by their number."""
    found: list[Chunk] = []
    waiting: list[Chunk] = []
    for chunk in chunks:
        if waiting and sum(one.size_bytes for one in waiting) + chunk.size_bytes > GATHERED_BYTES_MAX:
            found.append(merged(waiting, types))
            waiting = []
        waiting.append(chunk)
    return [*found, merged(waiting, types)]


def merged(chunks: Sequence[Chunk], types: Mapping[int, Any]) -> Chunk:
    """Put neighbours together, log order kept."""
    ascending = all(chunk.ascending for chunk in chunks)
    ascending = ascending and all(a.last < b.first for a, b in pairwise(chunks))
    return Chunk(
        combined([chunk.versions for chunk in chunks], types),
        (min(chunk.first for chunk in chunks), max(chunk.last for chunk in chunks)),
        ascending,
        sum(chunk.size_bytes for chunk in chunks),
    )


def _first(chunk: Chunk) -> Comparable:
    return chunk.first
