"""Version chains: the newest version of a key, linked to the versions before it.

A version is an immutable tuple ``(timestamp, index, written, row, previous)``: the timestamp and index of its entry;
the rows that have its values (``None`` for a deletion) and its position in them; and the version that it replaced.
Timestamps and indexes never rise along ``previous``."""

from __future__ import annotations

from typing import TypeAlias

from stelae_store_memory.written_rows import WrittenRows

Version: TypeAlias = "tuple[int, int, WrittenRows | None, int, Version | None]"


def visible(newest: Version | None, timestamp: int, index: int) -> Version | None:
    """Return the version that a view sees, possibly a deletion, or ``None`` if the key never had a row."""
    while newest is not None and (newest[0] > timestamp or newest[1] > index):
        newest = newest[4]
    return newest


def prune(newest: Version, limit: int) -> Version | None:
    """Return a chain without the versions that no view at or above timestamp ``limit`` can see.

    ``None``: nothing is left, because the key was deleted at or before ``limit``.
    """
    later: list[Version] = []
    at: Version | None = newest
    while at is not None and at[0] > limit:
        later.append(at)
        at = at[4]
    if at is None or (at[4] is None and at[2] is not None):
        return newest
    chain: Version | None = None if at[2] is None else (*at[:4], None)
    for version in reversed(later):
        chain = (*version[:4], chain)
    return chain


def length(newest: Version | None) -> int:
    """Return the number of versions of a chain."""
    count = 0
    while newest is not None:
        count += 1
        newest = newest[4]
    return count
