"""Conformance checks for stores: how applied entries change rows."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

import pytest

from stelae.rows.plain_schema import schema_from_plain, schema_to_plain
from stelae.spi.errors import Corrupt
from stelae.spi.ids import OpId
from stelae.spi.payload import OpGroup, PayloadClient, PayloadSequenceRange, WritePayload
from stelae.spi.store import ApplyEntry
from stelae.spi.write import OpKind, RowCode
from stelae.testing.conformance.store_harness import (
    SCHEMA,
    HarnessReplica,
    StoreHarness,
    delete,
    faults_of,
    insert,
    upsert,
)
from stelae.testing.conformance.store_model import Op, Row, StoreModel

HISTORIES = 8
PRESENT, MISSING = RowCode.ALREADY_PRESENT, RowCode.NOT_FOUND


def random_ops(rng: random.Random, keys: int = 12) -> list[Op]:
    """Draw one entry's operations over few keys, so that they often concern the same row."""

    def pick(count: int) -> int:
        return int(rng.random() * count)

    def row(kind: OpKind, columns: tuple[int, ...] | None) -> Row:
        whole = (pick(keys), None if pick(3) == 0 else f"n{pick(99)}", pick(1000))
        if kind in (OpKind.DELETE, OpKind.DELETE_IGNORE):
            return whole[:1]
        return whole if columns is None else tuple(whole[i - 1] for i in columns)

    ops = []
    for _ in range(1 + pick(4)):
        kind = OpKind(pick(len(OpKind)))
        deleting = kind in (OpKind.DELETE, OpKind.DELETE_IGNORE)
        columns = None if deleting else (None, (1, 3), (2, 1), None)[pick(4)]
        ops.append(Op(kind, [row(kind, columns) for _ in range(1 + pick(5))], columns))
    return ops


class _Watched(list[ApplyEntry]):
    """A group of entries that calls ``look`` before each of them, as often as an engine goes through it."""

    def __init__(self, entries: Sequence[ApplyEntry], look: Callable[[], object]) -> None:
        super().__init__(entries)
        self._look = look

    def __iter__(self) -> Iterator[ApplyEntry]:
        for entry in super().__iter__():
            self._look()
            yield entry


