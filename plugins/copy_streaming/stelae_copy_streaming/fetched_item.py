"""One item while it is fetched: what was asked for, what has arrived, and what may be written next. Pure.

Chunks are asked for in order and may arrive in any order. They are written in order, without gaps. A chunk that is
damaged or lost is asked for again before new ones."""

from __future__ import annotations

from heapq import heappop, heappush

from stelae.spi.wal import SnapshotUnit


class FetchedItem:
    """The state of one item.

    Args:
        unit: its name, size and digest.
        stored: the bytes that an earlier run has stored. They are used once their checksum is known to be right."""

    def __init__(self, unit: SnapshotUnit, stored: int) -> None:
        self.unit = unit
        self.stored = stored
        #: The stored bytes were not checked yet. The planner knows their checksum.
        self.unchecked = stored > 0
        self.checking = False
        #: All its bytes are of the present source: none are of an earlier run.
        self.of_one_source = stored == 0
        self.epoch = 0  #: Answers to requests of an earlier epoch are ignored.
        self._next = stored
        self._again: list[tuple[int, int]] = []
        self._arrived: dict[int, bytes] = {}

    @property
    def bytes_left(self) -> int:
        """The bytes that are not written yet."""
        return self.unit.size_bytes - self.stored

    @property
    def buffered(self) -> int:
        """The number of chunks that wait for an earlier one."""
        return len(self._arrived)

    def next_range(self, bytes_max: int) -> tuple[int, int] | None:
        """Return offset and size of what to ask for next, or ``None`` if everything is asked for."""
        if self._again:
            offset, size_bytes = self._again[0]
            return offset, min(size_bytes, bytes_max)
        size_bytes = min(bytes_max, self.unit.size_bytes - self._next)
        return (self._next, size_bytes) if size_bytes else None

    def asked(self, offset: int, size_bytes: int) -> None:
        """Note that the range of ``next_range`` was asked for."""
        if not self._again:
            self._next += size_bytes
            return
        _, missing = heappop(self._again)
        if missing > size_bytes:
            heappush(self._again, (offset + size_bytes, missing - size_bytes))

    def missing(self, offset: int, size_bytes: int) -> None:
        """Note that a range must be asked for again."""
        heappush(self._again, (offset, size_bytes))

    def arrived(self, offset: int, asked_bytes: int, data: bytes) -> list[tuple[int, bytes]]:
        """Take an undamaged chunk, which may be shorter than asked. Return what to write now: offsets and bytes."""
        if len(data) < asked_bytes:
            self.missing(offset + len(data), asked_bytes - len(data))
        self._arrived[offset] = data
        writes = []
        while (found := self._arrived.pop(self.stored, None)) is not None:
            writes.append((self.stored, found))
            self.stored += len(found)
        return writes

    def restart(self) -> None:
        """Forget everything, and begin at the first byte."""
        self.stored = self._next = 0
        self.unchecked = self.checking = False
        self.of_one_source = True
        self.epoch += 1
        self._again.clear()
        self._arrived.clear()
