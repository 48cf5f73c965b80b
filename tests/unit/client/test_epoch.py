"""Epochs of a source: what a program writes is written once, however often the program starts again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from stelae.client import EpochComplete, LaterEpoch, RowsFailed, SessionOptions
from stelae.client.epoch import AsyncEpoch
from stelae.client.locations import TableLocation
from stelae.client.table import AsyncTable
from stelae.spi.errors import BadIdentifier, CallerError, DeadlineExceeded, SchemaMismatch, Unavailable
from stelae.spi.ids import SourceId
from stelae.spi.write import EPOCH_LAST
from tests.unit.client.tablets import MemoryTable, MemoryTablet, failures, one_column

HASHED = {"hash": [{"columns": ["id"], "buckets": 3}]}
ROWS = [{"id": n, "value": n * 1.5} for n in range(20)]
MANY = pa.table({"id": range(500), "value": [n / 7 for n in range(500)]})


def over_three_tablets(work: Callable[[MemoryTable], Awaitable[Any]]) -> None:
    asyncio.run(_made(work))


async def _made(work: Callable[[MemoryTable], Awaitable[Any]]) -> None:
    await work(MemoryTable(one_column("value", "double"), HASHED, "loads"))


def epoch_of(memory: MemoryTable, number: int) -> AsyncEpoch:
    return memory.table.epoch("nightly load", number)


def known(memory: MemoryTable) -> list[int | None]:
    """Return what each tablet knows of the source."""
    return [tablet._results.sources.epoch_of(SourceId("nightly load")) for tablet in memory.tablets]


async def rows_of(memory: MemoryTable) -> list[dict[str, Any]]:
    return sorted(map(dict, await memory.table.scan().to_pylist()), key=lambda row: row["id"])


def test_an_epoch_is_complete_behind_its_block_and_is_not_written_again() -> None:
    async def work(memory: MemoryTable) -> None:
        async with epoch_of(memory, 1) as epoch:
            assert not epoch.is_complete
            await epoch.insert(ROWS)
        await memory.table.update({"id": 3, "value": 0.0})
        async with epoch_of(memory, 1) as again:
            assert again.is_complete
            with pytest.raises(EpochComplete, match="epoch 1 of source 'nightly load' is complete"):
                await again.upsert(ROWS)
            with pytest.raises(EpochComplete):
                again.session()
        assert (await rows_of(memory))[3] == {"id": 3, "value": 0.0}

    over_three_tablets(work)


def test_an_epoch_that_could_not_be_completed_is_refused_before_anything_is_written() -> None:
    async def work(memory: MemoryTable) -> None:
        with pytest.raises(CallerError, match="at most 2\\*\\*62 - 2"):
            epoch_of(memory, (1 << 62) - 1)
        async with epoch_of(memory, (1 << 62) - 2) as epoch:
            await epoch.insert(ROWS)
        assert len(await rows_of(memory)) == len(ROWS)
        assert not await epoch_of(memory, (1 << 62) - 2).begin()

    over_three_tablets(work)


def test_a_source_that_ends_is_refused_and_its_tablets_know_that_no_epoch_follows() -> None:
    async def work(memory: MemoryTable) -> None:
        epoch = epoch_of(memory, 1)
        await epoch.insert(ROWS)
        await epoch.complete(ends=True)
        for number in (1, 2, (1 << 62) - 2):
            with pytest.raises(LaterEpoch, match="or the source ended"):
                await epoch_of(memory, number).begin()
        assert {*known(memory)} == {EPOCH_LAST}

    over_three_tablets(work)


def test_an_epoch_whose_block_fails_is_not_complete() -> None:
    async def work(memory: MemoryTable) -> None:
        with pytest.raises(RuntimeError, match="killed"):
            async with epoch_of(memory, 1) as epoch:
                await epoch.insert(ROWS[:7])
                raise RuntimeError("killed")
        assert await epoch_of(memory, 1).begin()

    over_three_tablets(work)


@pytest.mark.parametrize("rows", [ROWS, ROWS[:1], MANY], ids=["some", "one", "arrow"])
def test_rows_that_are_inserted_again_count_as_written(rows: Any) -> None:
    async def work(memory: MemoryTable) -> None:
        first, second = epoch_of(memory, 1), epoch_of(memory, 1)
        await first.insert(rows[:7] if isinstance(rows, list) else rows.slice(3, 200))
        result = await second.insert(rows)
        assert (result.failed, result.written) == (0, len(rows))
        assert len(await rows_of(memory)) == len(rows)

    over_three_tablets(work)


def test_a_row_that_was_there_with_other_values_is_a_failure() -> None:
    async def work(memory: MemoryTable) -> None:
        await memory.table.insert([{"id": 3, "value": -1.0}, {"id": 4, "value": None}, {"id": 5, "value": 7.5}])
        with pytest.raises(RowsFailed) as error:
            await epoch_of(memory, 1).insert(ROWS)
        assert failures(error) == [(3, "ALREADY_PRESENT"), (4, "ALREADY_PRESENT")]
        assert error.value.failures[0].values == {"id": 3, "value": 4.5}
        with pytest.raises(RowsFailed) as error:
            await epoch_of(memory, 1).insert(MANY)
        assert 20 > error.value.result.failed > 2
        assert error.value.result.counts == {"ALREADY_PRESENT": error.value.result.failed}

    over_three_tablets(work)


def test_a_repeated_insert_whose_row_cannot_be_read_has_the_code_of_the_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was ALREADY_PRESENT, though it is the own row, as a read at another time shows."""

    async def work(memory: MemoryTable) -> None:
        async def down(*_: Any) -> Any:
            raise Unavailable("no replica answered in time")

        await epoch_of(memory, 1).insert(ROWS[:2])
        with monkeypatch.context() as patched:
            patched.setattr(AsyncTable, "_find_rows", down)
            result = await epoch_of(memory, 1).insert(ROWS, errors="return")
        assert [(failure.row, failure.code) for failure in result.failures] == [(0, "UNAVAILABLE"), (1, "UNAVAILABLE")]
        assert result.failures[0].reason.startswith("a row with this key exists, and it could not be compared: no rep")
        assert (await epoch_of(memory, 1).insert(ROWS)).failed == 0

    over_three_tablets(work)


