"""Calls from a worker thread to the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from stelae.server.tserver import loop_calls
from stelae.server.tserver.loop_calls import LoopCalls
from stelae.spi.errors import Full, Unavailable


async def on_thread(work: Callable[[], Any]) -> Any:
    return await asyncio.to_thread(work)


def test_the_result_and_the_error_of_the_loop_arrive_on_the_thread() -> None:
    async def run() -> None:
        calls, loop = LoopCalls(), asyncio.get_running_loop()
        assert await on_thread(lambda: calls.call(lambda done: done(7))) == 7
        assert await on_thread(lambda: calls.call(lambda done: loop.call_soon(done, 8) and None)) == 8
        with pytest.raises(Full):
            await on_thread(lambda: calls.call(lambda done: done(Full("no space"))))
        with pytest.raises(ZeroDivisionError):
            await on_thread(lambda: calls.call(lambda done: done(1 // 0)))

    asyncio.run(run())


def test_a_wait_ends_when_the_node_stops_and_a_late_result_is_discarded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_calls, "_LOOK_S", 0.01)

    async def run() -> None:
        calls = LoopCalls()
        late: list[Callable[[Any], None]] = []
        discarded: list[Any] = []
        waiting = asyncio.ensure_future(on_thread(lambda: calls.call(late.append, discarded.append)))
        while not late:
            await asyncio.sleep(0)
        calls.stop()
        with pytest.raises(Unavailable):
            await waiting
        late[0]("a snapshot")
        assert discarded == ["a snapshot"]

    asyncio.run(run())


def test_a_wait_for_a_replica_that_never_answers_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_calls, "_LOOK_S", 0.01)
    monkeypatch.setattr(loop_calls, "WAIT_S_MAX", 0.05)

    async def run() -> None:
        calls = LoopCalls()
        with pytest.raises(Unavailable, match="no answer"):
            await on_thread(lambda: calls.call(lambda done: None))

    asyncio.run(run())


def test_nothing_is_posted_to_a_loop_that_is_closed() -> None:
    async def made() -> LoopCalls:
        return LoopCalls()

    calls = asyncio.run(made())
    assert not calls.post(lambda: None)
    with pytest.raises(Unavailable):
        calls.call(lambda done: done(1))
