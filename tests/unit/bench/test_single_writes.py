"""Single-row writes: what users call, one row in each call."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import MappingProxyType

import pytest

from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.errors import CallerError, DeadlineExceeded
from stelae.spi.write import OpKind
from stelae_bench.closed_loop import LoopSample
from stelae_bench.rows import COLUMNS, KEY, RowSource
from stelae_bench.single_writes import SingleWrites
from tests.unit.client.tablets import MemoryTable

SCHEMA = schema_from_plain({"columns": COLUMNS, "key": KEY})
NO_RETRIES: Mapping[str, int] = MappingProxyType({})


def run(
    in_flight: int,
    error: Exception | None = None,
    refusal: CallerError | None = None,
    retries: Mapping[str, int] = NO_RETRIES,
) -> tuple[MemoryTable, list[LoopSample]]:
    """Two rounds. Before the second one, the tablet begins to answer with ``error``, or to refuse rows, and operations
    are sent again."""

    async def go() -> tuple[MemoryTable, list[LoopSample]]:
        world = MemoryTable(SCHEMA)
        first = await SingleWrites(world.table, RowSource(0, seed=1)).run(in_flight, 0.05)
        world.tablets[0].error, world.tablets[0].refusal = error, refusal
        world.tablets[0].retries = {**retries}
        return world, [first, await SingleWrites(world.table, RowSource(1, seed=1)).run(in_flight, 0.05)]

    return asyncio.run(asyncio.wait_for(go(), 20))


@pytest.mark.parametrize("in_flight", [1, 7])
def test_each_write_upserts_one_new_row_in_a_call_of_its_own(in_flight: int) -> None:
    world, samples = run(in_flight)
    assert {one.kind for one in world.tablets[0].operations} == {OpKind.UPSERT}
    assert [sample.problems for sample in samples] == [[], []]
    answered = sum(len(sample.latencies_ms) for sample in samples)
    assert [answered] == [len(world.tablets[0].operations)] == world.held_rows()
    assert answered > 2


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (DeadlineExceeded("no leader"), "a row was refused: row 0: UNKNOWN_OUTCOME: no leader"),
        (CallerError("by far too large"), "a row was refused: row 0: BAD_REQUEST: by far too large"),
    ],
)
def test_a_write_that_fails_ends_the_round_and_is_reported(error: Exception, words: str) -> None:
    _, (_, sample) = run(4, error)
    assert sample.latencies_ms == []
    assert sample.problems[0] == words


def test_a_refused_row_ends_the_round_and_is_reported() -> None:
    _, (_, sample) = run(1, refusal=CallerError("by far too large"))
    (problem,) = sample.problems
    assert problem == "a row was refused: row 0: BAD_REQUEST: by far too large"


def test_what_was_sent_again_before_a_round_is_not_a_retry_of_that_round() -> None:
    """Retries of the warm-up were reported as those of the measurement."""
    _, samples = run(1, retries={"NOT_LEADER": 64})
    assert [sample.retries for sample in samples] == [{}, {}]
