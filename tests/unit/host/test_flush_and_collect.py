"""Flushes: store, superblock, results and log go together, whatever step a crash comes at."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from stelae.host.apply import Applier
from stelae.host.assembly import Engines, RecoveredTablet
from stelae.host.consensus_metadata import ConsensusRecord
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.entry_cache import EntryCache
from stelae.host.exactly_once_results import ResultsTable
from stelae.host.flush_and_collect import Flusher
from stelae.host.log_retention import LogRetentionLimit
from stelae.host.log_writer import Completion, LogWriter
from stelae.host.superblock import Superblock, SuperblockFile
from stelae.lifecycle.tablet_recovery import recover
from stelae.rows.batcher import Batcher
from stelae.rows.operation_encoding import operation, sequence_ranges_of
from stelae.rows.plain_schema import schema_from_plain
from stelae.sim.disk import VirtualDisk
from stelae.sim.disk_faults import PowerLost
from stelae.spi.consensus import ConsensusEngine
from stelae.spi.errors import Full, PluginError, StorageError
from stelae.spi.ids import ZERO, ClientId, LogId, OpId, TabletId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.members import TabletConfig
from stelae.spi.scan import Order, ScanSpec
from stelae.spi.schema import Schema
from stelae.spi.services import EngineServices
from stelae.spi.store import Edit
from stelae.spi.wal import WalEngine
from stelae.spi.write import OpKind, SequenceRange, digests_of
from stelae_wal_segmented import SegmentedWal
from tests.conformance.durable_store import DurableStore

TABLET = TabletId("t")
LOG = LogId(TABLET, 1)
LAYOUT = DirectoryLayout("/node")
CLIENT = ClientId("c")
SCHEMA = schema_from_plain({"columns": [{"name": "id", "type": "int64"}], "key": ["id"]})
CONFIG = TabletConfig(op_id=ZERO, members=())


class Counters(Counter[str]):
    def count(self, name: str, amount: int = 1) -> None:
        self[name] += amount

    def gauge(self, name: str, value: float) -> None: ...

    def histogram(self, name: str) -> Callable[[int], None]:
        return lambda _value: None


class AtOnce:
    """Pool, workers and clock of a world in which nothing takes time."""

    def run(self, key: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        done(work())

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None] | None = None) -> None:
        result = work()
        if done is not None:
            done(result)

    def monotonic_us(self) -> int:
        return 0

    def wall_us(self) -> int:
        return 0


def insert(index: int) -> SequenceRange:
    """The client's operation of this number: it inserts a row of this number."""
    (run,) = sequence_ranges_of([(index, operation(OpKind.INSERT, [(index,)]))])
    return run


def write_entry(index: int) -> Entry:
    """An entry that inserts the row ``index`` for the client's operation of that number."""
    batcher = Batcher(SCHEMA)
    run = insert(index)
    batcher.add(CLIENT, 1, run, digests_of(run), None)
    ((payload, _),) = batcher.build()
    return Entry(OpId(1, index), EntryKind.WRITE, index << 12, payload)


def schema_entry(index: int) -> Entry:
    """An entry that gives the column another default, so that the schema has the version ``index``."""
    columns = [{"name": "id", "type": "int64", "default": index}]
    schema = schema_from_plain({"version": index, "columns": columns, "key": ["id"]})
    return Entry(OpId(1, index), EntryKind.SCHEMA, index << 12, schema.to_bytes())


