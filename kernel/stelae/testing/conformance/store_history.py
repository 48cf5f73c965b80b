"""Conformance checks for stores: reads in the past, the history floor, diffs, exports and imports."""

from __future__ import annotations

import random

import pytest

from stelae.rows.keys import encode_keys
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.errors import CallerError, Corrupt, TooOld, Unsupported
from stelae.spi.ids import OpId
from stelae.spi.scan import Order, ScanSpec
from stelae.spi.store import VersionedRows
from stelae.spi.write import OpKind
from stelae.testing.conformance.store_apply import random_ops
from stelae.testing.conformance.store_harness import SCHEMA, HarnessReplica, StoreHarness, delete, insert, upsert
from stelae.testing.conformance.store_model import Op, Row, StoreModel

ALL = ScanSpec()


def with_random_entries(harness: StoreHarness, entries: int = 30, seed: int = 3) -> tuple[HarnessReplica, StoreModel]:
    """Make a replica and a model and apply the same random entries to both, at timestamps 10, 20, ..."""
    rng = random.Random(seed)
    replica, model = harness.replica(), StoreModel(SCHEMA)
    for index in range(1, entries + 1):
        ops = random_ops(rng)
        replica.write(*ops)
        model.apply(10 * index, ops)
    return replica, model


def compact_all(replica: HarnessReplica) -> None:
    """Compact ten times, which leaves nothing to do. The edits are not committed."""
    for _ in range(10):
        replica.store.compact()


