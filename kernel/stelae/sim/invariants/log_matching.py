"""If two logs have the same op id, they have the same entry there and the same entries before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from stelae.sim.invariants.base import Invariant
from stelae.sim.world import ObservedNode, World
from stelae.spi.ids import ZERO, OpId
from stelae.spi.log import Entry
from stelae.spi.wal import Append, Outcome


class LogMatching(Invariant):
    """An op id has one entry and one predecessor, on every node and at all times.

    If the predecessor of every entry is the same everywhere, all entries before it are the same, by induction."""

    name: ClassVar[str] = "log_matching"
    source: ClassVar[str] = "Raft section 5.3, figure 3"

    def __init__(self, world: World, report: Callable[[str, str], None]) -> None:
        super().__init__(world, report)
        self._before: dict[OpId, OpId] = {}

    def on_wal(self, node: ObservedNode, append: Append, outcome: Outcome) -> None:
        """Compare every entry that reaches a log engine with earlier entries of the same op id."""
        if not append.entries:
            return
        first = append.entries[0].op_id.index
        previous = node.durable_at(first - 1) or (ZERO if first == 1 else node.base)
        for entry in append.entries:
            self._judge(node, previous, entry)
            previous = entry.op_id

    def _judge(self, node: ObservedNode, previous: OpId, entry: Entry) -> None:
        known = self.world.entries.setdefault(entry.op_id, entry)
        if known is not entry and known != entry:
            self.fail(f"node {node.position} stores another entry under {entry.op_id}")
        before = self._before.setdefault(entry.op_id, previous)
        if before != previous:
            self.fail(f"on node {node.position} {entry.op_id} follows {previous}, elsewhere it follows {before}")
