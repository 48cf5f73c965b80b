"""The replacements of the mutants in ``lookup_mutants``.

Each function takes the original function first, then the arguments of the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stelae.spi.consensus import Role

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


def forget_keys_of_merged_blocks(original: Original, self: Any, row_group: Any, wanted: Any) -> Any:
    """The filters of the oldest level, which is that of merged blocks if there are any, lack every third key."""
    is_cached = row_group.block.cached_rows(row_group.number) is not None
    if is_cached or not self._levels or row_group not in self._levels[-1].row_groups:
        return original(self, row_group, wanted)
    held = [one for one in wanted if one[0] % 3]
    forgotten = [one for one in wanted if not one[0] % 3]
    return sorted([*original(self, row_group, held), *forgotten])


def take_the_newest_version_as_it_is(original: Original, self: Any, *version: Any) -> bool:
    """Leave columns that the newest version lacks without a value."""
    original(self, *version)
    return True
