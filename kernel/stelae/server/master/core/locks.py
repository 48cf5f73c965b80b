"""Locks of changes in flight: shared and exclusive, taken all at once or not at all.

They are the first step of the source's contract. There, table locks come before tablet locks, so that two changes do
not wait for each other. Here no change waits: a request that cannot get all its locks gets none and is retried."""

from __future__ import annotations

import msgspec


class LockRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Names to lock, such as ``name/readings``, ``table/<id>``, ``tablet/<id>``. A name may be in both lists."""

    write: tuple[str, ...] = ()
    read: tuple[str, ...] = ()


class Locks:
    """The locks and their owners. Owners are tokens of batches. The locks of one owner do not exclude each other."""

    def __init__(self) -> None:
        self._writer: dict[str, int] = {}
        self._readers: dict[str, set[int]] = {}
        self._held: dict[int, list[LockRequest]] = {}

    def acquire(self, owner: int, wanted: LockRequest) -> bool:
        """Take all locks, or none. Return whether they were taken."""
        if self.conflict(owner, wanted) is not None:
            return False
        for name in wanted.write:
            self._writer[name] = owner
        for name in wanted.read:
            self._readers.setdefault(name, set()).add(owner)
        self._held.setdefault(owner, []).append(wanted)
        return True

    def conflict(self, owner: int, wanted: LockRequest) -> str | None:
        """Return the first name that another owner has locked, or ``None``."""
        for name in (*wanted.write, *wanted.read):
            if self._writer.get(name, owner) != owner:
                return name
        return next((name for name in wanted.write if self._readers.get(name, set()) - {owner}), None)

    def release(self, owner: int) -> None:
        """Release all locks of an owner. It may have none."""
        for wanted in self._held.pop(owner, ()):
            for name in wanted.write:
                if self._writer.get(name) == owner:
                    del self._writer[name]
            for name in wanted.read:
                readers = self._readers.get(name, set())
                readers.discard(owner)
                if not readers:
                    self._readers.pop(name, None)

    def __len__(self) -> int:
        """The number of owners that have locks."""
        return len(self._held)