class Node:
    """One replica's log, store and flusher on a virtual disk."""

    def __init__(self, disk: VirtualDisk) -> None:
        self.disk = disk
        at_once = AtOnce()
        services = EngineServices(disk, at_once, Counters(), at_once)
        config = SegmentedWal.Config(segment_bytes_first=4096, segment_bytes_max=4096)
        wal: WalEngine = SegmentedWal.open(LAYOUT.wals, config, services)
        self.wal = wal
        self.file = SuperblockFile(disk, LAYOUT, TABLET)
        self.engines = Engines(
            wal=wal,
            consensus=ConsensusEngine,
            consensus_config=None,
            store=DurableStore,
            store_config=DurableStore.Config(),
            services=services,
        )
        self.failures: list[str] = []
        self.metrics = Counters()
        self.schema_at: frozenset[int] = frozenset()  #: Where the log has schema changes.
        self.noop_at: frozenset[int] = frozenset()  #: Where it has entries that no store sees.
        self.memory_bytes_max = 1 << 40
        self.pool = self.apply_pool = AtOnce()

    @classmethod
    def create(cls) -> Node:
        disk = VirtualDisk()
        for directory in LAYOUT.directories():
            disk.make_directory(directory)
            disk.sync_directory(directory.rpartition("/")[0] or "/")
        node = cls(disk)
        node.wal.create(LOG, ZERO)
        block = Superblock(tablet_id=TABLET, store_engine="durable", schemas=(SCHEMA.to_bytes(),))
        node.file.save(block)
        return node

    def recovered(self) -> RecoveredTablet:
        record = ConsensusRecord(tablet_id=TABLET, term=1, voted_for=None, committed_config=CONFIG)
        return recover(self.file.load(), record, self.engines, LAYOUT.data_of(TABLET))

    def run(self, upto: int, flush_at: frozenset[int], durable: list[int]) -> Flusher:
        """Append and apply entries up to an index; note in ``durable`` what became durable."""
        found = self.recovered()
        writer = LogWriter(
            lock=nullcontext(), wake=lambda: None, post=_run_all, queue_bytes_max=1 << 20, group_bytes_max=1 << 20
        )
        writer.open_log(LOG, found.log.last)
        cache = EntryCache(found.log.last, 1 << 20)
        applier = Applier(
            log=LOG,
            store=found.store,
            results=found.results,
            applied=found.applied,
            schemas=found.schemas,
            timestamp=found.timestamp,
            cache=cache,
            reader=self,
            writer=writer,
            pool=self.apply_pool,
            metrics=self.metrics,
            on_answered=lambda _answered: None,
            on_schema=lambda _schema: None,
            on_applied=lambda _applied: None,
            on_failed=lambda reason, error: self.failures.append(reason),
            retry_later=lambda call: None,
        )
        retention = LogRetentionLimit(found.superblock.flushed.index, 0, found.log.base.index)
        retention.all_replicated(1 << 40)
        flusher = Flusher(
            file=self.file,
            superblock=found.superblock,
            applier=applier,
            writer=writer,
            pool=self.pool,
            retention=retention,
            log_base=found.log.base,
            flush_bytes=1 << 40,
            memory_bytes_max=self.memory_bytes_max,
            on_failed=lambda reason, error: self.failures.append(reason),
        )
        for index in range(found.log.last.index + 1, upto + 1):
            entry = schema_entry(index) if index in self.schema_at else write_entry(index)
            if index in self.noop_at:
                entry = Entry(OpId(1, index), EntryKind.NOOP, index << 12, b"")
            slot = writer.reserve(LOG, entry.size_bytes)
            cache.append((entry,), None)
            writer.append_async(slot, (entry,), commit_hint=index, done=lambda _o, i=index: durable.append(i))
            self._drive(writer)
            applier.commit_to(index)
            if index in flush_at:
                flusher.flush()
                self._drive(writer)
        assert not self.failures
        return flusher

    def read(self, log: LogId, first: int, end: int, bytes_max: int, done: Callable[[Any], None]) -> None:
        done(self.wal.read(log, first, end, bytes_max))

    def _drive(self, writer: LogWriter) -> None:
        while (work := writer.take_work()) is not None:
            writer.post(writer.perform(work, self.wal))


def _run_all(completions: list[Completion]) -> None:
    for callback, argument in completions:
        callback(argument)


def ids(found: RecoveredTablet) -> list[int]:
    rows = [row for batch in found.store.scan(ScanSpec(order=Order.KEY)) for row in batch.to_rows()]
    return [row[0] for row in rows]