def test_nan_is_equal_to_itself() -> None:
    async def work(memory: MemoryTable) -> None:
        row = {"id": 1, "value": float("nan")}
        await epoch_of(memory, 1).insert(row)
        assert (await epoch_of(memory, 1).insert(row)).failed == 0

    over_three_tablets(work)


def test_columns_that_are_not_given_are_not_compared() -> None:
    async def work(memory: MemoryTable) -> None:
        await epoch_of(memory, 1).insert({"id": 1})
        await memory.table.update({"id": 1, "value": 5.0})
        assert (await epoch_of(memory, 1).insert({"id": 1})).failed == 0

    over_three_tablets(work)


def test_a_table_without_a_source_still_refuses_a_row_that_exists() -> None:
    async def work(memory: MemoryTable) -> None:
        await memory.table.insert(ROWS)
        with pytest.raises(RowsFailed):
            await memory.table.insert(ROWS[0])

    over_three_tablets(work)


def test_a_delete_that_is_repeated_counts_as_done_and_an_update_of_no_row_does_not() -> None:
    async def work(memory: MemoryTable) -> None:
        await memory.table.insert(ROWS)
        for _ in range(2):
            assert (await epoch_of(memory, 1).delete([{"id": n} for n in range(5)])).failed == 0
        with pytest.raises(RowsFailed):
            await epoch_of(memory, 1).update({"id": 2, "value": 1.0})

    over_three_tablets(work)


def test_a_writer_of_an_earlier_epoch_changes_nothing_any_more() -> None:
    async def work(memory: MemoryTable) -> None:
        zombie = epoch_of(memory, 1)
        await zombie.begin()
        assert await epoch_of(memory, 2).begin()
        with pytest.raises(RowsFailed) as error:
            await zombie.upsert(ROWS)
        assert {code for _, code in failures(error)} == {"STALE_EPOCH"}
        assert await rows_of(memory) == []

    over_three_tablets(work)


def test_an_epoch_that_was_completed_on_some_tablets_alone_is_complete() -> None:
    """The program died while it completed the epoch: all rows were written by then."""

    async def work(memory: MemoryTable) -> None:
        epoch = epoch_of(memory, 1)
        await epoch.insert(ROWS)
        memory.tablets[1].error = DeadlineExceeded("no answer")
        with pytest.raises(Unavailable, match=r"tablet loads-1 does not know epoch 1 of source 'nightly load' yet"):
            await epoch.complete()
        memory.tablets[1].error = None
        again = epoch_of(memory, 1)
        assert not await again.begin() and again.is_complete
        await again.complete()
        with pytest.raises(RowsFailed):
            await epoch.upsert(ROWS)

    over_three_tablets(work)


def test_an_epoch_below_one_that_has_begun_is_refused_whether_or_not_it_was_complete() -> None:
    """A run that had failed was repeated after the next one had begun. It counted as complete, without an error."""

    async def work(memory: MemoryTable) -> None:
        with pytest.raises(RuntimeError):
            async with epoch_of(memory, 1) as failed:
                await failed.insert(ROWS[:3])
                raise RuntimeError
        assert await epoch_of(memory, 2).begin()
        for complete in (False, True):
            if complete:
                await epoch_of(memory, 2).complete()
            with pytest.raises(
                LaterEpoch, match="epoch 1 of source 'nightly load' is not written: a later one has begun"
            ):
                async with epoch_of(memory, 1) as again:
                    await again.insert(ROWS)
        assert not await epoch_of(memory, 2).begin()
        assert len(await rows_of(memory)) == 3

    over_three_tablets(work)


