"""Of two rows with one key the later one wins, however large what lies between them is.

A request may be refused, and sent again when a later one is in the log already. So what must stay in order is one
request, or is not under way at the same time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
import pytest

from stelae.client import SessionOptions
from stelae.client.failures import FailureTally
from stelae.client.leader_tracker import LeaderTracker
from stelae.client.row_input import BATCH_BYTES
from stelae.client.tablet_writer import TabletWriter
from stelae.client.turns import ClientTurns
from stelae.client.writer_core import REQUEST_BYTES_MAX
from stelae.rows.operation_encoding import Operation, operation
from stelae.spi.ids import ClientId, NodeId, TabletId
from stelae.spi.write import OPS_MAX, OpKind, decode_request
from tests.unit.client.tablets import MemoryTable, one_column

LARGE = "x" * 60_000
"""A cell of nearly the size that is taken by default."""

ROWS = 2 * BATCH_BYTES // len(LARGE) + 20
"""So many rows with such a cell are three batches, the first and the last of which have a key in common."""


class Recording:
    """A messenger that answers nothing, and keeps what each request holds: the length of each operation."""

    def __init__(self) -> None:
        self.requests: list[list[int]] = []

    def call(self, to: NodeId, kind: str, frames: Sequence[Any], *, deadline_ms: int) -> asyncio.Future[Any]:
        request = decode_request(frames[0])
        self.requests.append([len(op) for run in request.sequences for op in run.ops])
        return asyncio.get_running_loop().create_future()


def requests_of(ops: Sequence[tuple[Operation, bool]]) -> list[list[int]]:
    """What travels of operations of one turn, each with whether it is tied to the one before."""

    async def run() -> list[list[int]]:
        caller = Recording()
        writer = TabletWriter(
            caller,
            LeaderTracker([NodeId("a")]),
            tablet_id=TabletId("t"),
            client_id=ClientId("c"),
            schema_version=1,
            rng=random.Random(1),
            defer=ClientTurns(asyncio.get_running_loop()).defer,
        )
        for op, follows in ops:
            writer.write(op, 1.0, follows=follows)
        await asyncio.sleep(0)
        return caller.requests

    return asyncio.run(run())


def half() -> Operation:
    """More than two of them are too large for one request."""
    return operation(OpKind.UPSERT, [(1, "x" * (REQUEST_BYTES_MAX // 2 - 100))])


def test_operations_of_a_turn_share_requests_as_far_as_they_fit() -> None:
    small = operation(OpKind.UPSERT, [(1, "x")])
    assert [len(one) for one in requests_of([(small, False)] * 5)] == [5]
    assert [len(one) for one in requests_of([(half(), False)] * 5)] == [2, 2, 1]
    assert [len(one) for one in requests_of([(small, False)] * (OPS_MAX + 1))] == [OPS_MAX, 1]
    assert requests_of([]) == []


def test_tied_operations_are_one_request_and_begin_another_where_they_do_not_fit() -> None:
    small = operation(OpKind.UPSERT, [(1, "x")])
    tied = [(half(), False), (half(), True), (half(), True)]
    assert [len(one) for one in requests_of(tied)] == [3]
    assert [len(one) for one in requests_of([(half(), False), *tied, (small, False)])] == [1, 3, 1]
    many = [(small, False)] * (OPS_MAX - 1) + [(small, False), (small, True)]
    assert [len(one) for one in requests_of(many)] == [OPS_MAX - 1, 2]


def rows() -> list[dict[str, Any]]:
    keys = [7, *range(100, 100 + ROWS - 2), 7]
    return [{"id": key, "value": f"{place:6}{LARGE}"} for place, key in enumerate(keys)]


@pytest.mark.parametrize("form", [list, pd.DataFrame, lambda given: iter(given)], ids=["dicts", "pandas", "iterator"])
def test_a_call_of_any_size_ends_with_the_later_of_two_rows(form: Callable[[Any], Any]) -> None:
    """Rows of many megabytes were one batch, of several requests; a small one of them overtook a large one."""

    async def work() -> None:
        memory = MemoryTable(one_column("value", "string"))
        (tablet,) = memory.tablets
        tablet.held = True
        writing = asyncio.create_task(memory.table.upsert(form(rows())))
        for _ in range(200):
            await asyncio.sleep(0)
        assert tablet.waiting == 2, "the third batch has a key of the first, and waits"
        assert all(len(op.rows) < 2 * BATCH_BYTES for op in tablet.operations)
        tablet.held = False
        tablet.release()
        assert (await writing).written == ROWS
        last = await memory.table.get(7)
        assert last is not None and last["value"].startswith(f"{ROWS - 1:6}")

    asyncio.run(work())


def test_what_a_batch_has_for_one_tablet_is_tied() -> None:
    async def work() -> None:
        memory = MemoryTable(one_column("value", "int64"), {"hash": [{"columns": ["id"], "buckets": 2}]})
        given = [{"id": n % 50, "value": n} if n % 2 else {"id": n % 50} for n in range(40)]
        assert (await memory.table.upsert(given)).written == 40
        for tablet in memory.tablets:
            assert len(tablet.follows) > 1 and tablet.follows == [False] + [True] * (len(tablet.follows) - 1)

    asyncio.run(work())


def test_a_session_that_flushes_more_than_a_request_waits_between() -> None:
    async def work() -> None:
        memory = MemoryTable(one_column("value", "string"))
        (tablet,) = memory.tablets
        tablet.held = True
        session = memory.table.session(SessionOptions(flush_rows=10_000, flush_bytes=1 << 30, flush_interval_s=60))
        count = 3 * REQUEST_BYTES_MAX // len(LARGE)
        for n in range(count):
            await session.upsert({"id": n % 3, "value": f"{n:6}{LARGE}"})
            await session.delete((1_000,))
        closing = asyncio.create_task(session.flush())
        sizes = []
        while not closing.done():
            for _ in range(50):
                await asyncio.sleep(0)
            sizes.append(sum(len(op.rows) for op in tablet.operations))
            tablet.operations.clear()
            assert tablet.follows in ([], [False] + [True] * (len(tablet.follows) - 1))
            tablet.follows.clear()
            tablet.release()
        assert len(sizes) > 3 and max(sizes) <= REQUEST_BYTES_MAX
        last = await memory.table.get((count - 1) % 3)
        assert last is not None and last["value"].startswith(f"{count - 1:6}")
        await session.abandon()

    asyncio.run(work())


@pytest.mark.parametrize("kind", ["rows", "frame"])
def test_a_batch_of_small_and_large_rows_is_divided_by_the_size_of_its_parts(kind: str) -> None:
    """Batches were divided by the size of a row on average. Large rows behind many small ones became one request of any
    size. From 65 MiB on no request could be sent, and the write waited for ever."""

    async def run() -> None:
        table = MemoryTable(one_column("value", "string")).table
        rows = [{"id": number, "value": LARGE if number >= 8000 else "x"} for number in range(8300)]
        tally = FailureTally("t", OpKind.INSERT)
        data = rows if kind == "rows" else pd.DataFrame(rows)
        sizes = [planned.size_bytes for planned in table._writer.planned(OpKind.INSERT, data, tally)]
        assert sum(sizes) > 300 * len(LARGE) and tally.rows == len(rows) and not tally.failed
        assert max(sizes) <= REQUEST_BYTES_MAX + (1 << 16)

    asyncio.run(run())
