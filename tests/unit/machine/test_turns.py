"""The end of a turn: cores step, then links flush, then other threads are woken."""

from __future__ import annotations

import asyncio

from stelae.machine.loop_turns import LoopTurns
from stelae.machine.system_clock import SystemClock


def in_one_turn(*stages: str) -> list[str]:
    """The order in which calls run that were deferred to these stages, first to last."""
    order: list[str] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        turns = LoopTurns(loop, SystemClock(), lambda error: None)
        for number, stage in enumerate(stages):
            getattr(turns, stage)(lambda name=f"{stage} {number}": order.append(name))
        turns.defer(lambda: turns.defer_last(lambda: order.append("a flush of that turn")))
        await asyncio.sleep(0)

    asyncio.run(run())
    return order


def test_stages_run_in_their_order_and_calls_in_the_order_in_which_they_came() -> None:
    assert in_one_turn("defer_after", "defer_last", "defer", "defer_last", "defer") == [
        "defer 2",
        "defer 4",
        "defer_last 1",
        "defer_last 3",
        "a flush of that turn",
        "defer_after 0",
    ]


def test_a_call_that_raises_is_reported_and_the_others_still_run() -> None:
    reported: list[BaseException] = []
    ran: list[str] = []

    async def run() -> None:
        turns = LoopTurns(asyncio.get_running_loop(), SystemClock(), reported.append)
        turns.defer(lambda: [].pop())
        turns.defer_after(lambda: ran.append("still"))
        await asyncio.sleep(0)

    asyncio.run(run())
    assert [type(error) for error in reported] == [IndexError]
    assert ran == ["still"]
