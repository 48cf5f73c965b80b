"""At the end: is every acknowledged row there, once, and nothing else?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stelae_bench.rows import WRITER_SHIFT


@dataclass(frozen=True, slots=True)
class VerifyTally:
    """Rows read; acknowledged rows among them that are missing; rows that nobody wrote."""

    read: int
    lost: int
    strange: int


class Verification:
    """Compares the keys of a scan with what each writer was acknowledged.

    Args:
        acked: rows of each writer, which are those with its first keys.
    """

    def __init__(self, acked: Mapping[int, int]) -> None:
        self._seen = {writer: bytearray(count) for writer, count in acked.items()}
        self._read = 0
        self._strange = 0

    def take(self, keys: Iterable[int]) -> None:
        """Take the keys of some rows."""
        mask = (1 << WRITER_SHIFT) - 1
        for key in keys:
            self._read += 1
            seen = self._seen.get(key >> WRITER_SHIFT, b"")
            place = key & mask
            if place < len(seen) and not seen[place]:
                self._seen[key >> WRITER_SHIFT][place] = 1
            else:
                self._strange += 1

    def tally(self) -> VerifyTally:
        """Return what was found."""
        lost = sum(len(seen) - sum(seen) for seen in self._seen.values())
        return VerifyTally(self._read, lost, self._strange)
