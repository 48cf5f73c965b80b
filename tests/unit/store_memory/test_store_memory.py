"""What is particular to the memory store; the contract is in tests/conformance."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

import pytest

from stelae.rows.defaults import Defaults
from stelae.spi.errors import CallerError, Corrupt, Unsupported
from stelae.spi.ids import ZERO, OpId
from stelae.spi.scan import Order, ScanSpec
from stelae.spi.store import BATCH_ROWS_MAX, Edit
from stelae.spi.write import OpKind
from stelae.testing.conformance.store_harness import SCHEMA, HarnessReplica, StoreHarness, delete, insert, upsert
from stelae.testing.conformance.store_model import Op
from stelae_store_memory import MemoryStore, stelae_store_engines
from stelae_store_memory.key_index import KeyIndex
from stelae_store_memory.version_chains import Version, length, prune, visible
from stelae_store_memory.writer import MemoryWriter
from stelae_store_memory.written_rows import WrittenRows


@pytest.fixture
def replica() -> HarnessReplica:
    return StoreHarness(MemoryStore).replica()


def test_the_plugin_offers_the_engine() -> None:
    assert stelae_store_engines() == [MemoryStore]
    assert MemoryStore.name == "memory"


def test_a_manifest_is_not_ours() -> None:
    for manifest, schemas in ((b"x", {1: SCHEMA}), (b"", {})):
        with pytest.raises(Corrupt):
            MemoryStore.open("d", manifest, ZERO, schemas, None, None)  # type: ignore[arg-type]


def test_it_proposes_no_edit_and_takes_none(replica: HarnessReplica) -> None:
    replica.insert((1, "a", 1))
    assert replica.store.flush() is None
    assert replica.store.compact() is None
    with pytest.raises(Unsupported):
        replica.store.commit(Edit(manifest=b"", flushed=OpId(1, 1)))


def test_closing_twice_is_harmless(replica: HarnessReplica) -> None:
    replica.insert((1, "a", 1))
    replica.store.close()
    replica.store.close()


def test_one_compaction_lets_go_of_a_bounded_number_of_versions(replica: HarnessReplica) -> None:
    count = BATCH_ROWS_MAX + 10
    rows = [(n, "a", n) for n in range(count)]
    for start in range(0, count, 4000):
        replica.insert(*rows[start : start + 4000])
    for start in range(0, count, 4000):
        replica.write(upsert(*rows[start : start + 4000]))
    replica.store.set_history_floor(10 * len(replica.log))
    sizes = [replica.store.memory_bytes()]
    for _ in range(3):
        replica.store.compact()
        sizes.append(replica.store.memory_bytes())
    assert sizes[0] > sizes[1] > sizes[2] == sizes[3]


def test_a_row_written_a_hundred_thousand_times_can_be_read_pruned_and_let_go(replica: HarnessReplica) -> None:
    for _ in range(30):
        replica.write(*(Op(OpKind.UPSERT, [(1, "a", n)] * 4000) for n in range(1)))
    assert replica.rows() == [(1, "a", 0)]
    replica.store.set_history_floor(10 * len(replica.log))
    for _ in range(20):
        replica.store.compact()
    assert replica.store.memory_bytes() < 1000
    assert replica.rows() == [(1, "a", 0)]


def test_the_memory_of_a_cursor_is_freed_when_it_is_closed(replica: HarnessReplica) -> None:
    replica.insert((1, "a", 1))
    cursor = replica.store.scan(ScanSpec(), 10)
    replica.write(upsert((1, "b", 2)))
    replica.store.set_history_floor(20)
    replica.store.compact()
    held = replica.store.memory_bytes()
    cursor.close()
    replica.store.compact()
    assert replica.store.memory_bytes() < held


def test_a_scan_that_is_refused_leaves_no_pin(replica: HarnessReplica) -> None:
    replica.insert((1, "a", 1))
    with pytest.raises(Exception, match="99"):
        replica.store.scan(ScanSpec(columns=(99,)))
    replica.write(upsert((1, "b", 2)))
    before = replica.store.memory_bytes()
    replica.store.set_history_floor(20)
    replica.store.compact()
    assert replica.store.memory_bytes() < before


@pytest.mark.parametrize("limit", [-1, -(2**40)])
def test_a_negative_limit_is_the_callers_error_and_says_the_value(replica: HarnessReplica, limit: int) -> None:
    replica.insert((1, "a", 1))
    with pytest.raises(CallerError, match=f"limit of a scan is {limit}") as refused:
        replica.store.scan(ScanSpec(limit=limit))
    assert type(refused.value) is CallerError


def test_a_limit_of_nothing_returns_nothing(replica: HarnessReplica) -> None:
    replica.insert((1, "a", 1))
    assert replica.rows(limit=0) == []


def test_scans_on_other_threads_see_whole_groups_only(replica: HarnessReplica) -> None:
    """A writer keeps every row of a group equal: a reader that sees two values saw half a group."""
    width, turns, problems = 40, 150, []
    replica.insert(*((n, "v", 0) for n in range(width)))
    entries = [
        replica.entry(
            delete(*((n,) for n in range(0, width, 2))),
            upsert(*((n, "v", turn) for n in range(width))),
            insert((1000 + turn, "v", turn)),
        )
        for turn in range(1, turns)
    ]
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            rows = replica.rows(order=Order.KEY)
            seen = {row[2] for row in rows if row[0] < 1000}
            fresh = [row[0] for row in rows if row[0] >= 1000]
            if len(seen) != 1 or len(rows) - len(fresh) != width:
                problems.append(rows)
            if fresh != [*range(1001, 1001 + max(seen))]:
                problems.append(fresh)
            checksum = replica.store.checksum()
            if not checksum.endswith(tuple(str(width + turn) for turn in range(turns))):
                problems.append(checksum)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for place in range(0, len(entries), 3):
        replica.store.apply(entries[place : place + 3])
        replica.store.set_history_floor(entries[place].timestamp)
        replica.store.compact()
    done.set()
    for reader in readers:
        reader.join(timeout=60)
        assert not reader.is_alive()
    assert problems == []
    assert len(replica.rows()) == width + turns - 1


# -- version chains --------------------------------------------------------------------------------


def chain(*versions: tuple[int, bool]) -> Version:
    """Versions oldest first, as (timestamp, live)."""
    part = WrittenRows.of_rows(SCHEMA.layout, [(1, "a", 1)])
    newest: Version | None = None
    for index, (timestamp, live) in enumerate(versions, start=1):
        newest = (timestamp, index, part if live else None, 0, newest)
    assert newest is not None
    return newest


def shape(newest: Version | None) -> Sequence[tuple[int, bool]]:
    """The versions of a chain, oldest first, as ``chain`` takes them."""
    found = []
    while newest is not None:
        found.append((newest[0], newest[2] is not None))
        newest = newest[4]
    return found[::-1]


@pytest.mark.parametrize(
    ("versions", "limit", "left"),
    [
        ([(10, True)], 5, [(10, True)]),
        ([(10, True)], 10, [(10, True)]),
        ([(10, True), (20, True)], 9, [(10, True), (20, True)]),
        ([(10, True), (20, True)], 19, [(10, True), (20, True)]),
        ([(10, True), (20, True)], 20, [(20, True)]),
        ([(10, True), (20, False)], 19, [(10, True), (20, False)]),
        ([(10, True), (20, False)], 20, []),
        ([(10, True), (20, False), (30, True)], 25, [(30, True)]),
        ([(10, True), (20, True), (30, True), (40, True)], 25, [(20, True), (30, True), (40, True)]),
        ([(10, True), (10, True), (10, False), (30, True)], 10, [(30, True)]),
    ],
)
def test_pruning_keeps_what_a_view_at_or_above_the_limit_can_see(
    versions: list[tuple[int, bool]], limit: int, left: list[tuple[int, bool]]
) -> None:
    whole = chain(*versions)
    kept = prune(whole, limit)
    assert shape(kept) == left
    assert length(kept) == len(left)
    for timestamp in range(limit, 50):
        before, now = visible(whole, timestamp, 99), visible(kept, timestamp, 99)
        live = before is not None and before[2] is not None
        assert (now is not None and now[2] is not None) == live
        if live:
            assert before is not None
            assert now is not None
            assert before[:4] == now[:4]


def test_a_view_does_not_see_entries_after_the_one_it_was_opened_at() -> None:
    newest = chain((10, True), (10, True))
    assert visible(newest, 10, 1) is newest[4]
    assert visible(newest, 10, 0) is None
    assert visible(newest, 9, 2) is None


def test_a_diff_beside_a_compaction_does_not_show_rows_that_were_not_written(replica: HarnessReplica) -> None:
    """Compaction copies the versions that it keeps, here between the two looks of a diff at one key."""
    for number in range(3):
        replica.write(upsert((1, "a", number)))
    replica.write(upsert((2, "b", 0)))
    written, until = 30, 40
    store = replica.store
    assert isinstance(store, MemoryStore)

    class Compacted(dict[bytes, Version]):
        def get(self, key: bytes, default: Any = None) -> Any:
            found = super().get(key, default)
            if found is not None and (pruned := prune(found, written - 1)) is not None:
                self[key] = pruned
            return found

    store._chains = Compacted(store._chains)
    changed = [row for part in store.diff(written, until, ScanSpec()) for row in part.changed.to_rows()]
    assert [row[0] for row in changed] == [2]


# -- key index -------------------------------------------------------------------------------------


def test_keys_are_sorted_each_once_and_a_list_given_out_never_changes() -> None:
    index, present = KeyIndex(), {b"a", b"b", b"c", b"d"}
    index.add([b"c", b"a"])
    first = index.keys(present)
    index.add([b"b", b"d"])
    index.add([b"a"])
    assert index.keys(present) == [b"a", b"b", b"c", b"d"]
    assert first == [b"a", b"c"]


def test_keys_that_left_are_forgotten_once_they_are_many() -> None:
    index = KeyIndex()
    index.add([b"%d" % n for n in range(10)])
    assert len(index.keys({})) == 10
    index.removed(6)
    assert index.keys({b"3": 1, b"4": 1}) == [b"3", b"4"]


def test_a_scan_that_tidies_the_index_while_a_key_comes_in_does_not_drop_it() -> None:
    chains: dict[bytes, Version] = {}

    class TidiedAtOnce(KeyIndex):
        """A scan on another thread runs as soon as the key is in the index."""

        def add(self, keys: list[bytes]) -> None:
            super().add(keys)
            self.removed(1000)
            self.keys(chains)

    index = TidiedAtOnce()
    part = WrittenRows.of_rows(SCHEMA.layout, [(1, "a", 1)])
    MemoryWriter(chains, index, deque(), Defaults({1: SCHEMA})).put(b"k", 10, 1, part, 0)
    assert index.keys(chains) == [b"k"]
