"""The replacements of the mutants in ``lookup_mutants``.

Each function takes the original function first, then the arguments of the call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
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


def believe_the_cache(original: Original, self: Any, key: Any) -> Iterator[Any]:
    """Skip the deletion of a row that a decoded row group still has."""
    found = list(original(self, key))
    row_groups = [level.row_group_of(key) for level in self._levels]
    cached = any(one is not None and one.block.cached_rows(one.number) is not None for one in row_groups)
    for rows, place in found:
        deleted = rows.versions.deleted
        if not (cached and deleted is not None and deleted[place].as_py()):
            yield rows, place


class _Forgetful:
    """A level whose filters lack every third key."""

    def __init__(self, level: Any) -> None:
        self._level = level

    def row_group_of(self, key: Any) -> Any:
        row_group = self._level.row_group_of(key)
        if row_group is None or key % 3 or row_group.block.cached_rows(row_group.number) is not None:
            return row_group
        return None


def forget_keys_of_merged_blocks(original: Original, self: Any, state: Any, *given: Any, **named: Any) -> None:
    """Merged blocks are those of level 1."""
    original(self, state, *given, **named)
    merged = state.levels.level1
    self._levels = tuple(_Forgetful(level) if level is merged else level for level in self._levels)


def take_the_newest_version_as_it_is(original: Original, self: Any, key: Any) -> Iterator[Any]:
    """Leave columns that the newest version lacks without a value."""
    return iter([*partial(original, self)(key)][:1])
