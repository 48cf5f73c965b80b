"""The replacements of the mutants in ``lookup_mutants``.

Each function takes the original function first, then the arguments of the call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from stelae.spi.consensus import Role
from stelae.spi.store import FoundBatch
from stelae_store_columnar import bloom
from stelae_store_columnar.memory_chunks import MemoryChunk

Original = Callable[..., Any]


# -- the server -----------------------------------------------------------------------------------


def answer_without_confirmation(original: Original, self: Any, replica: Any) -> None:
    """Answer as long as this node believes that it leads."""
    if replica.status.role is Role.LEADER and replica.status.serving:
        self._read(replica, self._waiting.pop(replica), replica.applier.timestamp)
    else:
        original(self, replica)


def read_what_is_newest(original: Original, self: Any, replica: Any, lookups: Any, at: Any) -> None:
    """Read whatever is applied, though the lookup is for an earlier time."""
    original(self, replica, lookups, max(at, replica.applier.timestamp) if isinstance(at, int) else at)


# -- the columnar store ---------------------------------------------------------------------------


def believe_the_cache(original: Original, self: Any, source: Any, key: Any, last: int, position: int) -> bool:
    """Skip the deletion of a row that a decoded row group still has."""
    row_groups = [level.row_group_of(key) for level in self._levels]
    cached = any(one is not None and one.block.cached_rows(one.number) is not None for one in row_groups)
    deleted = source.rows.marks.deleted
    if cached and deleted is not None and deleted.at(source.place(last)):
        return False
    return bool(original(self, source, key, last, position))


def forget_keys_in_merges(
    original: Original, self: Any, state: Any, history: Any, sources: Sequence[Any], span: Any, bottom: bool
) -> Any:
    """Write blocks. If they are those of a merge, and not of a flush, their filters lack every third key."""
    if any(isinstance(source, MemoryChunk) for source in sources):
        return original(self, state, history, sources, span, bottom)
    build = bloom.build

    def build_without_some(keys: Any) -> bytes:
        return build(keys.filter(pa.array([key % 3 > 0 for key in keys.to_pylist()])))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bloom, "build", build_without_some)
        return original(self, state, history, sources, span, bottom)


def overlook_later_versions(original: Original, self: Any, source: Any, key: Any, last: int, position: int) -> bool:
    """Return the completed row of a key as it is, whatever came after it."""
    known = self._completed_rows.get(key, self._until)
    if known is None:
        return bool(original(self, source, key, last, position))
    self._begun.pop(position, None)
    self._found.put(position, known.row)
    return True


def complete_with_a_later_row(original: Original, self: Any, key: Any, until: int) -> Any:
    """Return the completed row of a key also for an earlier time."""
    return original(self, key, max(until, self._stamp))


def prefer_older_versions(original: Original, self: Any, rows: Any) -> None:
    """Replace the rows of newer sources by those of an older one."""
    for key in rows:
        self._newest.pop(key, None)
    original(self, rows)


def take_unread_keys_for_new(original: Original, levels: Any, key: Any) -> bool:
    """Answer that the blocks have no row of a key where only a file could tell."""
    return bool(original(levels, key))


def prefer_what_the_blocks_had(original: Original, self: Any, keys: Sequence[Any]) -> list[bool]:
    """Trust what was found in the blocks before the entry, whatever memory has of the keys."""
    found = original(self, keys)
    return [self._in_blocks.get(key, live) for key, live in zip(keys, found, strict=True)]


def take_the_newest_version_as_it_is(original: Original, self: Any, *version: Any) -> bool:
    """Leave columns that the newest version lacks without a value."""
    original(self, *version)
    return True


def give_keys_the_rows_of_others(original: Original, self: Any, unread: Any) -> Any:
    """Return a batch in which each row is that of the key before its own."""
    found = original(self, unread)
    return FoundBatch(found.schema, found.rows, [max(-1, place - 1) for place in found.positions], found.unread)
