"""Locks of changes in flight: shared and exclusive, taken all at once or not at all.

They are the first step of the source's contract. There, table locks come before tablet locks, so that two changes do
not wait for each other. Here no change waits: a request that cannot get all its locks gets none and is retried."""

from __future__ import annotations

from collections import Counter

import msgspec


class LockRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Names to lock, such as ``name/readings``, ``table/<id>``, ``tablet/<id>``. A name may be in both lists."""

    write: tuple[str, ...] = ()
    read: tuple[str, ...] = ()


class Locks:
    """The locks and their owners. Owners are tokens of batches.

    The requests of one owner exclude each other, too: of two records of one tablet in a batch, the second would replace
    the first."""

    def __init__(self) -> None:
        self._written: set[str] = set()
        self._read: Counter[str] = Counter()
        self._held: dict[int, list[LockRequest]] = {}

    def acquire(self, owner: int, wanted: LockRequest) -> bool:
        """Take all locks, or none. Return whether they were taken."""
        if not self.are_free(wanted):
            return False
        self._written.update(wanted.write)
        self._read.update(wanted.read)
        self._held.setdefault(owner, []).append(wanted)
        return True

    def are_free(self, wanted: LockRequest) -> bool:
        """Return whether all locks can be taken now."""
        written, read = self._written, self._read.keys()
        return written.isdisjoint(wanted.write) and written.isdisjoint(wanted.read) and read.isdisjoint(wanted.write)

    def release(self, owner: int) -> None:
        """Release all locks of an owner. It may have none."""
        for wanted in self._held.pop(owner, ()):
            self._written.difference_update(wanted.write)
            for name in wanted.read:
                self._read[name] -= 1
                if not self._read[name]:
                    del self._read[name]

    def __len__(self) -> int:
        """The number of owners that have locks."""
        return len(self._held)
