"""Locks of changes that are on their way: shared and exclusive, taken all at once or not at all.

They are the first step of the source's contract. Table locks come before tablet locks there, lest two changes wait for
each other; here nothing ever waits: who does not get all of its locks gets none, and comes again."""

from __future__ import annotations

import msgspec


class LockRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Names to lock, such as ``name/readings``, ``table/<id>``, ``tablet/<id>``; one may stand in both."""

    write: tuple[str, ...] = ()
    read: tuple[str, ...] = ()


class Locks:
    """Who holds what. Owners are tokens of batches; an owner never stands in its own way."""

    def __init__(self) -> None:
        self._writer: dict[str, int] = {}
        self._readers: dict[str, set[int]] = {}
        self._held: dict[int, list[LockRequest]] = {}

    def acquire(self, owner: int, wanted: LockRequest) -> bool:
        """Take all, or nothing; return which."""
        if self.conflict(owner, wanted) is not None:
            return False
        for name in wanted.write:
            self._writer[name] = owner
        for name in wanted.read:
            self._readers.setdefault(name, set()).add(owner)
        self._held.setdefault(owner, []).append(wanted)
        return True

    def conflict(self, owner: int, wanted: LockRequest) -> str | None:
        """Return the first name that another owner stands on, if any."""
        for name in (*wanted.write, *wanted.read):
            if self._writer.get(name, owner) != owner:
                return name
        return next((name for name in wanted.write if self._readers.get(name, set()) - {owner}), None)

    def release(self, owner: int) -> None:
        """Give back all that an owner holds; nothing happens if that is nothing."""
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
        """How many owners hold something."""
        return len(self._held)