def test_a_flush_moves_rows_and_results_into_the_superblock_and_lets_the_log_go() -> None:
    node = Node.create()
    node.run(60, frozenset({20, 40}), [])
    block = node.file.load()
    assert block.flushed == OpId(1, 40)
    answered = ResultsTable.load(block.results).dump()
    assert answered == block.results != b""
    assert 0 < node.wal.logs()[LOG].base.index <= 40, "collected, and never beyond the flush"
    assert node.disk.listdir(LAYOUT.data_of(TABLET)) == ["rows-40"]
    assert node.metrics == {"rows_applied": 60, "flushes": 2}
    again = Node(node.disk.clone())
    assert ids(again.recovered()) == list(range(1, 61))


def test_recovery_knows_how_large_all_entries_are_that_the_log_still_has() -> None:
    """For the bound of what is kept for lagging peers, nothing counted that was in the log before a restart."""
    node = Node.create()
    node.run(60, frozenset({20, 40}), [])
    found = Node(node.disk.clone()).recovered()
    base = found.log.base.index
    assert base > 0 and found.log_sizes.first_index == base
    held = node.wal.read(LOG, base + 1, 61, 1 << 20)
    newest = sum(entry.size_bytes for entry in held[-5:])
    found.log_sizes.keep(newest)
    assert found.log_sizes.first_index == 55


def test_an_operation_that_was_flushed_is_not_applied_again_after_a_restart() -> None:
    node = Node.create()
    node.run(10, frozenset({10}), [])
    found = Node(node.disk.clone()).recovered()
    answer = found.results.answer(CLIENT, 5, *digests_of(insert(5)))
    assert answer is not None and answer.timestamp == 5 << 12 and not answer.errors


@pytest.mark.parametrize("noop_at", [frozenset[int](), frozenset({6})])
def test_a_replica_that_replays_nothing_knows_the_time_of_its_rows(noop_at: frozenset[int]) -> None:
    """It did not: nobody could compare its rows, nor read a snapshot from it, until another entry was applied."""
    node = Node.create()
    node.noop_at = noop_at
    node.run(6, frozenset({6}), [])
    block = node.file.load()
    assert (block.flushed.index, block.timestamp) == (5 if noop_at else 6, 6 << 12)
    found = Node(node.disk.clone()).recovered()
    assert found.timestamp == 6 << 12, "an entry without rows behind the flush has no rows to miss"


@pytest.mark.parametrize("seed", range(3))
def test_power_lost_at_any_operation_loses_nothing_durable_and_repeats_nothing(seed: int) -> None:
    clean = Node.create()
    clean.run(24, frozenset({8, 16}), [])
    operations = clean.disk.faults.operations
    begun = Node.create().disk.faults.operations
    for number in range(begun, operations):
        node = Node.create()
        durable: list[int] = []
        node.disk.faults.lose_power_after(operations=number - node.disk.faults.operations)
        with suppress(PowerLost):
            node.run(24, frozenset({8, 16}), durable)
        after = Node(node.disk.crash(random.Random(seed * 1000 + number)))
        found = after.recovered()
        present = ids(found)
        # The hint of the last group names what was committed when it was written.
        assert present == list(range(1, len(present) + 1))
        assert len(present) >= max(durable, default=0)
        assert found.superblock.flushed.index <= found.log.last.index
        assert found.timestamp == found.applied.index << 12, "whatever of it was replayed"
        assert after.wal.logs()[LOG].base.index <= found.superblock.flushed.index
        after.run(24, frozenset({12}), [])
        assert ids(Node(after.disk.clone()).recovered()) == list(range(1, 25))


@pytest.mark.parametrize("flush_at", [4, 2, 3])
def test_the_schemas_in_a_superblock_are_those_in_force_at_its_flush(flush_at: int) -> None:
    node = Node.create()
    node.schema_at = frozenset({2, 3})
    node.run(6, frozenset({flush_at}), [])
    versions = [Schema.from_bytes(body).version for body in node.file.load().schemas]
    assert versions == [1, 2, 3][: min(flush_at, 3)]
    found = Node(node.disk.clone()).recovered()
    assert found.store.schema.version == 3
    assert [Schema.from_bytes(body).version for body in found.schemas] == [1, 2, 3], "the rest is in the log"


