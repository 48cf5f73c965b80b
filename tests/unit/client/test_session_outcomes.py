"""What becomes of each row of a session after an error: written, refused, or of unknown outcome, and counted once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stelae.client import RowsFailed, SessionOptions
from stelae.client.locations import NoSuchTable
from stelae.client.session import AsyncSession
from stelae.protocol.tablet_messages import NoSuchTablet
from tests.unit.client.tablets import MemoryTable, failures, one_column
from tests.unit.client.test_session import NEVER_S, turns

PARTITION = {"hash": [{"columns": ["id"], "buckets": 2}]}


def in_session(work: Callable[[MemoryTable, AsyncSession], Awaitable[Any]], **options: Any) -> None:
    """Carry out ``work`` in a session on a table of two tablets."""

    async def carried_out() -> None:
        memory = MemoryTable(one_column("value", "int64"), PARTITION)
        session = memory.table.session(SessionOptions(**{"flush_interval_s": NEVER_S, **options}))
        await work(memory, session)
        await session.abandon()

    asyncio.run(carried_out())


def drop(memory: MemoryTable, *numbers: int) -> None:
    """Let tablets be gone, and the masters say that the table was deleted."""

    async def refresh(_timeout_s: float) -> bool:
        raise NoSuchTable("readings", [])

    for number in numbers:
        memory.tablets[number].error = NoSuchTablet("no member has a replica")
    memory.table._writer.refresh = refresh


def test_rows_behind_a_batch_that_met_a_defect_are_sent_without_another_call() -> None:
    """They waited for the next flush, however long that was."""

    async def work(memory: MemoryTable, session: AsyncSession) -> None:
        broken, plan = [True], session._writer.planned

        def planned(*args: Any) -> Any:
            if broken:
                raise ZeroDivisionError(broken.pop())
            return plan(*args)

        session._writer.planned = planned  # type: ignore[method-assign]
        await session.insert([(n, n) for n in range(25)])
        await turns()
        assert sum(memory.held_rows()) == 15
        with pytest.raises(ZeroDivisionError) as error:
            await session.flush()
        assert error.value.__notes__ == ["it is not known whether rows 0 to 9 of the session are written"]
        result = session.take_failures()
        assert (result.rows, result.failed) == (15, 0) and sum(memory.held_rows()) == 15

    in_session(work, flush_rows=10)


@pytest.mark.parametrize("gone", [(0,), (1,), (0, 1)])
def test_rows_of_a_deleted_table_are_refused_and_the_others_count_as_written(gone: tuple[int, ...]) -> None:
    """The whole batch ended with the error of the lookup, also rows that another tablet had acknowledged."""

    async def work(memory: MemoryTable, session: AsyncSession) -> None:
        drop(memory, *gone)
        await session.insert([(n, n) for n in range(40)])
        await session.upsert([(n, n + 1) for n in range(40)])
        with pytest.raises(RowsFailed) as failed:
            await session.close()
        written = sum(memory.held_rows())
        assert written == 0 if len(gone) == 2 else 0 < written < 40
        assert (failed.value.result.rows, failed.value.result.written) == (80, 2 * written)
        assert {code for _, code in failures(failed)} == {"NO_SUCH_TABLET"}
        assert "could not be looked up again: no table 'readings'" in failed.value.failures[0].reason

    in_session(work)


def test_a_write_to_a_deleted_table_counts_the_rows_that_were_not_written() -> None:
    """They counted as written in the result of the error."""

    async def work(memory: MemoryTable, _session: AsyncSession) -> None:
        drop(memory, 0)
        with pytest.raises(NoSuchTable) as error:
            await memory.table.insert([(n, n) for n in range(40)])
        assert error.value.result.written == sum(memory.held_rows()) > 0  # type: ignore[attr-defined]

    in_session(work)
