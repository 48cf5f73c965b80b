"""Calls for many items: bounded, in order, and none left behind after an error."""

from __future__ import annotations

import asyncio

import pytest

from stelae.client.bounded_calls import each


class Calls:
    """Counts the calls that run."""

    def __init__(self, failing: int = -1) -> None:
        self.failing = failing
        self.running = self.most = self.made = self.cancelled = 0

    async def call(self, item: int) -> int:
        self.made += 1
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            for _ in range(10 - item % 10):
                await asyncio.sleep(0)
            if item == self.failing:
                raise ValueError(f"item {item}")
            return item * item
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1


@pytest.mark.parametrize("count", [0, 1, 3, 50])
def test_results_have_the_order_of_the_items_and_no_more_calls_run_than_allowed(count: int) -> None:
    calls = Calls()
    assert asyncio.run(each(range(count), calls.call, at_once=4)) == [n * n for n in range(count)]
    assert calls.most == min(4, count)


def test_an_error_ends_the_calls_that_run_and_no_other_is_made() -> None:
    async def run() -> None:
        calls = Calls(failing=9)
        with pytest.raises(ValueError, match="item 9"):
            await each(range(50), calls.call, at_once=4)
        assert (calls.running, calls.cancelled) == (0, 3)
        made = calls.made
        for _ in range(100):
            await asyncio.sleep(0)
        assert calls.made == made < 50

    asyncio.run(run())