class Compacting(DurableStore):
    """Has two pieces to compact after each flush: each renames the one file that it has."""

    name = "compacting"
    left = 0

    def flush(self) -> Edit | None:
        edit = super().flush()
        self.left = 2
        return edit

    def compact(self) -> Edit | None:
        if not self.left:
            return None
        self.left -= 1
        name = f"{self._live}x"
        self._files.replace(f"{self._directory}/{name}", self._files.read_bytes(f"{self._directory}/{self._live}"))
        return Edit(manifest=name.encode(), flushed=self._flushed, obsolete=(self._live,))


def test_a_flush_is_followed_by_compaction_until_nothing_is_left_of_it() -> None:
    node = Node.create()
    node.engines = replace(node.engines, store=Compacting)
    node.run(10, frozenset({6}), [])
    block = node.file.load()
    assert block.manifest == b"rows-6xx" and block.flushed == OpId(1, 6)
    assert node.disk.listdir(LAYOUT.data_of(TABLET)) == ["rows-6xx"], "each piece let go of what it replaced"
    again = Node(node.disk.clone())
    assert ids(again.recovered()) == list(range(1, 11))
    assert ResultsTable.load(block.results).answer(CLIENT, 6, *digests_of(insert(6))) is not None


def test_a_store_that_claims_to_have_flushed_what_it_has_not_fails_its_replica() -> None:
    class Boaster(DurableStore):
        def flush(self) -> Edit | None:
            edit = super().flush()
            return edit and msgspec.structs.replace(edit, flushed=OpId(1, 99))

    node = Node.create()
    node.engines = replace(node.engines, store=Boaster)
    with pytest.raises(PluginError, match=r"reports 1\.99 as flushed, but has applied 1\.6"):
        node.run(10, frozenset({6}), [])
    assert node.file.load().flushed == ZERO


def test_a_store_at_its_limit_is_flushed_at_once() -> None:
    node = Node.create()
    node.memory_bytes_max = 1
    assert not node.run(4, frozenset(), []).full
    assert node.file.load().flushed == OpId(1, 4)


def test_a_replica_without_rows_is_flushed_for_its_log_and_uses_none_of_the_memory_for_rows() -> None:
    """The bytes of its log counted as memory: it refused input, and made the node flush others."""
    node = Node.create()
    node.file.save(msgspec.structs.replace(node.file.load(), log_only=True))
    node.memory_bytes_max = 1
    flusher = node.run(40, frozenset(), [])
    assert not flusher.full and flusher.applier.store.memory_bytes() == 0
    assert node.file.load().flushed == ZERO and not flusher.consider(), "nothing was due"
    flusher.flush_bytes = flusher.unflushed_bytes
    assert flusher.consider()
    assert node.file.load().flushed == OpId(1, 40) and flusher.unflushed_bytes == 0
    assert flusher._collected == 40, "the log may go"
    assert Node(node.disk.clone()).recovered().applied == OpId(1, 40)


def test_a_witness_forgets_the_last_op_id_of_the_tombstone_once_its_log_is_flushed_up_to_it() -> None:
    node = Node.create()
    node.file.save(msgspec.structs.replace(node.file.load(), log_only=True, tombstone=OpId(1, 6)))
    assert node.recovered().log.vote_floor == OpId(1, 6)
    node.run(5, frozenset({5}), [])
    kept = node.file.load()
    assert (kept.flushed, kept.tombstone) == (OpId(1, 5), OpId(1, 6))
    again = Node(node.disk.clone())
    again.run(6, frozenset({6}), [])
    assert (again.file.load().flushed, again.file.load().tombstone) == (OpId(1, 6), None)
    assert again.recovered().log.vote_floor == ZERO


