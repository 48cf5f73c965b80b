"""How long a client waits for each attempt of a request that it repeats."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stelae.client.call_times import ATTEMPT_MS_MAX, CALL_MS, LAST_ATTEMPT_MS
from stelae.client.connection import Connection
from stelae.client.greeting import Greeting
from stelae.client.leader_tracker import LeaderTracker
from stelae.client.turns import ClientTurns
from stelae.spi.errors import DeadlineExceeded, Unavailable
from stelae.spi.ids import NodeId
from stelae.wire.messenger import Response
from stelae.wire.settings import Lane

NODE = NodeId("1" * 32)


class Network:
    """A messenger whose node fails as often as there are errors, and then answers."""

    def __init__(self, errors: list[Exception]) -> None:
        self.errors = errors
        self.deadlines_ms: list[int] = []

    async def call(self, node: NodeId, *_call: Any, deadline_ms: int, **_more: Any) -> Response:
        self.deadlines_ms.append(deadline_ms)
        if self.errors:
            raise self.errors.pop(0)
        return Response(sender=node, body=[], fields={})


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BACKOFF_S_MIN", "BACKOFF_S_MAX"):
        monkeypatch.setattr(f"stelae.client.connection.{name}", 0.0)


def attempts(errors: list[Exception], timeout_s: float) -> list[int]:
    network: Any = Network(errors)

    async def story() -> None:
        loop = asyncio.get_running_loop()
        client = Connection(network, ClientTurns(loop), Greeting(network, []))
        await client.ask_any(LeaderTracker([NODE]), "scan", b"", loop.time() + timeout_s, Lane.BULK)

    asyncio.run(story())
    return network.deadlines_ms  # type: ignore[no-any-return]


def test_each_attempt_without_an_answer_gives_the_next_one_twice_the_time() -> None:
    """Each had two seconds, whatever the timeout was: a page that took longer could never be had."""
    found = attempts([DeadlineExceeded("no answer") for _ in range(9)], 100_000.0)
    assert found == [min(CALL_MS << number, ATTEMPT_MS_MAX) for number in range(10)]


def test_an_attempt_ends_with_the_time_of_its_call_and_the_last_one_has_time_for_an_answer() -> None:
    """A call with a timeout of half a second waited two seconds for a node that did not answer."""
    found = attempts([DeadlineExceeded("no answer") for _ in range(3)], 5.0)
    assert found[:2] == [CALL_MS, 2 * CALL_MS] and all(CALL_MS <= each <= 5_000 for each in found)
    (short,) = attempts([], 0.5)
    assert LAST_ATTEMPT_MS <= short <= 500
    assert attempts([], -1.0) == [LAST_ATTEMPT_MS]


def test_a_node_that_answers_that_it_cannot_serve_does_not_make_attempts_longer() -> None:
    assert attempts([Unavailable("it starts") for _ in range(3)], 100.0) == [CALL_MS] * 4


@pytest.mark.parametrize(
    "answers", [["it starts", None], [None, "it starts", None, None], ["it was elected", "it starts"]]
)
def test_the_error_says_what_a_node_answered_last_also_if_its_last_attempt_had_no_answer(
    answers: list[str | None],
) -> None:
    """The last attempt ends with the time of the call, and often has no answer. Only that was said."""
    errors = [DeadlineExceeded("no answer") if answer is None else Unavailable(answer) for answer in answers]
    with pytest.raises(Unavailable, match=r"could serve scan in time: it starts$"):
        attempts_until(errors)


def attempts_until(errors: list[Exception]) -> None:
    """Let a call fail as often as there are errors. Its time is over with the last one."""
    network: Any = Network([*errors])

    async def story() -> None:
        loop: Any = asyncio.get_running_loop()
        client = Connection(network, ClientTurns(loop), Greeting(network, []))
        tracker, deadline = LeaderTracker([NODE]), loop.time() + 100.0
        clock = loop.time
        loop.time = lambda: clock() + (0.0 if network.errors else 200.0)
        try:
            await client.ask_any(tracker, "scan", b"", deadline, Lane.BULK)
        finally:
            loop.time = clock

    asyncio.run(story())
