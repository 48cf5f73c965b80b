"""Whatever happens to it, the columnar store says what the memory store says: rows, faults, history, changes."""

from __future__ import annotations

import random
from typing import Any

import pytest

from stelae.rows.keys import encode_key
from stelae.rows.plain_schema import schema_from_plain, schema_to_plain
from stelae.spi.errors import TooOld
from stelae.spi.scan import Compare, In, IsNull, Order, Prefix, ScanSpec
from stelae.spi.write import OpKind
from stelae.testing.conformance.store_harness import HarnessReplica, StoreHarness
from stelae.testing.conformance.store_model import Op
from stelae_store_columnar import ColumnarStore
from stelae_store_memory import MemoryStore
from tests.at_length import times
from tests.conformance.test_store_columnar import tiny

KEYS: dict[str, list[Any]] = {
    "int64": [*range(-6, 14)],
    "string": ["", "a", "a\0", "ab", "b" * 70, *"cdefghij"],
    "double": [-1.5, 0.0, 2.0, 1e300, *(n / 7 for n in range(9))],
}
KINDS = ("int32", "string", "double", "bool")
DELETES = (OpKind.DELETE, OpKind.DELETE_IGNORE)
WHOLE = (OpKind.INSERT, OpKind.INSERT_IGNORE)


class Twins:
    """Both stores, fed with the same entries."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.key_types = [self.pick([*KEYS]) for _ in range(1 + self.below(2))]
        columns: list[dict[str, Any]] = [{"name": f"k{n}", "type": t} for n, t in enumerate(self.key_types)]
        columns += [{"name": f"c{n}", "type": KINDS[n], "nullable": True} for n in range(3)]
        schema = schema_from_plain({"columns": columns, "key": [f"k{n}" for n in range(len(self.key_types))]})
        self.columnar = StoreHarness(ColumnarStore, tiny).replica(schema)
        self.memory = StoreHarness(MemoryStore).replica(schema)
        self.floor = 0

    def below(self, count: int) -> int:
        return int(self.rng.random() * count)

    def pick(self, values: Any) -> Any:
        return values[self.below(len(values))]

    def value(self, column: Any) -> Any:
        if column.id <= len(self.key_types):
            return self.pick(KEYS[column.type][:8] if len(self.key_types) > 1 else KEYS[column.type])
        given: dict[str, Any] = {"int32": self.below(9), "string": f"t{self.below(9)}", "bool": self.below(2) > 0}
        return None if column.nullable and self.below(4) == 0 else given.get(column.type, self.below(9) / 4)

    def operation(self) -> Op:
        schema = self.columnar.schema
        kind = OpKind(self.below(len(OpKind)))
        ids: tuple[int, ...] | None = None
        if kind in DELETES:
            wanted = schema.key
        elif kind not in WHOLE and self.below(2):
            others = [c.id for c in schema.columns if c.id not in schema.key and (c.required or self.below(2))]
            wanted = ids = tuple(self.rng.sample([*schema.key, *others], len(schema.key) + len(others)))
        else:
            wanted = schema.layout.ids
        rows = [tuple(self.value(schema.by_id[i]) for i in wanted) for _ in range(1 + self.below(9))]
        return Op(kind, rows, ids)

    def write(self) -> None:
        ops = [self.operation() for _ in range(1 + self.below(3))]
        assert self.columnar.write(*ops) == self.memory.write(*ops)

    def alter(self) -> None:
        plain = schema_to_plain(self.columnar.schema)
        plain["version"] += 1
        mine = [c for c in plain["columns"] if c["id"] > len(self.key_types)]
        if mine and self.below(2):
            plain["columns"].remove(self.pick(mine))
        mine = [c for c in plain["columns"] if c["id"] > len(self.key_types)]
        if mine:
            self.pick(mine)["name"] = f"r{plain['version']}"
        number = 10 * plain["version"]
        column = {"id": number, "name": f"n{number}", "type": "int32", "nullable": bool(self.below(2))}
        plain["columns"].append(
            {**column, "default": self.below(3) if not column["nullable"] or self.below(2) else None}
        )
        for replica in (self.columnar, self.memory):
            replica.change_schema(schema_from_plain(plain))

    def disturb(self) -> None:
        """Flush, merge, crash, forget: nothing that a reader may notice."""
        match self.below(6):
            case 0 | 1:
                self.columnar.flush()
            case 2:
                self.columnar.compact(1 + self.below(4))
            case 3:
                self.columnar.crash(self.below(1000))
                self.columnar.store.set_history_floor(self.floor)
            case 4:
                self.floor = max(self.floor, 10 * (len(self.columnar.log) - self.below(12)))
                for replica in (self.columnar, self.memory):
                    replica.store.set_history_floor(self.floor)
            case 5:
                self.columnar.store.compact()
                self.memory.store.compact()

    def compare(self) -> None:
        one, other = self.columnar, self.memory
        schema, now = one.schema, 10 * len(one.log)
        assert one.rows() == other.rows()
        assert one.store.checksum() == other.store.checksum()
        at = self.floor + self.below(max(1, now - self.floor + 20))
        key = self.pick(schema.key_layout.columns)
        column = self.pick(schema.columns)
        value = self.value(schema.by_id[key.id])
        predicates: list[Any] = [Compare(key.id, self.pick(["=", "<", "<=", ">", ">=", "!="]), value)]
        predicates.append(IsNull(column.id, negated=bool(self.below(2))))
        if (given := self.value(column)) is not None:
            predicates += [Compare(column.id, self.pick(["=", "<", ">=", "!="]), given), In(column.id, (given,))]
            predicates += [Prefix(column.id, given[:1])] if column.type == "string" else []
        spec: dict[str, Any] = {"predicates": (self.pick(predicates),), "columns": (column.id,)}
        spec["order"] = self.pick([Order.KEY, Order.KEY_DESCENDING])
        low = encode_key(schema, [self.value(c) for c in schema.key_layout.columns])
        spec[self.pick(["key_from", "key_until", "after"])] = low[: len(low) - self.below(2)]
        assert one.rows(at, **spec) == other.rows(at, **spec), (at, spec)
        after = self.floor + self.below(max(1, at - self.floor))
        assert diffed(one, after, at) == diffed(other, after, at), (after, at)

    def compare_exports(self) -> None:
        copies = []
        for replica in (self.columnar, self.memory):
            copy = StoreHarness(MemoryStore).replica(replica.schema)
            copy.store.import_(replica.store.export(), replica.store.applied)
            copies.append(copy)
        for at in (self.floor, self.floor + 15, None):
            assert copies[0].rows(at) == copies[1].rows(at)


def diffed(replica: HarnessReplica, after: int, until: int) -> tuple[list[Any], list[Any]]:
    """What a diff brings, put together; rows equal at both ends may be left out or not."""
    rows, keys = [], []
    for change in replica.store.diff(after, until, ScanSpec()):
        rows += change.changed.to_rows()
        keys += change.deleted.to_rows()
    return rows, keys


@pytest.mark.fuzzer
@pytest.mark.parametrize("seed", [*range(times(9)), 209])
def test_a_life_of_entries_flushes_merges_and_crashes(seed: int) -> None:
    twins = Twins(seed)
    for _ in range(40):
        twins.write()
        if twins.below(8) == 0:
            twins.alter()
        if twins.below(2):
            twins.disturb()
        if twins.below(3) == 0:
            twins.compare()
    twins.compare_exports()
    if twins.floor:
        with pytest.raises(TooOld):
            twins.columnar.rows(twins.floor - 1)
