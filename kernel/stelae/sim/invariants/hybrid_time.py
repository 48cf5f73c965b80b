"""Timestamps in the log always increase, and stay near true time."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from stelae.host.hybrid_clock import ClockSettings, physical_us
from stelae.sim.clock import EPOCH_US
from stelae.sim.invariants.base import Invariant
from stelae.sim.world import ObservedNode, World
from stelae.spi.consensus import Ready
from stelae.spi.ids import OpId
from stelae.spi.wal import Append, Outcome

CLOCK_ERROR_US = ClockSettings().clock_error_ms_max * 1_000


class HybridTimeOrder(Invariant):
    """Timestamps increase along every log, even if the wall clocks of its leaders are wrong.

    This holds across leaders too: a new leader has stored, and so observed, all entries before its
    own. No fast clock pulls the others along: a second node has accepted each committed entry, so the
    entry is at most ``CLOCK_ERROR_US`` ahead of the second fastest wall clock."""

    name: ClassVar[str] = "hybrid_time"
    source: ClassVar[str] = "durability.md rule 14"

    def __init__(self, world: World, report: Callable[[str, str], None]) -> None:
        super().__init__(world, report)
        self._stamps: dict[OpId, int] = {}

    def on_wal(self, node: ObservedNode, append: Append, outcome: Outcome) -> None:
        """Compare the timestamp of each entry with its predecessor's."""
        if not append.entries:
            return
        index = append.entries[0].op_id.index - 1
        before = node.base if index == node.base.index else node.durable_at(index)
        stamp = self._stamps.get(before, 0) if before is not None else 0
        for entry in append.entries:
            if entry.timestamp <= stamp:
                self.fail(
                    f"node {node.position} stores {entry.op_id} at {entry.timestamp}, its predecessor is at {stamp}"
                )
            stamp = self._stamps[entry.op_id] = entry.timestamp

    def on_ready(self, node: ObservedNode, ready: Ready) -> None:
        """Check how far ahead of true time a committed entry is."""
        op_id = node.op_id_after(ready, ready.commit) if ready.commit is not None else None
        stamp = self._stamps.get(op_id, 0) if op_id is not None else 0
        clocks = sorted(view.clock_ahead_us_max for view in self.world.nodes)
        limit_us = clocks[-2:][0] + CLOCK_ERROR_US  # With a single node, its own clock.
        ahead_us = physical_us(stamp) - EPOCH_US - self.world.now_us()
        if ahead_us > limit_us:
            self.fail(f"committed {op_id} is {ahead_us} us ahead of true time; the limit is {limit_us} us")
