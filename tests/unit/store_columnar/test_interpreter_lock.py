"""What flushes and compactions do while they hold the interpreter: they run in a thread of the node, beside its loop.

Calls of Arrow let others run; what is done in Python does not. So no row may be visited by a statement, and no call may
make Python objects of more than 8192 rows (architecture, *Data*). Both are counted, opcode by opcode, and no clock is
looked at: the objects that are alive tell how many rows a call has turned into Python."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable
from typing import Any

import pytest

from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.write import OpKind
from stelae.testing.conformance.store_harness import HarnessReplica, StoreHarness
from stelae.testing.conformance.store_model import Op
from stelae_store_columnar import ColumnarStore, bloom
from stelae_store_columnar.config import ColumnarConfig

ROWS_HELD_MAX = 8192
GROUP_ROWS = 2 * ROWS_HELD_MAX
ENTRY_ROWS, ENTRIES = 2048, 32
OURS = ("stelae_store_columnar", "stelae/rows")
FEW_OBJECTS = 2000  #: Lists of row groups and chunks, schemas, plans: of work as such, not of rows.


class Count:
    """Opcodes that were executed in modules of the store, and the most objects that were alive meanwhile."""

    def __init__(self) -> None:
        self.opcodes = self.objects_max = 0
        self._before = 0

    def of(self, work: Callable[[], Any]) -> Any:
        gc.collect()
        gc.disable()
        before = sys.gettrace()
        self._before = sys.getallocatedblocks()
        sys.settrace(self._called)
        try:
            return work()
        finally:
            sys.settrace(before)
            gc.enable()

    def _called(self, frame: Any, event: str, argument: Any) -> Any:
        if not any(name in frame.f_code.co_filename for name in OURS):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._step

    def _step(self, frame: Any, event: str, argument: Any) -> Any:
        self.opcodes += 1
        self.objects_max = max(self.objects_max, sys.getallocatedblocks() - self._before)
        return self._step


def loaded(key_type: str, entries: int) -> HarnessReplica:
    """A store with rows in memory, in random order, a fourth of each entry written over later."""
    columns = [{"name": "key", "type": key_type}, {"name": "n", "type": "int64"}, {"name": "text", "type": "string"}]
    schema = schema_from_plain({"columns": columns, "key": ["key"]})
    config = ColumnarConfig(row_group_rows=GROUP_ROWS, merge_step_rows=1 << 20, level0_blocks_min=2, cache_bytes=0)
    harness = StoreHarness(ColumnarStore, lambda: config)
    replica, rng = harness.replica(schema), random.Random(entries)
    numbers = [*range(entries * ENTRY_ROWS * 3 // 4)]
    rng.shuffle(numbers)
    for entry in range(entries):
        chosen = [numbers[(entry * ENTRY_ROWS + place) % len(numbers)] for place in range(ENTRY_ROWS)]
        rows = [(f"key {n:09}" if key_type == "string" else n, n, f"text of {n}") for n in chosen]
        replica.write(Op(OpKind.UPSERT, rows))
        if entry % (entries // 4) == entries // 4 - 1 and entry < entries - 1:
            replica.flush()
    return replica


@pytest.mark.parametrize("work", ["flush", "compact"])
@pytest.mark.parametrize("key_type", ["int64", pytest.param("string", marks=pytest.mark.long)])
def test_no_row_is_visited_in_python_and_no_call_turns_many_into_python(work: str, key_type: str) -> None:
    replica = loaded(key_type, ENTRIES)
    rows = ENTRIES * ENTRY_ROWS // 4
    if work == "compact":
        replica.flush()
        rows = ENTRIES * ENTRY_ROWS
    count = Count()
    edit = count.of(getattr(replica.store, work))
    assert edit is not None and rows >= GROUP_ROWS
    assert count.opcodes < rows, "a statement for each row takes several"
    assert count.objects_max < ROWS_HELD_MAX + FEW_OBJECTS


def test_the_count_sees_a_call_that_turns_more_rows_into_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bloom, "_TURN_KEYS", GROUP_ROWS)
    replica = loaded("string", ENTRIES)
    count = Count()
    count.of(replica.store.flush)
    assert count.objects_max >= GROUP_ROWS


def test_the_count_sees_a_statement_that_visits_rows() -> None:
    replica = loaded("int64", 4)
    count = Count()
    count.of(replica.rows)
    assert count.opcodes > len(replica.rows())
