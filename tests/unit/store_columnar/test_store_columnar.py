"""What is particular to the columnar store; the contract is in tests/conformance."""

from __future__ import annotations

import hashlib
import random
from contextlib import suppress
from dataclasses import replace

import pytest

from stelae.rows.plain_schema import schema_from_plain, schema_to_plain
from stelae.sim.disk_faults import PowerLost
from stelae.spi.errors import CallerError, Corrupt, Full, SyncFailed, TooOld
from stelae.spi.ids import ZERO, OpId
from stelae.spi.scan import Compare, IsNull, Order, ScanSpec
from stelae.spi.store import BATCH_ROWS_MAX
from stelae.spi.write import OpKind
from stelae.testing.conformance.store_harness import SCHEMA, HarnessReplica, StoreHarness, delete, insert, upsert
from stelae.testing.conformance.store_model import Op, StoreModel
from stelae_store_columnar import ColumnarStore, diff_export, stelae_store_engines, store
from stelae_store_columnar.config import ColumnarConfig
from tests.conformance.test_store_columnar import tiny

DIRECTORY = "/data/t"


@pytest.fixture
def replica() -> HarnessReplica:
    return StoreHarness(ColumnarStore, tiny).replica()


@pytest.fixture
def calm() -> HarnessReplica:
    """One that merges nothing unless it is told to."""
    return StoreHarness(ColumnarStore, lambda: replace(tiny(), level0_blocks_min=3, level0_blocks_max=99)).replica()


def files(replica: HarnessReplica) -> list[str]:
    """Names of the block files."""
    return [path.rpartition("/")[2] for path in replica.disk.tree() if path.startswith(DIRECTORY)]


def state(replica: HarnessReplica) -> ColumnarStore:
    """The store, with its insides."""
    assert isinstance(replica.store, ColumnarStore)
    return replica.store


def test_the_plugin_offers_the_engine() -> None:
    assert stelae_store_engines() == [ColumnarStore]
    assert ColumnarStore.name == "columnar"


def test_closing_twice_is_harmless_and_ends_it(replica: HarnessReplica) -> None:
    replica.insert((1, "a", 1))
    replica.store.close()
    replica.store.close()
    with pytest.raises(Exception, match="closed"):
        replica.insert((2, "a", 1))


def test_a_negative_limit_is_the_callers_error_and_says_the_value(replica: HarnessReplica) -> None:
    with pytest.raises(CallerError, match="-3"):
        replica.store.scan(ScanSpec(limit=-3))


def test_a_flush_without_news_proposes_nothing(replica: HarnessReplica) -> None:
    assert replica.store.flush() is None
    replica.insert((1, "a", 1))
    replica.flush()
    assert replica.store.flush() is None
    assert replica.store.compact() is None


def test_a_flush_that_nobody_committed_is_proposed_again(replica: HarnessReplica) -> None:
    replica.insert((1, "a", 1))
    assert replica.store.flush() == replica.store.flush() is not None


def test_an_entry_without_a_row_moves_the_flush_on_without_a_file(replica: HarnessReplica) -> None:
    replica.insert((1, "a", 1))
    replica.flush()
    before = files(replica)
    replica.insert((1, "again", 1))
    edit = replica.store.flush()
    assert edit is not None and edit.flushed == replica.store.applied
    assert files(replica) == before


def test_obsolete_files_stay_until_the_edit_is_committed(calm: HarnessReplica) -> None:
    for turn in range(4):
        calm.write(upsert(*((n, f"t{turn}", n) for n in range(10))))
        calm.flush()
    before = set(files(calm))
    edits = []
    while (edit := calm.store.compact()) is not None:
        edits.append(edit)
        assert before <= set(files(calm))
        assert len(edits) < 100
    assert before & set(edits[-1].obsolete)
    calm.store.commit(edits[-1])
    assert not set(files(calm)) & set(edits[-1].obsolete)


def test_a_cursor_reads_on_when_its_files_are_gone(calm: HarnessReplica) -> None:
    for turn in range(4):
        calm.write(upsert(*((n, f"t{turn}", n) for n in range(30))))
        calm.flush()
    with calm.store.scan(ScanSpec(order=Order.KEY)) as cursor:
        first = cursor.next_batch(2)
        assert first is not None
        before = set(files(calm))
        calm.compact()
        assert not before & set(files(calm))
        rest = [row for batch in cursor for row in batch.to_rows()]
    assert first.to_rows() + rest == [(n, "t3", n) for n in range(30)]


