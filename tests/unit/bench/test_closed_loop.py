"""The closed loop of calls: a fixed number in flight, each with its latency; the first problem ends it."""

from __future__ import annotations

import asyncio

from stelae.spi.errors import Unavailable
from stelae_bench.closed_loop import LoopSample, run_calls


class Calls:
    """Calls that take some turns of the loop; number ``bad`` goes wrong."""

    def __init__(self, bad: int = -1, error: Exception | None = None) -> None:
        self.begun = self.open = self.open_max = 0
        self._bad, self._error = bad, error

    async def __call__(self) -> str:
        number, self.begun = self.begun, self.begun + 1
        self.open += 1
        self.open_max = max(self.open_max, self.open)
        for _ in range(3):
            await asyncio.sleep(0)
        self.open -= 1
        if number == self._bad:
            if self._error is not None:
                raise self._error
            return "the answer was wrong"
        return ""


def run(calls: Calls, in_flight: int) -> LoopSample:
    return asyncio.run(asyncio.wait_for(run_calls(calls, in_flight, 0.03), 20))


def test_as_many_as_asked_for_are_in_flight_and_all_are_answered_at_the_end() -> None:
    calls = Calls()
    sample = run(calls, 5)
    assert (calls.open_max, calls.open) == (5, 0)
    assert len(sample.latencies_ms) == calls.begun > 5
    assert sample.problems == []


def test_time_goes_from_the_first_call_to_the_last_answer() -> None:
    sample = run(Calls(), 1)
    assert sample.ended - sample.began >= sum(sample.latencies_ms) / 1000 > 0


def test_a_wrong_answer_ends_the_run_and_counts_no_latency() -> None:
    calls = Calls(bad=7)
    sample = run(calls, 3)
    assert sample.problems == ["the answer was wrong"]
    assert len(sample.latencies_ms) == calls.begun - 1 < 12


def test_a_call_that_fails_is_a_problem_with_its_reason() -> None:
    sample = run(Calls(bad=0, error=Unavailable("no leader")), 1)
    assert (sample.problems, sample.latencies_ms) == (["a call failed: no leader"], [])
