"""Views: the rows as of a time, for one reader, while others write.

A view consists of a timestamp and the index of the last entry applied when it was opened. It holds no transaction.
Every step looks into the memtable first and into the environment second. A flush that ends in between has moved
versions from the first to the second, so a step may find one twice, but misses none. The versions that a view can see
are kept until it is closed, because compaction respects the pins of open views."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, Self, TypeAlias

from stelae.rows.defaults import Defaults
from stelae.rows.step_budget import StepBudget
from stelae.spi.errors import Unavailable
from stelae.spi.schema import Layout, Schema
from stelae.spi.store import BATCH_BYTES_MAX
from stelae_store_lmdb.environment import Environment
from stelae_store_lmdb.format import verified_contents
from stelae_store_lmdb.key_ranges import KeyBounds
from stelae_store_lmdb.keys import split_age
from stelae_store_lmdb.memtable import LmdbMemtable, Version, versions_of, visible
from stelae_store_lmdb.tree import Record, RowTree, is_deletion
from stelae_store_lmdb.values import Row, RowReader


class RowLayers:
    """The two layers of a store: the memtable, and the environment after the first flush."""

    def __init__(self, env: Environment | None) -> None:
        self.memory = LmdbMemtable()
        self.env = env
        self.closed = False

    def current(self) -> tuple[LmdbMemtable, Environment | None]:
        """Return both layers, the memtable read first. Raises ``Unavailable`` if the store is closed."""
        memory = self.memory
        env = self.env
        if self.closed:  # Read last: ``close`` sets it first.
            raise Unavailable("the store is closed")
        return memory, env

    def close(self) -> None:
        """Forget both layers."""
        self.closed = True
        self.env = None
        self.memory = LmdbMemtable()


class FoundVersion(NamedTuple):
    """A version of a row."""

    timestamp: int
    entry: int  #: Index of the entry that wrote it.
    contents: bytes


class KeyVersions:
    """The versions of one row in one step: those in memory and those in the environment, each newest first."""

    __slots__ = ("_chain", "_path", "_records")

    def __init__(self, chain: Version | None, records: list[Record], path: str) -> None:
        self._chain = chain
        self._records = records
        self._path = path

    def at(self, timestamp: int, index: int) -> FoundVersion | None:
        """Return the version, possibly a deletion, that a view of a time sees."""
        in_memory = visible(self._chain, timestamp, index)
        if in_memory is not None:
            return FoundVersion(*in_memory[:3])
        for _, at, value in self._records:
            contents = verified_contents(at, value, self._path)
            written, by = split_age(at)
            if written <= timestamp and by <= index:
                return FoundVersion(written, by, contents)
        return None

    def all(self) -> Iterator[FoundVersion]:
        """Yield all versions, newest first. A version that is being flushed may come twice, but not in a row."""
        for in_memory in versions_of(self._chain):
            yield FoundVersion(*in_memory[:3])
        for _, at, value in self._records:
            yield FoundVersion(*split_age(at), verified_contents(at, value, self._path))


Take: TypeAlias = Callable[[bytes, KeyVersions], bool]
"""Called for every row of a step with its versions, which are valid during the step.