def test_a_snapshot_holds_its_files_until_it_is_released(calm: HarnessReplica) -> None:
    for turn in range(4):
        calm.write(upsert(*((n, f"t{turn}", n) for n in range(10))))
        calm.flush()
    snapshot = calm.store.snapshot()
    calm.compact()
    tree = calm.disk.tree()
    for unit in snapshot.files:
        data = tree[f"{DIRECTORY}/{unit.name}"]
        assert (unit.size_bytes, unit.digest) == (len(data), hashlib.sha256(data).hexdigest())
    manifest, flushed = calm.manifest, calm.flushed
    calm.manifest, calm.flushed = snapshot.edit.manifest, snapshot.edit.flushed
    assert {unit.name for unit in snapshot.files} <= set(files(calm))
    snapshot.release()
    snapshot.release()
    assert not {unit.name for unit in snapshot.files} & set(files(calm))
    calm.manifest, calm.flushed = manifest, flushed
    calm.open()
    assert len(calm.rows()) == 10


def test_a_snapshot_has_the_digests_of_what_was_written_so_that_damage_is_not_copied(calm: HarnessReplica) -> None:
    calm.write(upsert(*((n, f"t{n}", n) for n in range(10))))
    calm.flush()
    rows, index = calm.store.snapshot().files
    calm.disk.damage(f"{DIRECTORY}/{rows.name}", 20, 0x01)
    again, _ = calm.store.snapshot().files
    assert again == rows
    assert hashlib.sha256(calm.disk.tree()[f"{DIRECTORY}/{rows.name}"]).hexdigest() != rows.digest
    calm.disk.damage(f"{DIRECTORY}/{index.name}", 20, 0x01)
    with pytest.raises(Corrupt, match="checksum"):
        calm.store.snapshot().files  # noqa: B018


def test_the_files_of_a_snapshot_and_its_edit_are_the_store_elsewhere(replica: HarnessReplica) -> None:
    replica.insert(*((n, f"n{n}", n) for n in range(20)))
    replica.flush()
    snapshot = replica.store.snapshot()
    elsewhere = StoreHarness(ColumnarStore, tiny).replica()
    elsewhere.disk.make_directory(DIRECTORY)
    for unit in snapshot.files:
        with_bytes = elsewhere.disk.create(f"{DIRECTORY}/{unit.name}")
        with_bytes.pwritev([replica.disk.read_bytes(f"{DIRECTORY}/{unit.name}")], 0)
    elsewhere.manifest, elsewhere.flushed = snapshot.edit.manifest, snapshot.edit.flushed
    elsewhere.open()
    assert elsewhere.rows() == replica.rows()
    assert elsewhere.store.applied == replica.store.applied


def test_a_floor_holds_over_a_restart(replica: HarnessReplica) -> None:
    for turn in range(5):
        replica.write(upsert(*((n, f"t{turn}", n) for n in range(10))))
        replica.flush()
    replica.store.set_history_floor(50)
    replica.compact()
    replica.open()
    with pytest.raises(TooOld) as caught:
        replica.rows(49)
    assert caught.value.floor == 50
    assert replica.rows(50) == [(n, "t4", n) for n in range(10)]


@pytest.mark.parametrize("fault", ["full", "sync"])
def test_a_flush_that_fails_leaves_the_rows_in_memory_and_no_file(replica: HarnessReplica, fault: str) -> None:
    replica.insert(*((n, "a", n) for n in range(40)))
    replica.flush()
    before = files(replica)
    replica.write(upsert(*((n, "b", n) for n in range(40))))
    if fault == "full":
        replica.disk.faults.capacity_bytes = sum(map(len, replica.disk.tree().values())) + 3000
    else:
        replica.disk.faults.fail_syncs(".index")
    with pytest.raises((Full, SyncFailed)):
        replica.store.flush()
    assert files(replica) == before
    assert replica.store.memory_bytes() > 0
    assert replica.rows() == [(n, "b", n) for n in range(40)]
    replica.disk.faults.heal()
    replica.flush()
    replica.open()
    assert replica.rows() == [(n, "b", n) for n in range(40)]


def lived(replica: HarnessReplica) -> StoreModel:
    """Entries with a flush after every other and a merge now and then; the model of it."""
    model = StoreModel(SCHEMA)
    for turn in range(8):
        ops = [upsert(*((n, f"t{turn}", n) for n in range(turn, 12, 2))), delete((turn,))]
        ops.append(Op(OpKind.UPDATE, [(n, 100 + turn) for n in range(0, 12, 3)], (1, 3)))
        replica.write(*ops)
        model.apply(10 * len(replica.log), ops)
        if turn % 2:
            replica.flush()
        if turn % 3 == 2:
            replica.store.set_history_floor(10 * turn)
            replica.compact(2)
    return model


