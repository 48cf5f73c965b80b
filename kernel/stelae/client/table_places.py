"""Where the masters have the tablets of the tables that a client has open.

When servers fail, the members of many tablets are looked up at the same time. One answer of the masters serves them
all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from stelae.protocol.master_errors import NoTable
from stelae.protocol.master_messages import TableDescription, TabletPlace
from stelae.spi.errors import StelaeError
from stelae.spi.ids import TabletId

AGE_S = 1.0
"""For how long an answer of the masters is used again, in seconds."""

TIMEOUT_S = 10.0
"""How long the masters are asked."""


class DescribesTables(Protocol):
    """The part of the catalog that is needed."""

    async def get_table(self, table: str, *, timeout_s: float) -> TableDescription:
        """Return a table with the places of its tablets. Raises ``NoTable``."""
        ...


class TablePlaces:
    """The places of tablets by the masters' last answers.

    Args:
        now_s: monotonic time in seconds.
    """

    def __init__(self, catalog: DescribesTables, now_s: Callable[[], float]) -> None:
        self._catalog = catalog
        self._now_s = now_s
        self._answers: dict[str, tuple[float, asyncio.Task[dict[TabletId, TabletPlace]]]] = {}

    async def find(self, table_id: str, tablet_id: TabletId) -> TabletPlace | None:
        """Return the place of a tablet; ``None``: it is gone for good, because its table or its range was dropped.

        A place is at most ``AGE_S`` old. That a tablet is gone is never taken from an older answer, because the tablet
        may be a new one.

        Raises:
            StelaeError: the masters did not answer.
        """
        now_s = self._now_s()
        asked_s, task = self._answers.get(table_id, (0.0, None))
        if task is not None and not (task.done() and (now_s - asked_s > AGE_S or _has_failed(task))):
            place = (await asyncio.shield(task)).get(tablet_id)
            if place is not None:
                return place
        return (await asyncio.shield(self._begin(table_id))).get(tablet_id)

    async def is_gone(self, table_id: str, tablet_id: TabletId) -> bool:
        """Return whether a tablet is gone for good; false if the masters did not answer."""
        try:
            return await self.find(table_id, tablet_id) is None
        except StelaeError:
            return False

    def close(self) -> None:
        """End the requests that are under way."""
        for _, task in self._answers.values():
            task.cancel()

    def _begin(self, table_id: str) -> asyncio.Task[dict[TabletId, TabletPlace]]:
        now_s = self._now_s()
        task = asyncio.get_running_loop().create_task(self._ask(table_id))
        task.add_done_callback(_has_failed)  # Else asyncio logs the error if nobody waits any more.
        self._answers = {name: one for name, one in self._answers.items() if now_s - one[0] <= AGE_S}
        self._answers[table_id] = now_s, task
        return task

    async def _ask(self, table_id: str) -> dict[TabletId, TabletPlace]:
        try:
            found = await self._catalog.get_table(table_id, timeout_s=TIMEOUT_S)
        except NoTable:
            return {}
        return {place.tablet_id: place for place in found.tablets}


def _has_failed(task: asyncio.Task[dict[TabletId, TabletPlace]]) -> bool:
    return task.cancelled() or task.exception() is not None
