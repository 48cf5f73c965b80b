"""Whatever happens to it, the store ``lmdb`` says what the stores ``memory`` and ``columnar`` say."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stelae.rows.checksum import LogicalChecksum
from stelae.rows.plain_schema import schema_from_plain, schema_to_plain
from stelae.spi.errors import TooOld
from stelae.spi.write import OpKind
from stelae.testing.conformance.store_harness import HarnessReplica, StoreHarness, upsert
from stelae.testing.conformance.store_model import Op
from stelae.testing.conformance.store_scan import TYPES
from stelae_store_columnar import ColumnarStore
from stelae_store_lmdb import LmdbStore
from stelae_store_memory import MemoryStore
from tests.at_length import times
from tests.conformance import test_store_columnar
from tests.conformance.lmdb_store import LmdbHarness, checks_here, tiny
from tests.unit.store_columnar.test_same_as_memory import Twins


@pytest.fixture(autouse=True)
def _checked_here() -> Iterator[None]:
    with checks_here():
        yield


class LmdbTwins(Twins):
    """This store in the place of the columnar one, beside the memory store."""

    def __init__(self, seed: int, root: Path) -> None:
        super().__init__(seed)
        self.columnar = LmdbHarness(LmdbStore, tiny, root=str(root)).replica(self.columnar.schema)


@pytest.mark.parametrize("seed", range(8))
def test_a_life_of_entries_schemas_flushes_and_crashes(seed: int, tmp_path: Path) -> None:
    twins = LmdbTwins(seed, tmp_path)
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


ROW = st.tuples(
    st.integers(-3, 12), st.none() | st.text("a\0é", max_size=3), st.integers(-(2**31), 2**31 - 1) | st.just(0)
)


def operations() -> st.SearchStrategy[Op]:
    """Operations of any kind over few keys; some bring only some columns."""

    def build(kind: OpKind, rows: list[tuple[Any, ...]], some: bool) -> Op:
        if kind in (OpKind.DELETE, OpKind.DELETE_IGNORE):
            return Op(kind, [row[:1] for row in rows])
        return Op(kind, [(row[2], row[0]) for row in rows], (3, 1)) if some else Op(kind, rows)

    return st.builds(build, st.sampled_from(OpKind), st.lists(ROW, min_size=1, max_size=6), st.booleans())


EVENTS = st.lists(operations(), min_size=1, max_size=3) | st.sampled_from(
    ["flush", "flush", "compact", "crash", "floor"]
)


@settings(max_examples=times(60), deadline=None)
@given(st.lists(EVENTS, min_size=3, max_size=16))
def test_three_stores_agree_on_faults_rows_and_checksums_at_every_time(
    tmp_path_factory: pytest.TempPathFactory, events: list[Any]
) -> None:
    lmdb = LmdbHarness(LmdbStore, tiny, root=str(tmp_path_factory.mktemp("lmdb"))).replica()
    columnar = StoreHarness(ColumnarStore, test_store_columnar.tiny).replica()
    memory = StoreHarness(MemoryStore).replica()
    replicas: list[HarnessReplica] = [lmdb, columnar, memory]
    floor = 0
    for event in events:
        now = 10 * len(memory.log)
        if isinstance(event, list):
            faults = [replica.write(*event) for replica in replicas]
            assert faults[0] == faults[1] == faults[2]
        elif event == "floor":
            floor = max(floor, now - 30)
        for replica in replicas:
            match event:
                case "flush":
                    replica.flush()
                case "compact":
                    replica.compact()
                case "crash":
                    replica.crash()
            replica.store.set_history_floor(floor)
    now = 10 * len(memory.log)
    for at in (*range(floor, now + 1, 10), None):
        sums = {replica.store.checksum(at) for replica in replicas}
        assert len(sums) == 1, at
    lmdb.store.close()


def test_values_of_every_type_and_defaults_have_one_checksum(tmp_path: Path) -> None:
    """It is taken from rows as they are stored: 1 as the default of a double is 1.0, and 1.5 of a decimal is 1.50."""
    columns = [{"name": "k", "type": "int8"}, {"name": "d", "type": "double", "default": 1}]
    columns += [{"name": "m", "type": "decimal(8,2)", "default": "1.5"}]
    columns += [{"name": t, "type": t, "nullable": True} for t, _ in TYPES]  # type: ignore[dict-item]
    schema = schema_from_plain({"columns": columns, "key": ["k"]})
    lmdb = LmdbHarness(LmdbStore, tiny, root=str(tmp_path)).replica(schema)
    replicas: list[HarnessReplica] = [
        lmdb,
        StoreHarness(ColumnarStore, test_store_columnar.tiny).replica(schema),
        StoreHarness(MemoryStore).replica(schema),
    ]
    plain = schema_to_plain(schema)
    plain["version"] = 2
    plain["columns"] += [
        {"id": 50, "name": "late", "type": "decimal(9,3)", "nullable": False, "default": "2"},
        {"id": 51, "name": "float", "type": "float", "nullable": False, "default": 3},
    ]
    plain["columns"][8]["name"] = "renamed"
    wider = schema_from_plain(plain)
    sums = set()
    for replica in replicas:
        given = zip(*(pair for _, pair in TYPES), strict=True)
        values = [tuple(str(v) if isinstance(v, Decimal) else v for v in row) for row in given]
        replica.write(upsert(*((n, 0.5, "2.25", *row) for n, row in enumerate(values))))
        replica.write(Op(OpKind.UPSERT, [(5,)], (1,)), Op(OpKind.INSERT, [(6, math.nan), (7, -0.0)], (1, 2)))
        replica.flush()
        replica.change_schema(wider)
        replica.write(Op(OpKind.UPDATE, [(5, "7.1"), (0, "-3")], (1, 3)), Op(OpKind.UPSERT, [(9,)], (1,)))
        found = [replica.store.checksum()]
        replica.flush()
        replica.crash()
        found.append(replica.store.checksum())
        total = LogicalChecksum()
        total.add(replica.rows())
        sums.update([*found, total.hex()])
    assert len(sums) == 1