@pytest.mark.parametrize("seed", range(3))
def test_power_lost_at_any_operation_of_flushes_and_merges_loses_no_row(seed: int) -> None:
    harness = StoreHarness(ColumnarStore, tiny)
    clean = harness.replica()
    model = lived(clean)
    operations = clean.disk.faults.operations
    for number in range(seed, operations, 3):
        replica = harness.replica()
        replica.disk.faults.lose_power_after(operations=number)
        with suppress(PowerLost):
            lived(replica)
        log = replica.log
        replica.disk = replica.disk.crash(random.Random(1000 * seed + number))
        replica.open()
        replica.store.apply([entry for entry in clean.log if entry.op_id > replica.store.applied])
        assert replica.rows() == model.rows(), (number, len(log))
        replica.flush()
        replica.compact()
        replica.open()
        assert replica.rows() == model.rows(), (number, len(log))


def test_an_export_in_many_windows_is_in_order_and_whole(
    replica: HarnessReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = lived(replica)
    whole = [(p.timestamps, p.deleted, p.rows.to_rows()) for p in replica.store.export()]
    monkeypatch.setattr(diff_export, "WINDOW_ROWS", 5)
    pieces = [*replica.store.export()]
    stamps = [stamp for piece in pieces for stamp in piece.timestamps]
    assert stamps == sorted(stamps)
    assert len(stamps) == sum(len(stamps) for stamps, _, _ in whole)
    other = StoreHarness(ColumnarStore, tiny).replica()
    other.store.import_(iter(pieces), OpId(1, 8))
    assert other.rows() == model.rows()


def test_an_import_of_more_than_fits_memory_is_written_as_it_comes(
    replica: HarnessReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica.insert(*((n, f"n{n}", n) for n in range(100)))
    for turn in range(3):
        replica.write(upsert(*((n, f"t{turn}", n) for n in range(0, 100, 7))))
    monkeypatch.setattr(store, "IMPORT_BYTES", 1000)
    other = StoreHarness(ColumnarStore, tiny).replica()
    other.store.import_(replica.store.export(), OpId(1, 4))
    assert files(other)
    for at in (None, 10, 20, 30):
        assert other.rows(at) == replica.rows(at)
    other.open()
    assert (other.rows(), other.store.applied) == ([], ZERO), "nothing is durable before the edit"
    assert files(other) == []


def test_a_scan_reads_only_the_row_groups_and_columns_that_it_needs(replica: HarnessReplica) -> None:
    replica.insert(*((n, f"n{n}", 1000 - n) for n in range(200)))
    replica.flush()
    replica.compact()
    replica.open()
    read: list[int] = []
    for live in state(replica)._state.levels.blocks:
        load = live.block.load
        live.block.load = lambda pieces, places, load=load: read.extend(pieces) or load(pieces, places)  # type: ignore[method-assign]
    cases = [
        (ScanSpec(predicates=(Compare(1, "=", 77),)), 1),
        (ScanSpec(predicates=(Compare(3, ">", 995),)), 2),
        (ScanSpec(predicates=(IsNull(2),)), 0),
        (ScanSpec(predicates=(Compare(2, "=", "n77"),)), 6),
        (ScanSpec(), 50),
    ]
    for spec, groups_max in cases:
        read.clear()
        with replica.store.scan(spec) as cursor:
            for _ in cursor:
                pass
        assert len(read) <= groups_max, spec


def test_looking_for_keys_that_are_not_there_reads_next_to_nothing(replica: HarnessReplica) -> None:
    replica.insert(*((2 * n, "a", n) for n in range(500)))
    replica.flush()
    replica.compact()
    replica.open()
    read: list[int] = []
    for live in state(replica)._state.levels.blocks:
        load = live.block.load
        live.block.load = lambda pieces, places, load=load: read.extend(pieces) or load(pieces, places)  # type: ignore[method-assign]
    replica.insert(*((2 * n + 1, "b", n) for n in range(0, 499, 10)))
    assert len(read) <= 5


def test_rows_in_key_order_are_settled_at_once_and_never_merged(replica: HarnessReplica) -> None:
    for start in range(0, 600, 100):
        replica.insert(*((n, "a", n) for n in range(start, start + 100)))
        replica.flush()
    levels = state(replica)._state.levels
    assert not levels.level0
    before = {live.block.path for live in levels.blocks}
    replica.store.compact()
    assert len(before & {live.block.path for live in state(replica)._state.levels.blocks}) >= len(before) - 1


def test_flushes_alone_keep_the_number_of_overlapping_blocks_bounded() -> None:
    """Whoever drives the store may never have the time to call ``compact``."""
    config = ColumnarConfig(row_group_rows=8, merge_step_rows=64, level0_blocks_min=3, level0_blocks_max=8)
    replica = StoreHarness(ColumnarStore, lambda: config).replica()
    rng = random.Random(4)
    for turn in range(40):
        replica.write(upsert(*((int(rng.random() * 10_000), f"t{turn}", turn) for _ in range(16))))
        replica.flush()
        assert len(state(replica)._state.levels.level0) <= 2 * 8


def test_a_log_replayed_from_its_beginning_meets_the_schemas_of_its_time(replica: HarnessReplica) -> None:
    """The superblock may know later schemas than the first entries were written for. Rows that were taken for ones of
    the latest lost its columns when they were put together under an earlier one, and came back with nulls."""
    plain = schema_to_plain(SCHEMA)
    for n in range(6):
        replica.insert((n, "a", n))
    plain["version"] = 2
    plain["columns"][2]["default"] = 8
    plain["columns"].append({"id": 4, "name": "kind", "type": "int32", "default": 5})
    replica.write(Op(OpKind.INSERT, [(6, "b")], (1, 2)))
    replica.change_schema(schema_from_plain(plain))
    replica.write(Op(OpKind.INSERT, [(7, "c")], (1, 2)))
    rows = [*((n, "a", n, 5) for n in range(6)), (6, "b", 7, 5), (7, "c", 8, 5)]
    assert replica.rows() == rows
    replica.open()
    assert replica.store.schema.version == 2
    for entry in replica.log:
        replica.store.apply([entry])
    assert replica.rows() == rows


def test_a_merge_behind_a_change_of_the_schema_goes_back_with_the_flush(calm: HarnessReplica) -> None:
    """A merge that took the schema of the moment for that of the flush dropped a column which entries between the two
    still needed, and a restart then applied those under a schema of later."""
    for turn in range(4):
        calm.write(upsert(*((n, f"t{turn}", n) for n in range(10))))
        calm.flush()
    plain = schema_to_plain(SCHEMA)
    plain["version"] = 2
    del plain["columns"][1]
    between = calm.entry(Op(OpKind.UPDATE, [(3, 33)], (1, 3)))
    calm.store.apply([between])
    calm.change_schema(schema_from_plain(plain))
    calm.compact()
    calm.open()
    assert calm.store.schema == SCHEMA
    assert calm.rows() == [(n, "t3", n) for n in range(10)]
    calm.store.apply([between])
    assert calm.rows()[3] == (3, "t3", 33)
    calm.store.apply(calm.log)
    assert calm.rows()[3] == (3, 33)


def test_small_entries_become_few_chunks(replica: HarnessReplica) -> None:
    for n in range(400):
        replica.insert((n * 7 % 400, "a", n))
    assert len(state(replica)._state.chunks) < 24
    assert [row[0] for row in replica.rows()] == [*range(400)]


def test_batches_are_never_longer_than_a_step_may_hold_the_interpreter(replica: HarnessReplica) -> None:
    big = StoreHarness(ColumnarStore).replica()
    for start in range(0, 3 * BATCH_ROWS_MAX, 4096):
        big.insert(*((n, "a", n) for n in range(start, start + 4096)))
    for _ in range(2):
        with big.store.scan(ScanSpec()) as cursor:
            sizes = [len(batch) for batch in cursor]
        assert max(sizes) <= BATCH_ROWS_MAX
        assert sum(sizes) == 3 * BATCH_ROWS_MAX
        big.flush()


def test_a_batch_is_as_long_as_was_asked_for_if_its_rows_lie_together(replica: HarnessReplica) -> None:
    big = StoreHarness(ColumnarStore).replica()
    rows_max = 2 * BATCH_ROWS_MAX
    for start in range(0, 2 * rows_max, 4096):
        big.insert(*((n, "a", n) for n in range(start, start + 4096)))
    big.flush()
    with big.store.scan(ScanSpec()) as cursor:
        assert [len(batch) for batch in iter(lambda: cursor.next_batch(rows_max), None)] == [rows_max, rows_max]


def test_a_batch_that_ends_where_the_next_begins_is_no_duplicate(replica: HarnessReplica) -> None:
    assert replica.insert((1, "a", 1), (2, "b", 2)) == []
    assert replica.write(insert((2, "x", 0), (3, "c", 3))) == [(0, 1)]
    assert replica.write(insert((3, "x", 0))) == [(0, 1)]
    assert replica.rows() == [(1, "a", 1), (2, "b", 2), (3, "c", 3)]
