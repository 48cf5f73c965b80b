"""Sessions: what is held, when it leaves, in which order, and the outcome of rows that are not accepted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pandas as pd
import pytest

from stelae.client import RowsFailed, SessionOptions
from stelae.client.failures import FAILURES_MAX
from stelae.client.session import AsyncSession, BufferFull, SessionClosed
from stelae.spi.errors import CallerError, DeadlineExceeded, SchemaMismatch
from tests.unit.client.tablets import MemoryTable, one_column

NEVER_S = 1e6
"""A flush interval that no test lives to see."""


def in_session(work: Callable[[MemoryTable, AsyncSession], Awaitable[Any]], **options: Any) -> None:
    """Carry out ``work`` in a session of its own, which ``work`` closes if it wants to."""

    async def carried_out() -> None:
        memory = MemoryTable(one_column("value", "int64"))
        session = memory.table.session(SessionOptions(**{"flush_interval_s": NEVER_S, **options}))
        await work(memory, session)
        await session.abandon()

    asyncio.run(carried_out())


async def turns(count: int = 50) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_rows_leave_when_enough_have_come_and_at_the_end() -> None:
    async def work(memory: MemoryTable, session: AsyncSession) -> None:
        for n in range(9):
            await session.insert((n, n))
        await turns()
        assert memory.held_rows() == [0]
        await session.insert((9, 9))
        await turns()
        assert memory.held_rows() == [10]
        await session.insert((10, 10))
        await turns()
        assert memory.held_rows() == [10]
        await session.flush()
        assert memory.held_rows() == [11]
        assert [await memory.table.get(n) for n in (0, 10)] == [{"id": 0, "value": 0}, {"id": 10, "value": 10}]

    in_session(work, flush_rows=10)


@pytest.mark.parametrize("kind", [dict, list])
def test_a_row_stays_as_it_was_handed_in_when_its_caller_fills_the_same_one_again(kind: type) -> None:
    """Five rows of a loop over one dict had become one, five times."""

    async def work(memory: MemoryTable, session: AsyncSession) -> None:
        row: Any = {} if kind is dict else [None, None]
        names: Any = ("id", "value") if kind is dict else (0, 1)
        for number in range(5):
            row[names[0]], row[names[1]] = number, number * 10
            await session.upsert(row if kind is dict else [row])
        await session.flush()
        assert [await memory.table.get(n) for n in range(5)] == [{"id": n, "value": 10 * n} for n in range(5)]

    in_session(work)


def test_large_rows_leave_by_their_size() -> None:
    async def work(memory: MemoryTable, session: AsyncSession) -> None:
        await session.insert({"id": 1, "value": "x" * 2000})
        await turns()
        assert len(session.failures) == 1  # It left, and was found to be text.

    in_session(work, flush_bytes=1000)


def test_rows_leave_after_a_while_without_company() -> None:
    async def work(memory: MemoryTable, session: AsyncSession) -> None:
        await session.insert((1, 1))
        async with asyncio.timeout(20):
            while memory.held_rows() != [1]:
                await asyncio.sleep(0)

    in_session(work, flush_interval_s=1e-6)


def test_by_hand_nothing_leaves_before_it_is_flushed_and_a_full_session_says_so() -> None:
    async def work(memory: MemoryTable, session: AsyncSession) -> None:
        with pytest.raises(BufferFull, match="buffer is full with 3 rows; flush the session"):
            await session.insert([(n, n) for n in range(10)])
        await turns()
        assert memory.tablets[0].operations == []
        await session.flush()
        assert memory.held_rows() == [3]

    in_session(work, auto_flush=False, buffer_rows_max=3, flush_rows=1)


def test_a_full_session_waits_until_a_batch_has_been_answered() -> None:
    async def work(memory: MemoryTable, session: AsyncSession) -> None:
        (tablet,) = memory.tablets
        tablet.held = True
        writing = asyncio.create_task(session.insert([(n, n) for n in range(9)]))
        await turns()
        assert not writing.done() and tablet.waiting == 1
        tablet.held = False
        tablet.release()
        await writing
        await session.flush()
        assert memory.held_rows() == [9]

    in_session(work, buffer_rows_max=4, flush_rows=2)


def test_one_batch_is_under_way_at_a_time_and_kinds_take_effect_in_order() -> None:
    async def work(memory: MemoryTable, session: AsyncSession) -> None:
        (tablet,) = memory.tablets
        tablet.held = True
        await session.insert((1, 1))
        await session.update({"id": 1, "value": 2})
        await session.delete((1,))
        await session.insert((1, 3))
        await session.upsert((1, 4))
        await session.update_ignore((9, 9))
        await session.delete_ignore((9,))
        await session.insert_ignore((1, 5))
        flushing = asyncio.create_task(session.flush())
        await turns()
        assert tablet.waiting == 4
        while not flushing.done():
            tablet.release()
            await turns(5)
        assert not session.failures
        assert await memory.table.get(1) == {"id": 1, "value": 4}

    in_session(work, auto_flush=False, flush_rows=4)


def test_failures_are_listed_with_their_rows_and_numbers_and_raised_at_the_end() -> None:
    async def work(memory: MemoryTable, session: AsyncSession) -> None:
        for n in (1, 2, 1, 3):
            await session.insert((n, n))
        await session.update({"id": "x", "value": 1})
        await session.delete((7,))
        with pytest.raises(RowsFailed, match="3 of 6 rows were not written") as caught:
            await session.close()
        found = [(f.row, f.kind, f.code, f.values) for f in caught.value.failures]
        assert found == [
            (2, "insert", "ALREADY_PRESENT", {"id": 1, "value": 1}),
            (4, "update", "BAD_VALUE", {"id": "x", "value": 1}),
            (5, "delete", "NOT_FOUND", {"id": 7}),
        ]
        assert memory.held_rows() == [3]

    in_session(work)


def test_failures_that_were_taken_away_are_not_raised() -> None:
    async def work(memory: MemoryTable, session: AsyncSession) -> None:
        await session.insert([(1, 1), (1, 1)])
        await session.flush()
        result = session.take_failures()
        assert (result.rows, result.failed, result.timestamp > 0) == (2, 1, True)
        await session.insert([(2, 2), (3, 3), (3, 3)])
        assert session.take_failures().rows == 0, "nothing was answered since"
        await session.flush()
        again = session.take_failures()
        assert (again.rows, again.written, again.failed) == (3, 2, 1), "what was told before is not told again"
        await session.close()

    in_session(work)


def test_failures_are_kept_up_to_a_limit_and_counted_beyond() -> None:
    async def work(memory: MemoryTable, session: AsyncSession) -> None:
        await session.insert([("x", n) for n in range(FAILURES_MAX + 500)])
        await session.flush()
        assert len(session.failures) == FAILURES_MAX
        assert session.take_failures().failed == FAILURES_MAX + 500

    in_session(work, flush_rows=400)


def test_rows_that_nobody_answers_in_time_are_failures_too() -> None:
    async def work(memory: MemoryTable, session: AsyncSession) -> None:
        memory.tablets[0].error = DeadlineExceeded("no leader accepted the write in time")
        await session.insert([(1, 1), (2, 2)])
        await session.flush()
        assert [f.code for f in session.failures] == ["UNKNOWN_OUTCOME"] * 2

    in_session(work)


def test_leaving_after_an_error_sends_nothing_more_and_hides_nothing() -> None:
    async def work() -> None:
        memory = MemoryTable(one_column("value", "int64"))
        with pytest.raises(KeyError):
            async with memory.table.session(SessionOptions(auto_flush=False)) as session:
                await session.insert((1, 1))
                raise KeyError("mine")
        assert memory.held_rows() == [0]
        async with memory.table.session() as session:
            await session.insert((2, 2))
        assert memory.held_rows() == [1]
        with pytest.raises(SessionClosed):
            await session.insert((3, 3))

    asyncio.run(work())


@pytest.mark.parametrize("frame", [pd.DataFrame({"id": [1]}), "text", 5])
def test_frames_and_things_that_are_no_rows_are_refused(frame: Any) -> None:
    async def work(memory: MemoryTable, session: AsyncSession) -> None:
        with pytest.raises(SchemaMismatch, match="a session takes rows"):
            await session.insert(frame)

    in_session(work)


def test_limits_must_be_above_zero() -> None:
    with pytest.raises(CallerError, match="flush_rows must be a whole number from 1, not int 0"):
        SessionOptions(flush_rows=0)
