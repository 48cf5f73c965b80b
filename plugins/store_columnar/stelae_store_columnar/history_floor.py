"""The history floor of a store, and the limit on the versions of one key above it.

All versions of a key are in one row group, which is read and written as a whole, and a text array of Arrow has at most
2 GiB. So a key that is updated again and again must not keep versions without bound. If its versions exceed the limit,
the floor rises until the newest half of the limit is left. The floor is that of the store: reads of other keys below it
are refused, too."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from stelae_store_columnar.sources import SourceSlice
from stelae_store_columnar.versions import joined

log = logging.getLogger(__name__)


class HistoryFloor:
    """The oldest hybrid timestamp that can be read. Only the applying thread raises it.

    Args:
        timestamp: the floor.
        key_bytes_max: the most bytes of the versions of one key above it.
        directory: of the store, for the log.
    """

    def __init__(self, timestamp: int, key_bytes_max: int, directory: str) -> None:
        self.timestamp = timestamp
        self._key_bytes_max = key_bytes_max
        self._directory = directory

    def raise_to(self, timestamp: int) -> None:
        """Raise the floor to a hybrid timestamp. A lower one changes nothing."""
        self.timestamp = max(self.timestamp, timestamp)

    def make_room(self, slices: Sequence[SourceSlice]) -> bool:
        """Raise the floor if a key has too many versions in these slices.

        Returns true if the slices have more bytes than one key may have. Then each of them is to be read without the
        versions below the floor, before they are put together."""
        if sum(source_slice.size_bytes for source_slice in slices) <= self._key_bytes_max:
            return False
        floor = self._floor_for(slices)
        if floor > self.timestamp:
            log.warning(
                "history shortened: the versions of one key exceed %d bytes store=%s floor=%d",
                self._key_bytes_max,
                self._directory,
                floor,
            )
            self.timestamp = floor
        return True

    def _floor_for(self, slices: Sequence[SourceSlice]) -> int:
        """Return the floor above which no key has more than half of the limit, or this floor if none exceeds it."""
        found = [source_slice.read((), use_cache=False) for source_slice in slices]
        keys, stamps = joined([part.keys for part in found]), joined([part.stamps for part in found])
        sizes = joined(
            [
                pa.repeat(pa.scalar(source_slice.row_bytes, pa.float64()), len(part))
                for source_slice, part in zip(slices, found, strict=True)
            ]
        )
        above = pc.greater(stamps, pa.scalar(self.timestamp, pa.int64()))
        keys, stamps, sizes = keys.filter(above), stamps.filter(above), sizes.filter(above)
        sums = pa.table({"key": keys, "bytes": sizes}).group_by("key").aggregate([("bytes", "sum")])
        large = sums.filter(pc.greater(sums["bytes_sum"], self._key_bytes_max))["key"]
        floors = (
            self._floor_of(stamps.filter(mine), sizes.filter(mine)) for mine in (pc.equal(keys, k) for k in large)
        )
        return max(floors, default=self.timestamp)

    def _floor_of(self, stamps: Any, sizes: Any) -> int:
        """Return the timestamp of the newest version of a key that the newer ones leave no room for."""
        newest_first = pc.array_sort_indices(stamps, order="descending")
        filled = pc.cumulative_sum(sizes.take(newest_first))
        first = pc.indices_nonzero(pc.greater(filled, self._key_bytes_max / 2))[0]
        return int(stamps[newest_first[first.as_py()].as_py()].as_py())
