"""Sessions that nobody closes: what they hold is sent where that is possible, and told where it is not."""

from __future__ import annotations

import asyncio
import gc
import os
import warnings
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stelae.client import SessionOptions, UnwrittenRows
from stelae.client.session import AsyncSession, SessionClosed
from tests.unit.client.tablets import MemoryTable, one_column

NEVER_S = 1e6
ROWS = [{"id": n, "value": n} for n in range(5)]


def warned(work: Callable[[MemoryTable], Awaitable[Any]]) -> list[str]:
    """Carry out ``work`` on a loop of its own, drop what it leaves, and return the warnings."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        asyncio.run(_on_table(work))
        gc.collect()
    assert all(one.category is UnwrittenRows and one.filename == __file__ for one in found), [*map(str, found)]
    return [str(one.message) for one in found]


async def _on_table(work: Callable[[MemoryTable], Awaitable[Any]]) -> None:
    await work(MemoryTable(one_column("value", "int64")))


def opened(memory: MemoryTable, **options: Any) -> AsyncSession:
    return memory.table.session(SessionOptions(**{"flush_interval_s": NEVER_S, **options}))


@pytest.mark.parametrize("auto_flush", [True, False])
def test_rows_of_a_session_that_is_dropped_are_told_with_the_place_where_it_was_opened(auto_flush: bool) -> None:
    async def work(memory: MemoryTable) -> None:
        await opened(memory, auto_flush=auto_flush).insert(ROWS)

    (text,) = warned(work)
    assert text.startswith("a session on table 'readings' was left open; rows that were handed in and are not written")
    assert ", or not known to be: 5; open it as 'with table.session() as session:', or call close()" in text


def test_a_batch_that_nobody_waited_for_is_told() -> None:
    async def work(memory: MemoryTable) -> None:
        memory.tablets[0].held = True
        session = opened(memory, flush_rows=2)
        await session.insert(ROWS)
        await asyncio.sleep(0)

    (text,) = warned(work)
    assert "rows that were handed in and are not written, or not known to be: 5" in text


def test_failures_that_nobody_asked_for_are_told() -> None:
    async def work(memory: MemoryTable) -> None:
        session = opened(memory, flush_rows=1)
        await session.insert([ROWS[0], ROWS[0], {"id": "x"}])
        await session.flush()

    (text,) = warned(work)
    assert "rows that were refused: 2, the first is row 1: ALREADY_PRESENT: a row with this key exists" in text


async def _closed(memory: MemoryTable) -> None:
    async with opened(memory) as session:
        await session.insert(ROWS)


async def _flushed(memory: MemoryTable) -> None:
    session = opened(memory)
    await session.insert(ROWS)
    await session.flush()


async def _looked_at(memory: MemoryTable) -> None:
    session = opened(memory)
    await session.insert([ROWS[0], ROWS[0]])
    await session.flush()
    assert len(session.failures) == 1


async def _taken(memory: MemoryTable) -> None:
    session = opened(memory)
    await session.insert([ROWS[0], ROWS[0]])
    await session.flush()
    session.take_failures()


async def _left_by_an_error(memory: MemoryTable) -> None:
    with pytest.raises(ZeroDivisionError):
        async with opened(memory) as session:
            await session.insert(ROWS)
            raise ZeroDivisionError


async def _raised(memory: MemoryTable) -> None:
    session = opened(memory)
    memory.tablets[0].store = None  # type: ignore[assignment]
    session._writer = None  # type: ignore[assignment]
    await session.insert(ROWS)
    with pytest.raises(AttributeError):
        await session.flush()


async def _empty(memory: MemoryTable) -> None:
    opened(memory)


@pytest.mark.parametrize("work", [_closed, _flushed, _looked_at, _taken, _left_by_an_error, _raised, _empty])
def test_who_was_told_is_not_told_again(work: Callable[[MemoryTable], Awaitable[Any]]) -> None:
    assert warned(work) == []


def test_a_session_that_its_client_ends_sends_what_it_would_send_by_itself() -> None:
    async def work(memory: MemoryTable) -> None:
        session = opened(memory)
        await session.insert(ROWS)
        await session.finish(60)
        assert len(await memory.table.scan().to_pylist()) == 5
        with pytest.raises(SessionClosed):
            await session.insert(ROWS)

    assert warned(work) == []


def test_a_session_that_its_client_ends_tells_what_it_was_not_to_send_or_could_not() -> None:
    async def by_hand(memory: MemoryTable) -> None:
        session = opened(memory, auto_flush=False)
        await session.insert(ROWS)
        await session.finish(60)
        await session.finish(60)
        assert await memory.table.scan().to_pylist() == []

    async def too_late(memory: MemoryTable) -> None:
        memory.tablets[0].held = True
        session = opened(memory)
        await session.insert(ROWS)
        await session.finish(0.001)

    for work in (by_hand, too_late):
        (text,) = warned(work)
        assert "are not written, or not known to be: 5" in text


def test_a_fork_owes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(memory: MemoryTable) -> None:
        await opened(memory).insert(ROWS)
        monkeypatch.setattr(os, "getpid", lambda: -1)

    assert warned(work) == []
