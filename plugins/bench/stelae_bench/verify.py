"""Checks at the end of a run that every acknowledged row exists once, and no other row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stelae_bench.rows import WRITER_SHIFT


@dataclass(frozen=True, slots=True)
class VerifyTally:
    """The result of a check.

    Attributes:
        read: rows that were read.
        missing: acknowledged rows that were not read.
        unexpected: rows that were never written, or were read twice.
    """

    read: int
    missing: int
    unexpected: int


class Verification:
    """Compares the keys of a scan with the acknowledged rows of each writer.

    Args:
        acked: the number of acknowledged rows of each writer. They are the rows with its first keys.
    """

    def __init__(self, acked: Mapping[int, int]) -> None:
        self._seen = {writer: bytearray(count) for writer, count in acked.items()}
        self._read = 0
        self._unexpected = 0

    def add(self, keys: Iterable[int]) -> None:
        """Add the keys of rows that were read."""
        mask = (1 << WRITER_SHIFT) - 1
        for key in keys:
            self._read += 1
            seen = self._seen.get(key >> WRITER_SHIFT, b"")
            index = key & mask
            if index < len(seen) and not seen[index]:
                self._seen[key >> WRITER_SHIFT][index] = 1
            else:
                self._unexpected += 1

    def tally(self) -> VerifyTally:
        """Return the result."""
        missing = sum(len(seen) - sum(seen) for seen in self._seen.values())
        return VerifyTally(self._read, missing, self._unexpected)
