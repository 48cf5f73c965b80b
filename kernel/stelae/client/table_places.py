"""Where the masters have the tablets of the tables that a client has open.

When servers fail, the members of many tablets are looked up at the same time. One answer of the masters serves all who
ask before it is requested."""

from __future__ import annotations

import asyncio
from typing import Protocol

from stelae.protocol.master_errors import NoTable
from stelae.protocol.master_messages import TableDescription, TabletPlace
from stelae.spi.errors import StelaeError
from stelae.spi.ids import TabletId

TIMEOUT_S = 10.0
"""How long the masters are asked."""


class DescribesTables(Protocol):
    """The part of the catalog that is needed."""

    async def get_table(self, table: str, *, timeout_s: float) -> TableDescription:
        """Return a table with the places of its tablets. Raises ``NoTable``."""
        ...


class TablePlaces:
    """The places of tablets. For each table, at most one request is under way, and one waits for its end."""

    def __init__(self, catalog: DescribesTables) -> None:
        self._catalog = catalog
        self._under_way: dict[str, asyncio.Task[dict[TabletId, TabletPlace]]] = {}
        self._next: dict[str, asyncio.Task[dict[TabletId, TabletPlace]]] = {}

    async def find(self, table_id: str, tablet_id: TabletId) -> TabletPlace | None:
        """Return the place of a tablet; ``None``: it is gone for good, because its table or its range was dropped.

        The answer is of a request that was sent after this call: an older one may be from before the tablet moved, or
        was added.

        Raises:
            StelaeError: the masters did not answer.
        """
        task = self._next.get(table_id)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._ask(table_id))
            task.add_done_callback(_read_error)
            self._next[table_id] = task
        return (await asyncio.shield(task)).get(tablet_id)

    async def is_gone(self, table_id: str, tablet_id: TabletId) -> bool:
        """Return whether a tablet is gone for good; false if the masters did not answer."""
        try:
            return await self.find(table_id, tablet_id) is None
        except StelaeError:
            return False

    def close(self) -> None:
        """End the requests that are under way."""
        for task in (*self._under_way.values(), *self._next.values()):
            task.cancel()

    async def _ask(self, table_id: str) -> dict[TabletId, TabletPlace]:
        before = self._under_way.get(table_id)
        if before is not None:
            await asyncio.wait([before])
        self._under_way[table_id] = self._next.pop(table_id)
        try:
            found = await self._catalog.get_table(table_id, timeout_s=TIMEOUT_S)
        except NoTable:
            return {}
        finally:
            del self._under_way[table_id]
        return {place.tablet_id: place for place in found.tablets}


def _read_error(task: asyncio.Task[dict[TabletId, TabletPlace]]) -> None:
    """Read the error of a request. Otherwise asyncio logs it if no task waits for it any more."""
    if not task.cancelled():
        task.exception()
