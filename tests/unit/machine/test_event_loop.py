"""The loop of a node asks for events no more often than it has to, and never forgets to."""

from __future__ import annotations

import asyncio
import os
import selectors
import socket

from stelae.machine.event_loop import SparingSelector, new_event_loop


def test_while_callbacks_wait_every_other_question_is_spared() -> None:
    read, write = os.pipe()
    with SparingSelector() as selector:
        selector.register(read, selectors.EVENT_READ)
        os.write(write, b"x")
        assert [len(selector.select(0)) for _ in range(4)] == [0, 1, 0, 1]
    os.close(read)
    os.close(write)


def test_a_loop_that_could_wait_always_asks() -> None:
    read, write = os.pipe()
    with SparingSelector() as selector:
        selector.register(read, selectors.EVENT_READ)
        os.write(write, b"x")
        assert [len(selector.select(wait)) for wait in (0, None, 0, 0.5, None)] == [0, 1, 0, 1, 1]
    os.close(read)
    os.close(write)


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
