"""Version chains: each key's newest version, linked to the ones before.

A version is an immutable tuple ``(timestamp, index, part, row, previous)``: when and by which entry
it was written, where its values are (``part`` is ``None`` for a deletion), and what it replaced.
Timestamps and indexes never rise along ``previous``."""

from __future__ import annotations

from typing import TypeAlias

from stelae_store_memory.parts import Part

Version: TypeAlias = "tuple[int, int, Part | None, int, Version | None]"


def visible(newest: Version | None, timestamp: int, index: int) -> Version | None:
    """Return the version that a view sees; a deletion counts as one, ``None`` is "never was"."""
    while newest is not None and (newest[0] > timestamp or newest[1] > index):
        newest = newest[4]
    return newest


def pruned(newest: Version, limit: int) -> Version | None:
    """Return the chain without what no view at or above timestamp ``limit`` can see.

    ``None`` when nothing is left: the key was deleted at or before ``limit``.
    """
    later: list[Version] = []
    at: Version | None = newest
    while at is not None and at[0] > limit:
        later.append(at)
        at = at[4]
    if at is None or (at[4] is None and at[2] is not None):
        return newest
    kept: Version | None = None if at[2] is None else (*at[:4], None)
    for version in reversed(later):
        kept = (*version[:4], kept)
    return kept


def length(newest: Version | None) -> int:
    """Return the number of versions of a chain."""
    count = 0
    while newest is not None:
        count += 1
        newest = newest[4]
    return count
