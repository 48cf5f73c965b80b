"""The loop of a node: what follows a round of callbacks, and that sockets are heard whatever callbacks do."""

from __future__ import annotations

import asyncio
import socket

import pytest

from stelae.machine import event_loop
from stelae.machine.event_loop import NodeLoop, new_event_loop


def test_what_follows_a_round_runs_before_any_callback_of_the_next() -> None:
    async def run() -> list[str]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, NodeLoop)
        told: list[str] = []
        over = loop.create_future()

        def first() -> None:
            loop.after_round(behind)
            loop.call_soon(lambda: told.append("next round"))
            told.append("first")

        def behind() -> None:
            told.append("behind both")
            loop.after_round(lambda: told.append("behind that"))
            loop.call_soon(over.set_result, None)

        loop.call_soon(first)
        loop.call_soon(lambda: told.append("second"))
        await over
        return told

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        assert runner.run(run()) == ["first", "second", "behind both", "behind that", "next round"]


def test_where_asyncio_has_no_such_rounds_it_is_a_callback_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_loop, "_HAS_ROUNDS", False)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, NodeLoop)
        over = loop.create_future()
        loop.after_round(lambda: over.set_result(None))
        await over

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(run())


def test_a_socket_is_heard_beside_callbacks_that_never_end() -> None:
    async def run() -> int:
        loop = asyncio.get_running_loop()
        here, there = socket.socketpair()
        heard: asyncio.Future[None] = loop.create_future()
        rounds = 0

        def busy() -> None:
            nonlocal rounds
            rounds += 1
            if rounds == 10:
                there.send(b"x")
            if not heard.done():
                loop.call_soon(busy)

        loop.add_reader(here, lambda: heard.done() or heard.set_result(None))
        loop.call_soon(busy)
        await heard
        loop.remove_reader(here)
        here.close()
        there.close()
        return rounds

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        assert 10 <= runner.run(run()) < 20
