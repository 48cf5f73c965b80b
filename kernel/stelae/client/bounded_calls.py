"""Awaits many calls, a bounded number of them at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


async def each(items: Sequence[_Item], call: Callable[[_Item], Awaitable[_Result]], *, at_once: int) -> list[_Result]:
    """Return the results of a call for each item, in the order of the items.

    Args:
        items: the items.
        call: is called with each item once.
        at_once: the most calls that run at the same time.

    If a call fails, the calls that run are cancelled, no other is made, and its error is raised."""
    results: dict[int, _Result] = {}
    remaining = iter(enumerate(items))

    async def work() -> None:
        for number, item in remaining:
            results[number] = await call(item)

    tasks = [asyncio.create_task(work()) for _ in range(min(at_once, len(items)))]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return [results[number] for number in range(len(items))]