def test_a_refused_epoch_leaves_no_trace_on_tablets_that_do_not_know_the_later_one() -> None:
    async def work(memory: MemoryTable) -> None:
        await epoch_of(memory, 1).begin()
        for tablet in memory.tablets[1:]:
            tablet.error = DeadlineExceeded("no answer")
        with pytest.raises(Unavailable):
            await epoch_of(memory, 2).begin()  # The program dies while it begins.
        for tablet in memory.tablets:
            tablet.error = None
        before = known(memory)
        with pytest.raises(LaterEpoch):
            await epoch_of(memory, 1).begin()
        assert known(memory) == before and len({*before}) == 2

    over_three_tablets(work)


@pytest.mark.parametrize("change", ["begin", "complete"])
def test_an_epoch_reaches_every_tablet_of_a_table_that_was_altered_meanwhile(change: str) -> None:
    """Tablets refused the operation for its schema, and the epoch counted as begun, or as complete."""

    async def work(memory: MemoryTable) -> None:
        epoch, newer = epoch_of(memory, 1), msgspec.structs.replace(memory.table.schema, version=2)
        if change == "complete":
            await epoch.insert(ROWS)
        location = msgspec.structs.replace(memory.table._location, schema=newer)
        altered = [MemoryTablet(tablet.tablet_id, newer, memory.clock) for tablet in memory.tablets]

        async def reopen(before: TableLocation, timeout_s: float) -> Any:
            return location, altered

        for tablet in memory.tablets:
            tablet.refusal = SchemaMismatch("the tablet has version 2")
        with pytest.raises(Unavailable, match="SCHEMA_MISMATCH: the tablet has version 2"):
            await (epoch.begin() if change == "begin" else epoch.complete())
        memory.table._reopen = reopen
        await (epoch.begin() if change == "begin" else epoch.complete())
        assert [len(tablet.operations) for tablet in altered] == [1, 1, 1]

    over_three_tablets(work)


def test_processes_that_share_an_epoch_complete_the_tablets_to_which_they_wrote() -> None:
    async def work(memory: MemoryTable) -> None:
        tasks = [epoch_of(memory, 1) for _ in range(3)]
        await tasks[0].insert(ROWS[0])
        await tasks[1].insert(ROWS[1])
        written = {*tasks[0].tablets, *tasks[1].tablets}
        assert tasks[2].tablets == [] and 1 <= len(written) <= 2
        before = [len(tablet.operations) for tablet in memory.tablets]
        await tasks[2].complete(written)
        asked = [len(tablet.operations) - count for tablet, count in zip(memory.tablets, before, strict=True)]
        assert sum(asked) == len(written)
        assert not await epoch_of(memory, 1).begin()

    over_three_tablets(work)


def test_sessions_of_an_epoch_are_closed_before_it_is_complete() -> None:
    async def work(memory: MemoryTable) -> None:
        async with epoch_of(memory, 1) as epoch:
            session = epoch.session(SessionOptions(flush_interval_s=1e6))
            await session.insert(ROWS)
        assert session.closed and await rows_of(memory) == ROWS
        async with epoch_of(memory, 2) as epoch, epoch.session() as session:
            await session.upsert(ROWS)
        assert not await epoch_of(memory, 2).begin()

    over_three_tablets(work)


def test_a_row_of_a_session_that_fails_keeps_the_epoch_open() -> None:
    async def work(memory: MemoryTable) -> None:
        await memory.table.insert({"id": 1, "value": -1.0})
        with pytest.raises(RowsFailed):
            async with epoch_of(memory, 1) as epoch:
                session = epoch.session()
                await session.insert(ROWS)
        assert await epoch_of(memory, 1).begin()

    over_three_tablets(work)


def test_a_read_of_own_writes_sees_those_of_an_epoch() -> None:
    async def work(memory: MemoryTable) -> None:
        result = await epoch_of(memory, 1).insert(ROWS)
        assert memory.table.now() >= result.timestamp

    over_three_tablets(work)


@pytest.mark.parametrize(("source", "number", "problem"), [("", 1, BadIdentifier), ("a", -1, CallerError)])
def test_a_bad_source_or_epoch_is_refused_at_once(source: str, number: int, problem: type[Exception]) -> None:
    async def work(memory: MemoryTable) -> None:
        with pytest.raises(problem):
            memory.table.epoch(source, number)

    over_three_tablets(work)
