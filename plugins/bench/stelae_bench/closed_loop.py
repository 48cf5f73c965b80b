"""A closed loop of calls: a fixed number is in flight, and each answer starts the next call.

The calls are those of users: coroutine methods of a table."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from stelae.spi.errors import StelaeError

_MeasuredCall: TypeAlias = Callable[[], Awaitable[str]]
"""Carries out the next operation. Returns what is wrong with its answer, or an empty text."""


PROBLEMS_MAX = 5


class LoopSample(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one round in one process.

    Attributes:
        began, ended: times of the first call and of the last answer, in seconds of the machine's monotonic clock, which
            all processes share.
        latencies_ms: the latency of each successful call, in the order of the answers.
        problems: what was wrong with other answers.
        retries: how often a write was sent again, by the code of the error that made it necessary.
    """

    began: float
    ended: float
    latencies_ms: list[float]
    problems: list[str]
    retries: dict[str, int] = {}


async def run_calls(
    call: _MeasuredCall, in_flight: int, seconds: float, ended: Callable[[], bool] = lambda: False
) -> LoopSample:
    """Make calls for ``seconds``, or until ``ended``, with ``in_flight`` at a time; return when all are answered.

    The first problem ends the run. A call with a problem has no latency."""
    latencies_ms: list[float] = []
    problems: list[str] = []
    began = last = time.monotonic()
    until = began + seconds

    async def call_in_turn() -> None:
        nonlocal last
        start = time.monotonic()
        while start < until and not problems and not ended():
            try:
                problem = await call()
            except StelaeError as error:
                problem = f"a call failed: {error}"
            end = time.monotonic()
            if problem:
                problems.append(problem)
                return
            latencies_ms.append((end - start) * 1000)
            start = last = end

    await asyncio.gather(*(call_in_turn() for _ in range(in_flight)))
    return LoopSample(began=began, ended=last, latencies_ms=latencies_ms, problems=problems[:PROBLEMS_MAX])
