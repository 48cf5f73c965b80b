"""Turns of the client: what one round asked for is done in the next, writers before links."""

from __future__ import annotations

import asyncio
from typing import Any

from stelae.client.turns import ClientTurns


def test_links_send_in_the_same_round_as_the_writers_that_filled_them() -> None:
    done: list[str] = []

    async def run() -> None:
        turns = ClientTurns(asyncio.get_running_loop())

        def flush_a_writer() -> None:
            done.append("writer")
            turns.defer_last(lambda: done.append("link"))

        turns.defer_last(lambda: done.append("early link"))
        turns.defer(flush_a_writer)
        turns.defer(lambda: done.append("second writer"))
        assert not done
        await asyncio.sleep(0)

    asyncio.run(run())
    assert done == ["writer", "second writer", "early link", "link"]


def test_a_call_that_raises_is_reported_and_keeps_no_other_from_running() -> None:
    done: list[str] = []
    reported: list[dict[str, Any]] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context))
        turns = ClientTurns(loop)
        for _ in range(2):
            turns.defer(lambda: 1 // 0)
            turns.defer(lambda: done.append("next"))
            await asyncio.sleep(0)

    asyncio.run(run())
    assert done == ["next", "next"]
    assert [type(context["exception"]) for context in reported] == [ZeroDivisionError] * 2
