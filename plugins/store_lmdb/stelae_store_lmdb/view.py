"""Views: what a reader sees, pinned while others write.

A view is a timestamp and the index of the last entry applied when it was opened; it holds no transaction. Every step
looks into memory and then into the environment, in this order: a flush that ends in between has put there what it took
from here, and a version that is met twice is the same one. What a view can see stays until it is closed, for
compaction asks for the pins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, Self, TypeAlias

from stelae.rows.defaults import Defaults
from stelae.rows.step_budget import StepBudget
from stelae.spi.schema import Layout, Schema
from stelae.spi.store import BATCH_BYTES_MAX
from stelae_store_lmdb.environment import Environment
from stelae_store_lmdb.format import opened_value
from stelae_store_lmdb.keys import split_age
from stelae_store_lmdb.memory import MemoryPart, Version, versions_of, visible
from stelae_store_lmdb.ranges import KeyRange
from stelae_store_lmdb.tree import Record, RowTree, is_deletion
from stelae_store_lmdb.values import Row, RowReader


class Parts:
    """Where the rows of a store are: in memory and, once something was flushed, in the environment."""

    def __init__(self, env: Environment | None) -> None:
        self.memory = MemoryPart()
        self.env = env


class Found(NamedTuple):
    """A version of a row."""

    timestamp: int
    entry: int  #: Index of the one that wrote it.
    contents: bytes


class Versions:
    """The versions of one row in one step: those in memory and those in the environment, both newest first."""

    __slots__ = ("_chain", "_path", "_records")

    def __init__(self, chain: Version | None, records: list[Record], path: str) -> None:
        self._chain = chain
        self._records = records
        self._path = path

    def at(self, timestamp: int, index: int) -> Found | None:
        """Return what a view of that time sees; a deletion counts as one."""
        here = visible(self._chain, timestamp, index)
        if here is not None:
            return Found(*here[:3])
        for _, at, value in self._records:
            contents = opened_value(at, value, self._path)
            written, by = split_age(at)
            if written <= timestamp and by <= index:
                return Found(written, by, contents)
        return None

    def all(self) -> Iterator[Found]:
        """Go through all of them, newest first; one that is being flushed may come twice, not next to itself."""
        for here in versions_of(self._chain):
            yield Found(*here[:3])
        for _, at, value in self._records:
            yield Found(*split_age(at), opened_value(at, value, self._path))


Take: TypeAlias = Callable[[bytes, Versions], bool]
"""Is given every row of a step with its versions, which die with the step; false: it does not fit, and the step ends
before it. The first row of a step must fit."""


class View:
    """The rows as of a timestamp, among the entries applied when it was opened."""

    def __init__(
        self,
        parts: Parts,
        schema: Schema,
        schemas: Mapping[int, Schema],
        defaults: Defaults,
        timestamp: int,
        index: int,
        release: Callable[[], None],
    ) -> None:
        self.schema = schema
        self.timestamp = timestamp
        self.index = index
        self._parts = parts
        self._schemas = schemas
        self._defaults = defaults
        self._release = release

    def close(self) -> None:
        """Let compaction have what only this view could see."""
        self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def reader(self, layout: Layout) -> RowReader:
        """Return what makes rows of a layout of the view's schema."""
        return RowReader(layout, self._schemas, self._defaults)

    def rows(
        self, low: bytes | None, high: bytes | None, backwards: bool, keys_max: int, reader: RowReader
    ) -> tuple[list[Row], KeyRange | None, bytes | None]:
        """Return the visible rows of one step, what is left of the range, and the last key that was looked at."""
        rows: list[Row] = []
        last: bytes | None = None
        timestamp, index, room = self.timestamp, self.index, StepBudget()

        def take(key: bytes, versions: Versions) -> bool:
            nonlocal last
            found = versions.at(timestamp, index)
            if found is not None:
                if not room.takes(reader.size_bytes(found.contents)):
                    return False
                if not is_deletion(found.contents):
                    rows.append(reader.row(found.contents))
            last = key
            return True

        env = self._parts.env
        if env is None or backwards or self._parts.memory.between(low, high, False, 1):
            left = self.step(low, high, backwards, keys_max, take)
            return rows, left, last
        if low is not None and high is not None and low >= high:
            return rows, None, None
        with env.read() as txn:
            records = RowTree(txn, env.path).walk(low, high, False)
            last, more = self._settled(records, env.path, keys_max, reader, rows)
        return rows, ((last or b"") + b"\0", high) if more else None, last

    def _settled(
        self, records: Iterator[Record], path: str, keys_max: int, reader: RowReader, rows: list[Row]
    ) -> tuple[bytes | None, bool]:
        """Rows where memory has none, which is the most of a long scan: as ``step``, without a call for each.

        Memory was looked at before: a row that comes into it since is behind this view."""
        key = before = decided = None
        count, room_bytes, fixed_bytes, row = 0, BATCH_BYTES_MAX, reader.fixed_bytes, reader.row
        for found, at, value in records:
            if found == decided:
                continue
            if found != key:
                count += 1
                if count > keys_max:
                    return key, True
                before, key = key, found
            written, by = split_age(at)
            contents = opened_value(at, value, path)
            if written <= self.timestamp and by <= self.index:
                room_bytes -= fixed_bytes + len(contents)
                if room_bytes < 0 and before is not None:
                    return before, True
                decided = found
                if not is_deletion(contents):
                    rows.append(row(contents))
        return key, False

    def step(
        self, low: bytes | None, high: bytes | None, backwards: bool, keys_max: int, take: Take
    ) -> KeyRange | None:
        """Go through up to ``keys_max`` keys of a range, as far as they fit; return what is left of it, or ``None``."""
        if low is not None and high is not None and low >= high:
            return None
        memory = self._parts.memory  # before the environment: see the module
        env = self._parts.env
        keys = memory.between(low, high, backwards, keys_max)
        if env is None:
            last = _merged(keys, memory, iter(()), "", backwards, keys_max, take)
        else:
            with env.read() as txn:
                records = RowTree(txn, env.path).walk(low, high, backwards)
                last = _merged(keys, memory, records, env.path, backwards, keys_max, take)
        if last is None:
            return None
        return (low, last) if backwards else (last + b"\0", high)

    def version(self, key: bytes, timestamp: int, index: int) -> Found | None:
        """Return what a view of that time sees of one row."""
        found: list[Found | None] = []

        def take(_: bytes, versions: Versions) -> bool:
            found.append(versions.at(timestamp, index))
            return True

        self.step(key, key + b"\0", False, 1, take)
        return found[0] if found else None

    def steps(self, keys_max: int, take: Take) -> Iterator[None]:
        """Go through all rows, pausing after each step."""
        left: KeyRange | None = (None, None)
        while left is not None:
            left = self.step(*left, False, keys_max, take)
            yield


def _merged(
    keys: Any, memory: MemoryPart, records: Iterator[Record], path: str, backwards: bool, keys_max: int, take: Take
) -> bytes | None:
    """Hand on the rows of both sources in order; return the last key that was taken if there may be more."""
    groups = groupby(records, itemgetter(0))
    mine = iter(keys)
    here, there = next(mine, None), next(groups, None)
    key = taken = None
    for _ in range(keys_max):
        if here is None and there is None:
            return None
        if there is None or (here is not None and here != there[0] and (here > there[0]) == backwards):
            assert here is not None
            key, found = here, []
            here = next(mine, None)
        else:
            key = there[0]
            found = [*there[1]][::-1] if backwards else [*there[1]]
            if here == key:
                here = next(mine, None)
            there = next(groups, None)
        if not take(key, Versions(memory.chains.get(key), found, path)):
            break
        taken = key
    return taken