class StoreHistoryChecks:
    """Checks of reads in the past, for engines that declare ``history``, and of their refusal by the others."""

    def test_a_read_in_the_past_returns_the_rows_of_that_time(self, harness: StoreHarness) -> None:
        harness.needs("history")
        replica, model = with_random_entries(harness)
        for at in (0, 9, 10, 11, *range(20, 301, 10), 10_000):
            assert replica.rows(at) == model.rows(at), at
            assert replica.store.checksum(at) == model.checksum(at), at

    def test_entries_of_one_timestamp_become_visible_together(self, harness: StoreHarness) -> None:
        harness.needs("history")
        replica = harness.replica()
        replica.write(insert((1, "a", 1)), timestamp=10)
        replica.write(upsert((1, "b", 2)), timestamp=10)
        replica.write(upsert((1, "c", 3)), timestamp=11)
        assert [replica.rows(at) for at in (9, 10, 11)] == [[], [(1, "b", 2)], [(1, "c", 3)]]

    def test_a_read_below_the_floor_is_too_old_and_one_at_it_is_served(self, harness: StoreHarness) -> None:
        replica, model = with_random_entries(harness)
        replica.store.set_history_floor(150)
        replica.store.set_history_floor(40)
        compact_all(replica)
        for read in (replica.rows, replica.store.checksum):
            with pytest.raises(TooOld) as caught:
                read(149)
            assert caught.value.floor == 150
        assert replica.rows() == model.rows()
        if "history" in harness.engine.capabilities:
            for at in range(150, 301, 10):
                assert replica.rows(at) == model.rows(at), at

    def test_a_read_of_the_present_is_served_even_if_the_floor_is_above_the_last_entry(
        self, harness: StoreHarness
    ) -> None:
        replica, model = with_random_entries(harness)
        replica.store.set_history_floor(100_000)
        compact_all(replica)
        assert replica.rows() == model.rows()
        assert replica.store.checksum() == model.checksum()

    def test_keys_that_were_deleted_and_inserted_again_appear_once(self, harness: StoreHarness) -> None:
        replica = harness.replica()
        for turn in range(6):
            replica.insert(*((n, f"t{turn}", n) for n in range(20)))
            assert len(replica.rows()) == 20
            replica.write(delete(*((n,) for n in range(20))))
            replica.store.set_history_floor(10 * len(replica.log))
            compact_all(replica)
            assert replica.rows() == []
        replica.insert((3, "x", 3), (1, "x", 1))
        assert replica.rows() == [(1, "x", 1), (3, "x", 3)]

    def test_memory_of_versions_below_the_floor_is_freed(self, harness: StoreHarness) -> None:
        harness.needs("history")
        replica = harness.replica()
        replica.insert(*((n, "a", n) for n in range(50)))
        one = replica.store.memory_bytes()
        for _ in range(20):
            replica.write(upsert(*((n, "b", n) for n in range(50))))
        many = replica.store.memory_bytes()
        replica.store.set_history_floor(10 * len(replica.log))
        compact_all(replica)
        assert one < many
        assert replica.store.memory_bytes() < many / 5

    def test_an_open_cursor_in_the_past_survives_a_higher_floor(self, harness: StoreHarness) -> None:
        harness.needs("history")
        replica, model = with_random_entries(harness)
        with replica.store.scan(ScanSpec(order=Order.KEY), 150) as cursor:
            replica.store.set_history_floor(300)
            compact_all(replica)
            assert [row for batch in cursor for row in batch.to_rows()] == model.rows(150)
        with pytest.raises(TooOld):
            replica.store.scan(ScanSpec(), 150)

    def test_a_cursor_does_not_see_a_later_entry_of_its_own_timestamp(self, harness: StoreHarness) -> None:
        replica = harness.replica()
        replica.write(insert((1, "a", 1)), timestamp=10)
        with replica.store.scan(ScanSpec()) as cursor:
            replica.write(upsert((1, "b", 2)), timestamp=10)
            replica.store.set_history_floor(10)
            compact_all(replica)
            assert [row for batch in cursor for row in batch.to_rows()] == [(1, "a", 1)]
        assert replica.rows() == [(1, "b", 2)]

    def test_a_diff_turns_the_earlier_state_into_the_later_one(self, harness: StoreHarness) -> None:
        harness.needs("history")
        replica, model = with_random_entries(harness)
        for after, until in ((0, 300), (0, 0), (100, 110), (55, 205), (290, 300)):
            state = {row[0]: row for row in model.rows(after)}
            rows, keys = diffed(replica, after, until)
            changed, deleted = model.changed(after, until)
            assert set(changed) <= set(rows)
            assert set(deleted) <= set(keys)
            state.update((row[0], row) for row in rows)
            for key in list(state):
                if encode(key) in keys:
                    del state[key]
            assert sorted(state.values()) == model.rows(until), (after, until)

    def test_a_row_that_is_written_with_its_own_values_is_in_a_diff(self, harness: StoreHarness) -> None:
        """A job that overwrites a table deletes the rows that a diff since its start does not have."""
        harness.needs("history")
        rows = [(n, "a", n) for n in range(1, 5)]
        for is_flushed in (False, True):
            replica = harness.replica()
            replica.insert(*rows)
            if is_flushed:
                replica.flush()
            replica.write(upsert(rows[0]), Op(OpKind.UPDATE, (rows[1],)), delete((3,)), timestamp=20)
            replica.write(insert(rows[2]), timestamp=30)
            if is_flushed:
                replica.flush()
                replica.compact()
            assert diffed(replica, 10, 30) == (rows[:3], set()), is_flushed
            assert diffed(replica, 20, 30) == (rows[2:3], set()), is_flushed

    def test_a_diff_returns_the_requested_columns_and_is_refused_below_the_floor(self, harness: StoreHarness) -> None:
        harness.needs("history")
        replica = harness.replica()
        replica.insert((1, "a", 1))
        (change,) = replica.store.diff(0, 10, ScanSpec(columns=(3, 1)))
        assert change.changed.to_rows() == [(1, 1)]
        replica.store.set_history_floor(5)
        with pytest.raises(TooOld):
            replica.store.diff(4, 10, ScanSpec())

    def test_a_diff_of_a_key_range_returns_its_changes_and_continues_after_a_token(self, harness: StoreHarness) -> None:
        harness.needs("history")
        replica, _ = with_random_entries(harness)
        rows, deleted = diffed(replica, 100, 290)
        every = sorted([*(encode(row[0]) for row in rows), *deleted])
        low, token, high = (every[len(every) * part // 4] for part in (1, 2, 3))
        for spec in (
            ScanSpec(key_from=low, key_until=high),
            ScanSpec(key_until=token + b"\0"),
            ScanSpec(after=token),
            ScanSpec(key_from=low, key_until=high, after=token),
            ScanSpec(key_from=token, after=low),
            ScanSpec(key_from=high, key_until=low),
        ):
            first, last = spec.key_from or b"", spec.key_until or b"\xff" * 9
            asked = {key for key in every if first <= key < last and (spec.after is None or key > spec.after)}
            part, part_deleted = diffed(replica, 100, 290, spec)
            assert sorted(part) == sorted(row for row in rows if encode(row[0]) in asked)
            assert part_deleted == deleted & asked

    def test_a_diff_that_continues_after_any_batch_returns_nothing_twice(self, harness: StoreHarness) -> None:
        """Between two keys of bytes there are infinitely many others, so that a step may end between two rows."""
        harness.needs("history")
        replica = harness.replica(schema_from_plain({"columns": [{"name": "k", "type": "binary"}], "key": ["k"]}))
        rows = sorted((bytes([97 + n]) + b"\xff" * m,) for n in range(9) for m in range(4 + n))
        replica.insert(*rows)
        for _ in range(2):
            found: list[Row] = []
            token: bytes | None = None
            while True:
                batch = next(iter(replica.store.diff(0, 1000, ScanSpec(after=token))), None)
                found += [] if batch is None else batch.changed.to_rows()
                token = None if batch is None else batch.through
                if token is None:
                    break
            assert found == rows
            replica.flush()

    def test_a_diff_of_a_range_that_continues_after_each_batch_comes_to_its_end(self, harness: StoreHarness) -> None:
        """Between the last change of a range of texts and its end there are always other keys."""
        harness.needs("history")
        replica = harness.replica(schema_from_plain({"columns": [{"name": "k", "type": "string"}], "key": ["k"]}))
        replica.insert(*((chr(number),) for number in range(ord("a"), ord("z"))))
        for _ in range(2):
            found: list[Row] = []
            spec = ScanSpec(key_until=b"cc")
            for _ in range(10):
                batch = next(iter(replica.store.diff(0, 1000, spec)), None)
                found += [] if batch is None else batch.changed.to_rows()
                if batch is None or batch.through is None:
                    break
                spec = ScanSpec(key_until=b"cc", after=batch.through)
            else:
                pytest.fail(f"the diff does not end: it is complete up to {spec.after!r}")
            assert found == [("a",), ("b",), ("c",)]
            replica.flush()

    def test_an_export_carries_the_history_to_another_store(self, harness: StoreHarness) -> None:
        replica, model = with_random_entries(harness)
        replica.store.set_history_floor(100)
        other = harness.replica()
        other.store.import_(replica.store.export(), replica.store.applied)
        assert other.store.applied == replica.store.applied
        assert other.store.checksum() == model.checksum()
        if "history" in harness.engine.capabilities:
            for at in range(100, 301, 10):
                assert other.rows(at) == model.rows(at), at
        other.log = list(replica.log)
        assert other.insert((500, "new", 1)) == []
        assert len(other.rows()) == len(model.rows()) + 1

    def test_a_store_with_the_rows_and_the_floor_of_an_export_refuses_what_the_source_refuses(
        self, harness: StoreHarness
    ) -> None:
        """The versions below the floor are not in the export, and reads of them must not have other rows instead."""
        harness.needs("history")
        replica, model = with_random_entries(harness)
        assert replica.store.history_floor == 0
        replica.store.set_history_floor(150)
        copy = harness.replica()
        copy.store.set_history_floor(replica.store.history_floor)
        copy.store.import_(replica.store.export(), replica.store.applied)
        copy.flush()
        if "durable_flush" in harness.engine.capabilities:
            copy.store.close()
            copy.open()
        assert copy.store.history_floor == 150
        for below in (lambda: copy.rows(149), lambda: list(copy.store.diff(149, 300, ALL))):
            with pytest.raises(TooOld):
                below()
        assert copy.rows(150) == model.rows(150)
        assert copy.rows() == model.rows()

    def test_an_import_needs_an_empty_store_and_timestamps_that_do_not_go_back(self, harness: StoreHarness) -> None:
        replica, _ = with_random_entries(harness)
        with pytest.raises(CallerError):
            replica.store.import_(replica.store.export(), OpId(1, 99))
        source = harness.replica()
        source.insert((1, "a", 1))
        (batch,) = source.store.export()
        late = VersionedRows(batch.schema_version, batch.deleted, (50,), batch.rows)
        unknown = VersionedRows(99, batch.deleted, batch.timestamps, batch.rows)
        for batches in ([late, batch], [unknown]):
            with pytest.raises(Corrupt):
                harness.replica().store.import_(iter(batches), OpId(1, 9))

    def test_undeclared_capabilities_are_refused(self, harness: StoreHarness) -> None:
        replica, _ = with_random_entries(harness, entries=3)
        if "files" not in harness.engine.capabilities:
            with pytest.raises(Unsupported):
                replica.store.snapshot()
        if "history" not in harness.engine.capabilities:
            with pytest.raises(Unsupported):
                replica.store.diff(0, 10, ScanSpec())
            with pytest.raises(TooOld):
                replica.rows(10)


def encode(key: int) -> bytes:
    """Return the encoded key of a row of ``SCHEMA``."""
    return (key + (1 << 63)).to_bytes(8, "big")


def diffed(replica: HarnessReplica, after: int, until: int, spec: ScanSpec = ALL) -> tuple[list[Row], set[bytes]]:
    """Return all changed rows and the encoded keys of deleted ones; check the range of keys of each batch."""
    rows: list[Row] = []
    keys: set[bytes] = set()
    previous = spec.after
    for change in replica.store.diff(after, until, spec):
        found = [*encode_keys(SCHEMA, change.changed), *encode_keys(SCHEMA, change.deleted)]
        assert all(previous is None or key > previous for key in found)
        assert change.through is None or all(key <= change.through for key in found)
        previous = change.through
        rows += change.changed.to_rows()
        keys.update(encode_keys(SCHEMA, change.deleted))
    return rows, keys