def test_a_flush_behind_an_entry_that_no_store_sees_is_of_the_last_one_that_it_saw() -> None:
    node = Node.create()
    node.noop_at = frozenset({6})
    node.run(6, frozenset({6}), [])
    assert node.file.load().flushed == OpId(1, 5)
    again = Node(node.disk.clone())
    again.run(8, frozenset({8}), [])
    assert again.file.load().flushed == OpId(1, 8)
    assert ids(Node(again.disk.clone()).recovered()) == [1, 2, 3, 4, 5, 7, 8]


def test_a_disk_that_is_full_when_the_superblock_is_written_costs_nothing_but_time() -> None:
    node = Node.create()
    save = node.file.save

    def full(block: Superblock) -> None:
        node.file.save = save  # type: ignore[method-assign]
        raise Full("no space left on device")

    node.file.save = full  # type: ignore[method-assign]
    node.pool = Caught()
    flusher = node.run(6, frozenset({6}), [])
    assert node.file.load().flushed == ZERO and flusher.busy, "nothing else begins"
    flusher.collect()
    assert node.file.load().flushed == OpId(1, 6) and not flusher.busy


class Caught(AtOnce):
    """A pool whose work may fail, as real pools' may."""

    def run(self, key: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        try:
            result = work()
        except StorageError as error:
            result = error
        done(result)


def test_a_failed_sync_while_the_log_is_collected_fails_the_replica_at_its_last_durable_op_id() -> None:
    """It was a warning, and appends went on to a log whose base file could not be trusted (rule 7)."""
    node = Node.create()
    flusher = node.run(60, frozenset(), [])
    node.disk.faults.fail_syncs("g1.base")
    flusher.flush()
    node._drive(flusher.writer)
    (failure,) = node.failures
    assert "cannot be trusted beyond 1.60" in failure and "g1.base" in failure
    assert node.wal.logs()[LOG].base == ZERO


def test_a_log_that_could_not_be_collected_for_want_of_space_is_collected_at_the_next_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Node.create()
    flusher = node.run(60, frozenset(), [])
    collect = node.wal.collect

    def full(log: LogId, upto: int) -> OpId:
        monkeypatch.setattr(node.wal, "collect", collect)
        raise Full("no space left on device")

    monkeypatch.setattr(node.wal, "collect", full)
    flusher.flush()
    node._drive(flusher.writer)
    assert node.wal.logs()[LOG].base == ZERO and not node.failures
    flusher.collect()
    node._drive(flusher.writer)
    assert node.wal.logs()[LOG].base.index > 0


def test_a_store_is_not_flushed_past_a_suffix_that_is_being_replaced() -> None:
    """An entry that replaces a durable one of an older term was applied from memory, and its index was durable."""
    node = Node.create()
    flusher = node.run(6, frozenset(), [])
    flusher.applier.cache.replacing_from = 6
    assert not flusher.flush()
    flusher.applier.cache.replacing_from = None
    assert flusher.flush()


class Held:
    """A pool whose work waits."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []

    def run(self, key: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.waiting.append((work, done))

    def go(self) -> None:
        work, done = self.waiting.pop()
        done(work())


def test_a_flusher_that_is_halted_ends_its_save_and_touches_store_and_log_no_more() -> None:
    """The files of a failed replica are moved into quarantine. A flush that had begun went on with them."""
    node, held = Node.create(), Held()
    flusher = node.run(6, frozenset(), [])
    before = flusher.superblock
    flusher.pool = held  # type: ignore[assignment]
    assert flusher.flush() and flusher.saving
    flusher.halt()
    assert flusher.saving, "what is being saved cannot be called back"
    held.go()
    assert not flusher.saving and not flusher.busy and flusher.superblock is before
    assert not flusher.flush() and not flusher.compact() and held.waiting == []
    base = flusher.log_base
    flusher.collect()
    node._drive(flusher.writer)
    assert flusher.log_base == base and not node.failures


def test_a_collection_that_waited_until_its_replica_was_halted_and_perhaps_a_tombstone_does_nothing() -> None:
    node = Node.create()
    flusher = node.run(60, frozenset(), [])
    flusher.flush()
    flusher.halt()
    node._drive(flusher.writer)
    assert node.wal.logs()[LOG].base == ZERO and not node.failures
