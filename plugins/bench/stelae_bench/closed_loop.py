"""A closed loop of calls: a fixed number is in flight, and each answer starts the next call.

It awaits what users await: methods of a table."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from stelae.spi.errors import StelaeError

Call: TypeAlias = Callable[[], Awaitable[str]]
"""Carries out the next operation; returns what is wrong with its answer, or nothing."""


PROBLEMS_MAX = 5


class LoopSample(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one round in one process.

    Attributes:
        began, ended: seconds on the machine's monotonic clock, which its processes share; from the first call to the
            last answer.
        latencies_ms: of each call that was answered well, in the order of the answers.
        problems: what was wrong with other answers.
    """

    began: float
    ended: float
    latencies_ms: list[float]
    problems: list[str]


async def run_calls(call: Call, in_flight: int, seconds: float) -> LoopSample:
    """Make calls for a while, each with its own latency; return when all are answered.

    The first problem ends the run; a call that had one gives no latency."""
    latencies_ms: list[float] = []
    problems: list[str] = []
    began = last = time.monotonic()
    until = began + seconds

    async def one_after_the_other() -> None:
        nonlocal last
        start = time.monotonic()
        while start < until and not problems:
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

    await asyncio.gather(*(one_after_the_other() for _ in range(in_flight)))
    return LoopSample(began=began, ended=last, latencies_ms=latencies_ms, problems=problems[:PROBLEMS_MAX])
