"""Checks of a store: reads in the past, what may be forgotten, what crosses between engines."""

from __future__ import annotations

import random

import pytest

from stelae.rows.keys import encode_keys
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.errors import CallerError, Corrupt, TooOld, Unsupported
from stelae.spi.ids import OpId
from stelae.spi.scan import Order, ScanSpec
from stelae.spi.store import VersionedRows
from stelae.testing.conformance.store_apply import random_ops
from stelae.testing.conformance.store_harness import SCHEMA, HarnessReplica, StoreHarness, delete, insert, upsert
from stelae.testing.conformance.store_model import Row, StoreModel

ALL = ScanSpec()


def lived(harness: StoreHarness, entries: int = 30, seed: int = 3) -> tuple[HarnessReplica, StoreModel]:
    """A replica and a model after the same random entries, at timestamps 10, 20, ..."""
    rng = random.Random(seed)
    replica, model = harness.replica(), StoreModel(SCHEMA)
    for index in range(1, entries + 1):
        ops = random_ops(rng)
        replica.write(*ops)
        model.apply(10 * index, ops)
    return replica, model


def compact_all(replica: HarnessReplica) -> None:
    """Compact until nothing is left to do, as far as a caller can tell."""
    for _ in range(10):
        replica.store.compact()


class HistoryChecks:
    """Time travel, for engines that declare ``history``; and its refusal by the others."""

    def test_a_read_in_the_past_sees_what_was_there(self, harness: StoreHarness) -> None:
        harness.needs("history")
        replica, model = lived(harness)
        for at in (0, 9, 10, 11, *range(20, 301, 10), 10_000):
            assert replica.rows(at) == model.rows(at), at
            assert replica.store.checksum(at) == model.checksum(at), at

    def test_entries_of_one_timestamp_become_visible_at_it(self, harness: StoreHarness) -> None:
        harness.needs("history")
        replica = harness.replica()
        replica.write(insert((1, "a", 1)), timestamp=10)
        replica.write(upsert((1, "b", 2)), timestamp=10)
        replica.write(upsert((1, "c", 3)), timestamp=11)
        assert [replica.rows(at) for at in (9, 10, 11)] == [[], [(1, "b", 2)], [(1, "c", 3)]]

    def test_a_read_below_the_floor_is_too_old_and_one_at_it_is_served(self, harness: StoreHarness) -> None:
        replica, model = lived(harness)
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

    def test_the_present_is_served_though_the_floor_has_passed_the_last_entry(self, harness: StoreHarness) -> None:
        replica, model = lived(harness)
        replica.store.set_history_floor(100_000)
        compact_all(replica)
        assert replica.rows() == model.rows()
        assert replica.store.checksum() == model.checksum()

    def test_keys_that_went_and_came_back_stand_once(self, harness: StoreHarness) -> None:
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

    def test_memory_is_let_go_behind_the_floor(self, harness: StoreHarness) -> None:
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

    def test_an_open_cursor_in_the_past_outlives_the_floor(self, harness: StoreHarness) -> None:
        harness.needs("history")
        replica, model = lived(harness)
        with replica.store.scan(ScanSpec(order=Order.KEY), 150) as cursor:
            replica.store.set_history_floor(300)
            compact_all(replica)
            assert [row for batch in cursor for row in batch.to_rows()] == model.rows(150)
        with pytest.raises(TooOld):
            replica.store.scan(ScanSpec(), 150)

    def test_a_cursor_outlives_a_later_entry_of_its_own_timestamp(self, harness: StoreHarness) -> None:
        replica = harness.replica()
        replica.write(insert((1, "a", 1)), timestamp=10)
        with replica.store.scan(ScanSpec()) as cursor:
            replica.write(upsert((1, "b", 2)), timestamp=10)
            replica.store.set_history_floor(10)
            compact_all(replica)
            assert [row for batch in cursor for row in batch.to_rows()] == [(1, "a", 1)]
        assert replica.rows() == [(1, "b", 2)]

    def test_a_diff_brings_one_state_to_the_other(self, harness: StoreHarness) -> None:
        harness.needs("history")
        replica, model = lived(harness)
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

    def test_a_diff_brings_the_columns_asked_for_and_refuses_what_is_forgotten(self, harness: StoreHarness) -> None:
        harness.needs("history")
        replica = harness.replica()
        replica.insert((1, "a", 1))
        (change,) = replica.store.diff(0, 10, ScanSpec(columns=(3, 1)))
        assert change.changed.to_rows() == [(1, 1)]
        replica.store.set_history_floor(5)
        with pytest.raises(TooOld):
            replica.store.diff(4, 10, ScanSpec())

    def test_a_diff_of_a_range_of_keys_has_its_share_and_goes_on_behind_a_token(self, harness: StoreHarness) -> None:
        harness.needs("history")
        replica, _ = lived(harness)
        rows, gone = diffed(replica, 100, 290)
        every = sorted([*(encode(row[0]) for row in rows), *gone])
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
            mine, mine_gone = diffed(replica, 100, 290, spec)
            assert sorted(mine) == sorted(row for row in rows if encode(row[0]) in asked)
            assert mine_gone == gone & asked

    def test_a_diff_that_goes_on_behind_any_piece_tells_nothing_twice(self, harness: StoreHarness) -> None:
        """Right below a key of bytes stand infinitely many others, so that a step can end where no token says."""
        harness.needs("history")
        replica = harness.replica(schema_from_plain({"columns": [{"name": "k", "type": "binary"}], "key": ["k"]}))
        rows = sorted((bytes([97 + n]) + b"\xff" * m,) for n in range(9) for m in range(4 + n))
        replica.insert(*rows)
        for _ in range(2):
            found: list[Row] = []
            token: bytes | None = None
            while True:
                piece = next(iter(replica.store.diff(0, 1000, ScanSpec(after=token))), None)
                found += [] if piece is None else piece.changed.to_rows()
                token = None if piece is None else piece.through
                if token is None:
                    break
            assert found == rows
            replica.flush()

    def test_an_export_carries_the_history_to_another_store(self, harness: StoreHarness) -> None:
        replica, model = lived(harness)
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

    def test_an_import_needs_an_empty_store_and_time_that_does_not_go_back(self, harness: StoreHarness) -> None:
        replica, _ = lived(harness)
        with pytest.raises(CallerError):
            replica.store.import_(replica.store.export(), OpId(1, 99))
        source = harness.replica()
        source.insert((1, "a", 1))
        (piece,) = source.store.export()
        late = VersionedRows(piece.schema_version, piece.deleted, (50,), piece.rows)
        unknown = VersionedRows(99, piece.deleted, piece.timestamps, piece.rows)
        for pieces in ([late, piece], [unknown]):
            with pytest.raises(Corrupt):
                harness.replica().store.import_(iter(pieces), OpId(1, 9))

    def test_what_is_not_declared_is_refused(self, harness: StoreHarness) -> None:
        replica, _ = lived(harness, entries=3)
        if "files" not in harness.engine.capabilities:
            with pytest.raises(Unsupported):
                replica.store.snapshot()
        if "history" not in harness.engine.capabilities:
            with pytest.raises(Unsupported):
                replica.store.diff(0, 10, ScanSpec())
            with pytest.raises(TooOld):
                replica.rows(10)


def encode(key: int) -> bytes:
    """The encoded key of one row of ``SCHEMA``."""
    return (key + (1 << 63)).to_bytes(8, "big")


def diffed(replica: HarnessReplica, after: int, until: int, spec: ScanSpec = ALL) -> tuple[list[Row], set[bytes]]:
    """All changed rows and the encoded keys of deleted ones; each piece tells what it says it does."""
    rows: list[Row] = []
    keys: set[bytes] = set()
    behind = spec.after
    for change in replica.store.diff(after, until, spec):
        told = [*encode_keys(SCHEMA, change.changed), *encode_keys(SCHEMA, change.deleted)]
        assert all(behind is None or key > behind for key in told)
        assert change.through is None or all(key <= change.through for key in told)
        behind = change.through
        rows += change.changed.to_rows()
        keys.update(encode_keys(SCHEMA, change.deleted))
    return rows, keys
