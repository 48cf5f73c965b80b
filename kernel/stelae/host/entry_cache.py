"""The recent entries of one log, kept in memory for replication and apply.

Entries that are not durable yet cannot be read from anywhere else, so they are pinned (``durability.md`` rule 2).
Entries that are not applied yet are pinned too. In addition the cache has the newest other entries, up to a bound in
bytes."""

from collections import deque

from stelae.spi.ids import OpId
from stelae.spi.log import Entry


class EntryCache:
    """The newest entries of a log, contiguous. At first it is empty, and the log ends at ``last``."""

    def __init__(self, last: OpId, bytes_max: int) -> None:
        self._entries: deque[Entry] = deque()
        self._first = last.index + 1
        self._bytes = 0
        self._bytes_max = bytes_max
        self.replacing_from: int | None = None
        """From this index on, the disk may have entries that are being replaced, or that a failure left there."""

    def settled(self, durable_index: int) -> int:
        """Return up to which index the entries *of this cache* are durable.

        ``durable_index`` is the durable end of the log on disk. A suffix that is being replaced is durable on disk, but
        with other entries than those of this cache."""
        return durable_index if self.replacing_from is None else min(durable_index, self.replacing_from - 1)

    @property
    def first_index(self) -> int:
        """The index of the oldest cached entry. If the cache is empty, one past the newest entry of the log."""
        return self._first

    @property
    def end_index(self) -> int:
        """One past the index of the newest entry of the log."""
        return self._first + len(self._entries)

    @property
    def size_bytes(self) -> int:
        """The bytes of the cached entries, including pinned ones."""
        return self._bytes

    def append(self, entries: tuple[Entry, ...], replace_from: int | None) -> None:
        """Apply a change of the log: remove everything from ``replace_from`` on, if given, then append ``entries``."""
        if replace_from is not None:
            self.cut(replace_from)
        for entry in entries:
            self._bytes += entry.size_bytes
        self._entries.extend(entries)

    def cut(self, from_index: int) -> None:
        """Remove everything at or above an index."""
        while self._entries and self._entries[-1].op_id.index >= from_index:
            self._bytes -= self._entries.pop().size_bytes
        if not self._entries:
            self._first = min(self._first, from_index)

    def op_id_at(self, index: int) -> OpId | None:
        """Return the op id of a cached entry, or ``None`` if it is not cached."""
        offset = index - self._first
        if 0 <= offset < len(self._entries):
            return self._entries[offset].op_id
        return None

    def get(self, first: int, end: int, bytes_max: int) -> list[Entry] | None:
        """Return entries ``first <= index < end``: at least one, and no further ones beyond ``bytes_max`` bytes.

        Return ``None`` if ``first`` is not cached; the caller then reads the log."""
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
        """Remove the oldest entries above the bound in bytes, but none above index ``unpinned_through``."""
        while self._bytes > self._bytes_max and self._entries and self._entries[0].op_id.index <= unpinned_through:
            self._bytes -= self._entries.popleft().size_bytes
            self._first += 1