class ApplyChecks:
    """Checks of how entries change rows."""

    #: False for a variant of an engine that applies the entries of a group one by one, so that each is visible before
    #: the next one.
    applies_whole_groups = True

    def test_a_group_of_entries_becomes_visible_as_a_whole(self, harness: StoreHarness) -> None:
        replica = harness.replica()
        found: list[int] = []
        entries = [replica.entry(upsert((n, "a", n))) for n in range(3)]
        replica.store.apply(_Watched(entries, lambda: found.append(len(replica.rows()))))
        assert found and set(found) <= {0, *range(0 if self.applies_whole_groups else 3), 3}
        assert len(replica.rows()) == 3

    def test_the_entries_before_one_that_fails_are_applied(self, harness: StoreHarness) -> None:
        replica = harness.replica()
        plain = schema_to_plain(SCHEMA)
        plain["key"] = ["count"]
        entries = [replica.entry(upsert((n, "a", n))) for n in range(2)]
        bad = ApplyEntry(OpId(1, 3), 30, schema_from_plain({**plain, "version": 2}))
        with pytest.raises(Corrupt):
            replica.store.apply([*entries, bad])
        assert replica.store.applied == entries[-1].op_id
        assert replica.rows() == [(0, "a", 0), (1, "a", 1)]

    def test_insert_of_a_present_key_is_a_row_error_and_the_other_rows_are_applied(self, harness: StoreHarness) -> None:
        replica = harness.replica()
        replica.insert((1, "a", 1), (2, "b", 2))
        assert replica.insert((3, "c", 3), (2, "x", 9), (4, "d", 4)) == [(1, PRESENT)]
        assert replica.rows() == [(1, "a", 1), (2, "b", 2), (3, "c", 3), (4, "d", 4)]

    def test_update_and_delete_of_a_missing_key_are_row_errors(self, harness: StoreHarness) -> None:
        replica = harness.replica()
        replica.insert((1, "a", 1))
        assert replica.write(Op(OpKind.UPDATE, [(2, "x", 2), (1, "y", 3)])) == [(0, MISSING)]
        assert replica.write(delete((2,), (1,))) == [(0, MISSING)]
        assert replica.rows() == []

    def test_ignore_operations_skip_such_rows_without_an_error(self, harness: StoreHarness) -> None:
        replica = harness.replica()
        replica.insert((1, "a", 1))
        faults = replica.write(
            Op(OpKind.INSERT_IGNORE, [(1, "x", 9), (2, "b", 2)]),
            Op(OpKind.UPDATE_IGNORE, [(7, "x", 9), (2, "c", 3)]),
            Op(OpKind.DELETE_IGNORE, [(8,), (1,)]),
        )
        assert faults == []
        assert replica.rows() == [(2, "c", 3)]

    def test_upsert_inserts_or_replaces(self, harness: StoreHarness) -> None:
        replica = harness.replica()
        replica.insert((1, "a", 1))
        assert replica.write(upsert((1, "b", 2), (2, "c", 3))) == []
        assert replica.rows() == [(1, "b", 2), (2, "c", 3)]

    def test_columns_left_out_keep_their_values_or_take_their_defaults(self, harness: StoreHarness) -> None:
        replica = harness.replica()
        replica.insert((1, "a", 1))
        replica.write(Op(OpKind.UPSERT, [("b", 1), ("c", 2)], (2, 1)))
        replica.write(Op(OpKind.UPDATE, [(1, 5)], (1, 3)), Op(OpKind.INSERT, [(3,)], (1,)))
        assert replica.rows() == [(1, "b", 5), (2, "c", 7), (3, None, 7)]

    def test_operations_on_one_key_take_effect_in_their_order(self, harness: StoreHarness) -> None:
        replica = harness.replica()
        faults = replica.write(
            insert((1, "a", 1), (1, "b", 2)),
            upsert((1, "c", 3), (1, "d", 4)),
            delete((1,), (1,)),
            insert((1, "e", 5)),
            Op(OpKind.UPDATE, [(1, 6), (1, 7)], (1, 3)),
        )
        assert faults == [(1, PRESENT), (5, MISSING)]
        assert replica.rows() == [(1, "e", 7)]

    def test_rows_of_skipped_operations_are_not_applied_and_keep_their_numbers(self, harness: StoreHarness) -> None:
        replica = harness.replica()
        replica.insert((1, "a", 1))
        faults = replica.write(upsert((1, "first", 1)), upsert((1, "again", 2)), insert((1, "x", 3)), skip=[1])
        assert faults == [(2, PRESENT)]
        assert replica.rows() == [(1, "first", 1)]
        assert replica.write(insert((2, "b", 2)), insert((3, "c", 3)), skip=[0]) == []
        assert replica.rows() == [(1, "first", 1), (3, "c", 3)]

    def test_an_entry_at_or_below_applied_is_a_no_op(self, harness: StoreHarness) -> None:
        replica = harness.replica()
        replica.insert((1, "a", 1))
        replica.write(upsert((1, "b", 2)))
        replica.write(delete((1,)))
        before = replica.store.checksum(), replica.store.applied
        for count in (1, 2, 3):
            results = replica.store.apply(replica.log[:count])
            assert [r.op_id for r in results] == [e.op_id for e in replica.log[:count]]
            assert [r.faults for r in results] == [()] * count
            assert (replica.store.checksum(), replica.store.applied) == before
            assert replica.rows() == []

    def test_random_entries_give_the_rows_and_row_errors_of_the_model(self, harness: StoreHarness) -> None:
        for seed in range(HISTORIES):
            rng = random.Random(seed)
            replica, model = harness.replica(), StoreModel(SCHEMA)
            for index in range(1, 40):
                ops = random_ops(rng)
                assert replica.write(*ops) == model.apply(10 * index, ops), (seed, index)
                assert replica.rows() == model.rows(), (seed, index)
            assert replica.store.checksum() == model.checksum()

    def test_entries_applied_together_give_the_same_as_one_by_one(self, harness: StoreHarness) -> None:
        rng = random.Random(5)
        single, grouped = harness.replica(), harness.replica()
        faults = [single.write(*random_ops(rng)) for _ in range(40)]
        assert [faults_of(r) for r in grouped.store.apply(single.log)] == faults
        assert grouped.store.checksum() == single.store.checksum()
        assert grouped.store.applied == single.store.applied

    def test_many_rows_in_one_entry(self, harness: StoreHarness) -> None:
        replica = harness.replica()
        replica.insert(*((n * 7 % 3000, f"n{n}", n) for n in range(3000)))
        assert [row[0] for row in replica.rows()] == [*range(3000)]

    def test_an_entry_applied_on_the_event_loop_uses_no_file(self, harness: StoreHarness) -> None:
        harness.needs("fake_files")
        rng, replica = random.Random(9), harness.replica()
        for _ in range(150):
            entry = replica.entry(*random_ops(rng))
            if replica.store.applies_inline([entry]):
                replica.forbid_files()
            replica.store.apply([entry])
            replica.allow_files()
            if rng.random() < 0.1:
                replica.flush()

    def test_an_entry_that_cannot_be_decoded_changes_nothing(self, harness: StoreHarness) -> None:
        replica = harness.replica()
        replica.insert((1, "a", 1))
        before = replica.store.checksum(), replica.store.applied
        for change in (_damaged(), _of_unknown_version(replica)):
            with pytest.raises(Corrupt):
                replica.store.apply([ApplyEntry(OpId(1, 2), 20, change)])
            assert (replica.store.checksum(), replica.store.applied) == before

    def test_a_new_column_has_its_default_in_old_rows(self, harness: StoreHarness) -> None:
        replica = harness.replica()
        replica.insert((1, "a", 1))
        plain = schema_to_plain(SCHEMA)
        plain["version"] = 2
        plain["columns"][1]["name"] = "title"
        plain["columns"][2] = {"id": 9, "name": "cost", "type": "decimal(8,2)", "default": "1.50"}
        wider = schema_from_plain(plain)
        replica.change_schema(wider)
        assert replica.store.schema == wider
        replica.write(Op(OpKind.INSERT, [(2, "b")], (1, 2)), Op(OpKind.UPDATE, [(1, "c")], (1, 2)))
        assert [tuple(map(str, row)) for row in replica.rows()] == [("1", "c", "1.50"), ("2", "b", "1.50")]

    def test_rows_of_the_previous_schema_may_follow_a_schema_change(self, harness: StoreHarness) -> None:
        replica = harness.replica()
        late = replica.entry(insert((1, "a", 1)), Op(OpKind.UPSERT, [(1, 5)], (1, 3)))
        plain = schema_to_plain(SCHEMA)
        plain["version"] = 2
        plain["columns"].pop()
        replica.log.clear()
        replica.change_schema(schema_from_plain(plain))
        replica.store.apply([ApplyEntry(OpId(1, 2), 20, late.change)])
        assert replica.rows() == [(1, "a")]

    def test_a_schema_that_old_rows_do_not_fit_is_refused(self, harness: StoreHarness) -> None:
        replica = harness.replica()
        replica.insert((1, "a", 1))
        for change in ({"name": "new", "type": "int8"}, {"id": 2, "name": "n", "type": "int8"}):
            plain = schema_to_plain(SCHEMA)
            plain["version"] = 2
            plain["columns"] = [c for c in plain["columns"] if c["id"] != change.get("id")]
            plain["columns"].append({"id": 8, **change})
            with pytest.raises(Corrupt):
                replica.store.apply([ApplyEntry(OpId(1, 2), 20, schema_from_plain(plain))])
        assert replica.rows() == [(1, "a", 1)]


def _damaged() -> WritePayload:
    group = OpGroup(OpKind.UPSERT, None, 1, b"\xff" * 64)
    clients, ranges = (PayloadClient("c", 1),), (PayloadSequenceRange(0, 1, (1,), (0,)),)  # type: ignore[arg-type]
    return WritePayload(1, clients, ranges, (group,))


def _of_unknown_version(replica: HarnessReplica) -> WritePayload:
    change = replica.entry(insert((9, "x", 9))).change
    replica.log.pop()
    assert isinstance(change, WritePayload)
    return WritePayload(77, change.clients, change.sequences, change.groups)
