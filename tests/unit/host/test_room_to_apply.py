"""A store that is full takes no more entries, also not those that were committed before anybody knew."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from stelae.host.apply import Applier
from stelae.host.entry_cache import EntryCache
from stelae.host.flush_and_collect import Flusher
from stelae.host.superblock import Superblock
from stelae.spi.errors import Full, StelaeError, SyncFailed
from stelae.spi.ids import ZERO, LogId, OpId, TabletId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.store import Edit

TABLET = TabletId("t")
LOG = LogId(TABLET, 1)


class Store:
    """Each entry takes one byte of memory, which a flush gives back."""

    capabilities = frozenset({"durable_flush"})
    schema = None

    def __init__(self) -> None:
        self.applied = ZERO
        self.held = 0
        self.compactions = 0
        self.disk_full = False
        self.broken = False
        self.flushes = 0

    def memory_bytes(self) -> int:
        return self.held

    def flush(self) -> Edit:
        self.flushes += 1
        if self.broken:
            raise SyncFailed("a sync failed")
        if self.disk_full:
            raise Full("no space")
        self.held = 0
        return Edit(manifest=b"", flushed=self.applied)

    def compact(self) -> Edit | None:
        self.compactions += 1
        return None

    def commit(self, edit: Edit) -> None: ...


class Pool:
    """Runs what it is given when told, one piece at a time."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []

    def run(self, key: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.waiting.append((work, done))

    def work(self, pieces: int = 99) -> None:
        while self.waiting and pieces:
            pieces -= 1
            work, done = self.waiting.pop(0)
            try:
                result = work()
            except StelaeError as error:
                result = error
            done(result)


class Scene:
    """A replica's applier and flusher; what of the log is durable is up to the test. Groups have one entry each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("stelae.host.apply.GROUP_BYTES_MAX", 1)
        self.store, self.pool, self.durable = Store(), Pool(), 99
        self.failures: list[str] = []
        self.saves: list[Superblock] = []
        self.reads: list[Callable[[Any], None]] = []
        self.cache = EntryCache(ZERO, 1 << 20)
        writer: Any = SimpleNamespace(durable=lambda log: OpId(1, self.durable), submit_job=lambda work, done: None)
        results: Any = SimpleNamespace(dump=lambda: b"")
        self.applier = Applier(
            log=LOG,
            store=self.store,  # type: ignore[arg-type]
            results=results,
            applied=ZERO,
            schemas=(),
            timestamp=0,
            cache=self.cache,
            reader=SimpleNamespace(read=self._read),  # type: ignore[arg-type]
            writer=writer,
            pool=self.pool,
            metrics=SimpleNamespace(count=lambda name, amount=1: None),  # type: ignore[arg-type]
            on_answered=lambda answered: None,
            on_schema=lambda schema: None,
            on_applied=self._applied,
            on_failed=lambda reason, error: self.failures.append(reason),
            retry_later=lambda call: None,
        )
        self.flusher = Flusher(
            file=SimpleNamespace(save=self._save),  # type: ignore[arg-type]
            superblock=Superblock(tablet_id=TABLET, store_engine="store", schemas=()),
            applier=self.applier,
            writer=writer,
            pool=self.pool,
            retention=SimpleNamespace(flushed=lambda index: None, collectable=lambda: 0),  # type: ignore[arg-type]
            log_base=ZERO,
            flush_bytes=2,
            memory_bytes_max=2,
            on_failed=lambda reason, error: self.failures.append(reason),
        )
        self.saving_fails = False

    def _applied(self, op_id: OpId) -> None:
        self.store.applied = op_id
        self.store.held += 1
        self.flusher.consider()

    def _read(self, log: LogId, first: int, end: int, bytes_max: int, done: Callable[[Any], None]) -> None:
        self.reads.append(done)

    def _save(self, block: Superblock) -> None:
        if self.saving_fails:
            raise Full("no space")
        self.saves.append(block)

    def commit(self, upto: int) -> int:
        """Append and commit entries up to an index; the last one that is applied."""
        for index in range(self.cache.end_index, upto + 1):
            self.cache.append((Entry(OpId(1, index), EntryKind.NOOP, index, b""),), None)
        self.applier.commit_to(upto)
        return self.applier.applied.index


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


def test_a_backlog_waits_while_a_full_store_is_flushed(scene: Scene) -> None:
    assert scene.commit(9) == 2
    scene.pool.work()
    assert scene.applier.applied.index == 9
    assert [block.flushed.index for block in scene.saves] == [2, 4, 6, 8]
    assert scene.failures == []


def test_what_is_not_durable_is_not_flushed_and_nothing_is_put_on_top_of_it(scene: Scene) -> None:
    scene.durable = 1
    assert scene.commit(9) == 2
    assert scene.pool.waiting == []
    assert scene.flusher.full
    assert scene.flusher.waits_for_log, "its entries must come again, although the store is full"
    scene.durable = 9
    assert not scene.flusher.waits_for_log
    assert scene.commit(9) == 2
    scene.pool.work()
    assert scene.applier.applied.index == 9


def test_a_flush_follows_the_work_that_was_in_its_way_although_nothing_more_comes(scene: Scene) -> None:
    assert scene.commit(1) == 1
    assert scene.flusher.compact()
    scene.pool.work(0)
    assert scene.commit(2) == 1, "the compaction has the store"
    scene.durable = 1
    scene.pool.work()
    assert scene.applier.applied.index == 2
    assert scene.store.compactions == 1
    assert scene.flusher.full
    assert scene.flusher.compact()
    scene.durable = 2
    assert not scene.flusher.consider(), "the compaction has the store"
    scene.pool.work()
    assert not scene.flusher.full
    assert [block.flushed.index for block in scene.saves] == [2]


def test_a_disk_that_is_full_does_not_hold_up_what_was_committed(scene: Scene) -> None:
    scene.store.disk_full = True
    scene.commit(5)
    scene.pool.work(50)
    assert scene.applier.applied.index == 5
    assert scene.flusher.full
    scene.store.disk_full = False
    scene.commit(6)
    scene.pool.work()
    assert scene.applier.applied.index == 6
    assert scene.saves[-1].flushed.index >= 5
    assert not scene.flusher.full


def test_nor_does_a_superblock_that_cannot_be_saved(scene: Scene) -> None:
    scene.saving_fails = True
    scene.commit(3)
    scene.pool.work(50)
    assert scene.flusher.unsaved is not None
    assert scene.commit(9) == 9
    scene.saving_fails = False
    scene.flusher.collect()
    scene.pool.work()
    assert scene.saves[0].flushed.index == 2
    assert not scene.flusher.full


def test_what_was_committed_is_applied_although_the_store_filled_while_the_superblock_had_no_space(
    scene: Scene,
) -> None:
    scene.saving_fails = True
    assert scene.commit(5) == 2
    scene.pool.work()
    assert scene.flusher.unsaved is not None
    assert scene.applier.applied.index == 5


def test_a_flush_that_fails_for_good_is_not_repeated(scene: Scene) -> None:
    scene.store.broken = True
    scene.commit(9)
    scene.pool.work()
    assert scene.store.flushes == 1
    assert len(scene.failures) == 1
    assert scene.commit(9) == 2
    assert scene.pool.waiting == []


def test_a_store_is_closed_behind_what_is_in_hand_and_nothing_follows(scene: Scene) -> None:
    ended: list[int] = []
    assert scene.commit(9) == 2
    scene.applier.stop(lambda _none: ended.append(scene.store.flushes))
    assert ended == [], "a flush is in hand"
    scene.pool.work()
    assert ended == [1]
    assert scene.commit(9) == 2
    assert not scene.flusher.flush() or not scene.pool.waiting
    assert scene.store.flushes == 1


def test_entries_that_are_read_back_too_late_are_not_applied(scene: Scene) -> None:
    entry = Entry(OpId(1, 1), EntryKind.NOOP, 1, bytes(2 << 20))
    scene.cache.append((entry,), None)
    scene.cache.evict(1)
    scene.cache.append((Entry(OpId(1, 2), EntryKind.NOOP, 2, b""),), None)
    scene.applier.commit_to(2)
    ended: list[None] = []
    scene.applier.stop(ended.append)
    scene.pool.work()
    assert ended == [None]
    assert len(scene.reads) == 1
    for done in scene.reads:
        done([entry])
    assert scene.applier.applied == ZERO
    assert scene.failures == []
