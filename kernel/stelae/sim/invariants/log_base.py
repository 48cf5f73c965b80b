"""A collected log remembers where it begins."""

from __future__ import annotations

from typing import ClassVar

from stelae.sim.invariants.base import Invariant
from stelae.sim.log_model import LogModel
from stelae.sim.world import ObservedNode
from stelae.spi.ids import LogId
from stelae.spi.log import Entry
from stelae.spi.wal import LogState


class LogBase(Invariant):
    """The base is the op id of an entry that was allowed to go, and its successor is there.

    An emptied log never claims to be at 0.0, and nothing above the allowed index is ever missing. A replicated log may
    go as far as a durable superblock has its rows and results, and no further."""

    name: ClassVar[str] = "log_base"
    source: ClassVar[str] = "durability.md rule 4"

    def on_collect(self, node: ObservedNode, log: LogId, upto: int) -> None:
        """Judge how much may go."""
        if upto > node.flushed.index:
            self.fail(f"log {log} of node {node.position} is collected up to {upto}, flushed is {node.flushed}")

    def on_recovered(
        self, node: ObservedNode, log: LogId, state: LogState, found: list[Entry], model: LogModel
    ) -> None:
        """Judge the base that recovery found."""
        where = f"log {log} of node {node.position}"
        if model.older:
            return
        if state.damage is not None:
            return
        if not model.base.index <= state.base.index <= model.collectable:
            self.fail(f"{where} begins after {state.base}, expected from {model.base} to index {model.collectable}")
        elif model.op_id_at(state.base.index) != state.base:
            expected = model.op_id_at(state.base.index)
            self.fail(f"{where} says its base is {state.base}, it was {expected}")
        elif found and found[0].op_id.index != state.base.index + 1:
            self.fail(f"{where} begins with {found[0].op_id} after base {state.base}")