It returns false if the row does not fit. Then the step ends before the row. The first row of a step must fit."""


class LmdbView:
    """The rows as of a timestamp, from the entries that were applied when the view was opened."""

    def __init__(
        self,
        layers: RowLayers,
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
        self._layers = layers
        self._schemas = schemas
        self._defaults = defaults
        self._release = release

    def close(self) -> None:
        """Release the versions that only this view can see."""
        self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def reader(self, layout: Layout) -> RowReader:
        """Return the reader of versions as rows of a layout."""
        return RowReader(layout, self._schemas, self._defaults)

    def find(
        self, keys: Sequence[bytes], reader: RowReader, *, in_memory_only: bool
    ) -> tuple[list[Row | None], list[int]]:
        """Return the visible row of each key, and the positions of the keys that are not decided by the memtable.

        Unless ``in_memory_only``, the environment decides the others, and there are no such positions."""
        memory, env = self._layers.current()
        rows: list[Row | None] = [None] * len(keys)
        undecided: list[int] = []
        for position, key in enumerate(keys):
            version = visible(memory.chains.get(key), self.timestamp, self.index)
            if version is None:
                undecided.append(position)
            elif not is_deletion(version[2]):
                rows[position] = reader.row(version[2])
        if env is None or not undecided:
            return rows, []
        if in_memory_only:
            return rows, undecided
        with env.read() as txn:
            tree = RowTree(txn, env.path)
            for position in undecided:
                contents = tree.visible(keys[position], self.timestamp, self.index)
                if contents is not None and not is_deletion(contents):
                    rows[position] = reader.row(contents)
        return rows, []

    def rows(
        self, low: bytes | None, high: bytes | None, backwards: bool, keys_max: int, reader: RowReader
    ) -> tuple[list[Row], KeyBounds | None, bytes | None]:
        """Return the visible rows of one step, the rest of the range, and the last key that was read."""
        rows: list[Row] = []
        last: bytes | None = None
        timestamp, index, room = self.timestamp, self.index, StepBudget()

        def take(key: bytes, versions: KeyVersions) -> bool:
            nonlocal last
            found = versions.at(timestamp, index)
            if found is not None:
                if not room.takes(reader.size_bytes(found.contents)):
                    return False
                if not is_deletion(found.contents):
                    rows.append(reader.row(found.contents))
            last = key
            return True

        memory, env = self._layers.current()
        if env is None or backwards or memory.between(low, high, False, 1):
            left = self.step(low, high, backwards, keys_max, take)
            return rows, left, last
        if low is not None and high is not None and low >= high:
            return rows, None, None
        with env.read() as txn:
            records = RowTree(txn, env.path).walk(low, high, False)
            last, more = self._rows_of_environment(records, env.path, keys_max, reader, rows)
        return rows, ((last or b"") + b"\0", high) if more else None, last

    def _rows_of_environment(
        self, records: Iterator[Record], path: str, keys_max: int, reader: RowReader, rows: list[Row]
    ) -> tuple[bytes | None, bool]:
        """Read the rows of a step for which the memtable has no versions: like ``step``, without a call for each row.

        Most steps of a long scan are like this. The memtable was checked before. Rows that it gets now are later than
        this view."""
        key = before = decided = None
        count, bytes_left, fixed_bytes, row = 0, BATCH_BYTES_MAX, reader.fixed_bytes, reader.row
        for found, at, value in records:
            if found == decided:
                continue
            if found != key:
                count += 1
                if count > keys_max:
                    return key, True
                before, key = key, found
            written, by = split_age(at)
            contents = verified_contents(at, value, path)
            if written <= self.timestamp and by <= self.index:
                bytes_left -= fixed_bytes + len(contents)
                if bytes_left < 0 and before is not None:
                    return before, True
                decided = found
                if not is_deletion(contents):
                    rows.append(row(contents))
        return key, False

    def step(
        self, low: bytes | None, high: bytes | None, backwards: bool, keys_max: int, take: Take
    ) -> KeyBounds | None:
        """Process up to ``keys_max`` keys of a range, as far as they fit.

        Returns the rest of the range, or ``None``."""
        if low is not None and high is not None and low >= high:
            return None
        memory, env = self._layers.current()
        keys = memory.between(low, high, backwards, keys_max)
        if env is None:
            last = _merge_sources(keys, memory, iter(()), "", backwards, keys_max, take)
        else:
            with env.read() as txn:
                records = RowTree(txn, env.path).walk(low, high, backwards)
                last = _merge_sources(keys, memory, records, env.path, backwards, keys_max, take)
        if last is None:
            return None
        return (low, last) if backwards else (last + b"\0", high)

    def version(self, key: bytes, timestamp: int, index: int) -> FoundVersion | None:
        """Return the version of one row that a view of a time sees."""
        found: list[FoundVersion | None] = []

        def take(_: bytes, versions: KeyVersions) -> bool:
            found.append(versions.at(timestamp, index))
            return True

        self.step(key, key + b"\0", False, 1, take)
        return found[0] if found else None

    def steps(self, keys_max: int, take: Take) -> Iterator[None]:
        """Process all rows, and yield after each step."""
        left: KeyBounds | None = (None, None)
        while left is not None:
            left = self.step(*left, False, keys_max, take)
            yield


def _merge_sources(
    keys: Any, memory: LmdbMemtable, records: Iterator[Record], path: str, backwards: bool, keys_max: int, take: Take
) -> bytes | None:
    """Call ``take`` for the rows of both sources in key order. Returns the last key taken if there may be more."""
    groups = groupby(records, itemgetter(0))
    memory_keys = iter(keys)
    in_memory, on_disk = next(memory_keys, None), next(groups, None)
    key = taken = None
    for _ in range(keys_max):
        if in_memory is None and on_disk is None:
            return None
        if on_disk is None or (
            in_memory is not None and in_memory != on_disk[0] and (in_memory > on_disk[0]) == backwards
        ):
            assert in_memory is not None
            key, found = in_memory, []
            in_memory = next(memory_keys, None)
        else:
            key = on_disk[0]
            found = [*on_disk[1]][::-1] if backwards else [*on_disk[1]]
            if in_memory == key:
                in_memory = next(memory_keys, None)
            on_disk = next(groups, None)
        if not take(key, KeyVersions(memory.chains.get(key), found, path)):
            break
        taken = key
    return taken
