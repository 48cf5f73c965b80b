"""Watches who leads the tablets under load, and the masters, during a run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from stelae.spi.errors import StelaeError
from stelae.spi.ids import TabletId
from stelae_chaos.fault_target import FaultTarget
from stelae_chaos.spans import LeaderSpan

LOOK_S = 0.3
"""Pause between two looks. A leader of a shorter time may not be seen."""


class LeaderWatch:
    """Asks all nodes at intervals who leads.

    Args:
        target: the nodes and tablets.
        names: names of the tablets, in the order in which the report shows them.
        now_us: returns the microseconds since the start of the run.

    Attributes:
        spans: who led, in the order of the times at which they were first seen.
    """

    def __init__(self, target: FaultTarget, names: Mapping[TabletId, str], now_us: Callable[[], int]) -> None:
        self._target = target
        self._names = names
        self._now_us = now_us
        self._open: dict[TabletId, LeaderSpan] = {}
        self.spans: list[LeaderSpan] = []

    async def run(self) -> None:
        """Watch until the task is cancelled."""
        while True:
            try:
                found = await self._target.leaders()
            except StelaeError:
                found = {}
            now_us = self._now_us()
            for tablet_id, name in self._names.items():
                node = found.get(tablet_id)
                self._seen(tablet_id, name, "" if node is None else node.name, now_us)
            await asyncio.sleep(LOOK_S)

    def _seen(self, tablet_id: TabletId, name: str, leader: str, now_us: int) -> None:
        span = self._open.get(tablet_id)
        if span is not None and span.leader == leader:
            span.ended_us = now_us
            return
        self._open.pop(tablet_id, None)
        if leader:
            span = LeaderSpan(what=name, leader=leader, begun_us=now_us, ended_us=now_us)
            self._open[tablet_id] = span
            self.spans.append(span)
