"""Recent entries of one log, kept in memory for replication and apply.

Entries that are not yet durable exist nowhere else to be read from, so they are pinned (``durability.md`` rule 2), and
so are those that are not yet applied; beyond those the cache holds the newest entries up to a bound in bytes."""

from collections import deque

from stelae.spi.ids import OpId
from stelae.spi.log import Entry


class EntryCache:
    """Contiguous newest entries of a log that ends at ``last``, which itself is not cached."""

    def __init__(self, last: OpId, bytes_max: int) -> None:
        self._entries: deque[Entry] = deque()
        self._first = last.index + 1
        self._bytes = 0
        self._bytes_max = bytes_max
        self.replacing_from: int | None = None
        """From here on the disk may hold entries that are being replaced, or that a failure left behind."""

    def settled(self, durable_index: int) -> int:
        """Up to which index the entries *of this cache* are durable, where the log on disk is durable up to
        ``durable_index``: a suffix that is being replaced is durable, but its entries are others."""
        return durable_index if self.replacing_from is None else min(durable_index, self.replacing_from - 1)

    @property
    def first_index(self) -> int:
        """Index of the oldest cached entry; one past the newest when the cache is empty."""
        return self._first

    @property
    def end_index(self) -> int:
        """One past the index of the newest entry of the log."""
        return self._first + len(self._entries)

    @property
    def size_bytes(self) -> int:
        """Bytes held, pinned entries included."""
        return self._bytes

    def append(self, entries: tuple[Entry, ...], replace_from: int | None) -> None:
        """Follow a change of the log: void from ``replace_from``, then append ``entries``."""
        if replace_from is not None:
            self.cut(replace_from)
        for entry in entries:
            self._bytes += entry.size_bytes
        self._entries.extend(entries)

    def cut(self, from_index: int) -> None:
        """Forget everything at or above an index."""
        while self._entries and self._entries[-1].op_id.index >= from_index:
            self._bytes -= self._entries.pop().size_bytes
        if not self._entries:
            self._first = min(self._first, from_index)

    def op_id_at(self, index: int) -> OpId | None:
        """Op id of a cached entry, or ``None`` if it is not cached."""
        offset = index - self._first
        if 0 <= offset < len(self._entries):
            return self._entries[offset].op_id
        return None

    def get(self, first: int, end: int, bytes_max: int) -> list[Entry] | None:
        """Entries ``first <= index < end``: at least one, then up to ``bytes_max`` bytes. ``None`` if ``first`` is not
        cached: the caller reads the log instead."""
        offset = first - self._first
        if offset < 0 or offset >= len(self._entries):
            return None
        found: list[Entry] = []
        size = 0
        for position in range(offset, min(end - self._first, len(self._entries))):
            entry = self._entries[position]
            size += entry.size_bytes
            if found and size > bytes_max:
                break
            found.append(entry)
        return found

    def evict(self, unpinned_through: int) -> None:
        """Drop the oldest entries over the bound, none above ``unpinned_through``."""
        while self._bytes > self._bytes_max and self._entries and self._entries[0].op_id.index <= unpinned_through:
            self._bytes -= self._entries.popleft().size_bytes
            self._first += 1
