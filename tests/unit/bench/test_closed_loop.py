"""The closed loop: so many in flight, each answer sends the next, whatever goes wrong ends it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from stelae.spi.errors import DeadlineExceeded
from stelae.spi.write import OpKind, OpResult, RowCode, RowError
from stelae_bench.closed_loop import ClosedLoop, Sample
from stelae_bench.rows import RowSource

FINE = OpResult(1)
Row = tuple[Any, ...]


class Tablet:
    """Answers each write some turns of the loop later; keeps what it was sent."""

    def __init__(self, answer: Callable[[int], OpResult | Exception]) -> None:
        self._answer = answer
        self._open: deque[tuple[int, asyncio.Future[OpResult]]] = deque()
        self.sent: list[tuple[OpKind, list[Row]]] = []
        self.in_flight_max = 0

    def write(self, kind: OpKind, rows: list[Row], *, timeout_s: float) -> asyncio.Future[OpResult]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[OpResult] = loop.create_future()
        self._open.append((len(self.sent), future))
        self.sent.append((kind, rows))
        self.in_flight_max = max(self.in_flight_max, len(self._open))
        loop.call_later(0.0005, self._settle)
        return future

    def _settle(self) -> None:
        number, future = self._open.popleft()
        answer = self._answer(number)
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)


def run(
    in_flight: int, answer: Callable[[int], OpResult | Exception] = lambda _: FINE
) -> tuple[Tablet, RowSource, Sample]:
    async def go() -> tuple[Tablet, RowSource, Sample]:
        tablet, rows = Tablet(answer), RowSource(0, seed=1)
        sample = await ClosedLoop(tablet, rows).run(in_flight, 0.05)  # type: ignore[arg-type]
        return tablet, rows, sample

    return asyncio.run(asyncio.wait_for(go(), 20))


@pytest.mark.parametrize("in_flight", [1, 7])
def test_as_many_as_asked_for_are_in_flight_and_all_are_answered_in_the_end(in_flight: int) -> None:
    tablet, rows, sample = run(in_flight)
    assert tablet.in_flight_max == in_flight
    assert len(sample.latencies_ms) == len(tablet.sent) == rows.count > in_flight
    assert sample.problems == []


def test_each_write_is_one_new_row_in_a_call_of_its_own() -> None:
    tablet, _, _ = run(4)
    assert {(kind, len(given)) for kind, given in tablet.sent} == {(OpKind.INSERT, 1)}
    assert [given[0][0] for _, given in tablet.sent] == list(range(len(tablet.sent)))


def test_time_goes_from_the_first_write_to_the_last_answer() -> None:
    _, _, sample = run(1)
    assert sample.ended - sample.began >= sum(sample.latencies_ms) / 1000 > 0


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (DeadlineExceeded("no leader"), "a write failed: no leader"),
        (OpResult(0, (), "TOO_LARGE", "by far"), "a write was refused: TOO_LARGE: by far"),
        (OpResult(1, (RowError(0, RowCode.ALREADY_PRESENT),)), "a row was not taken: ALREADY_"),
    ],
)
def test_the_first_problem_ends_the_round_and_is_told(answer: OpResult | Exception, words: str) -> None:
    tablet, _, sample = run(4, lambda number: answer if number == 10 else FINE)
    assert len(tablet.sent) < 30
    assert len(sample.latencies_ms) == len(tablet.sent) - 1
    (problem,) = sample.problems
    assert problem.startswith(words)
