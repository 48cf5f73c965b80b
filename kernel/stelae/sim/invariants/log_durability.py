"""A log gives back what it reported durable, and nothing that it was not given."""

from __future__ import annotations

from typing import ClassVar

from stelae.sim.invariants.base import Invariant
from stelae.sim.log_model import LogModel
from stelae.sim.world import ObservedNode
from stelae.spi.ids import LogId
from stelae.spi.log import Entry
from stelae.spi.wal import LogState


class LogDurability(Invariant):
    """After any crash a log holds the durable entries, then at most a prefix of what was under way.

    Replacing a suffix gives the old one whole or voids it whole. Nothing that was voided, collected or left in recycled
    space ever comes back, no recovered hint exceeds one that was handed over, and a crash alone never makes a log
    unreadable. A log whose bytes were flipped on disk may be refused, but what it gives out is right."""

    name: ClassVar[str] = "log_durability"
    source: ClassVar[str] = "durability.md rules 3, 5, 6 and 7"

    def on_recovered(
        self, node: ObservedNode, log: LogId, state: LogState, found: list[Entry], model: LogModel
    ) -> None:
        """Compare what recovery found with the model, then let the model follow."""
        where = f"log {log} of node {node.position}"
        if model.older:
            return
        if state.damage is not None:
            if not model.damaged:
                self.fail(f"{where} is damaged by a crash: {state.damage}")
            return
        if state.commit_hint > model.hint:
            self.fail(f"{where} has hint {state.commit_hint}, highest given was {model.hint}")
        wrong = model.settle(state.base, found)
        if wrong is not None:
            self.fail(f"{where} {wrong}")
        elif state.last != (found[-1].op_id if found else state.base):
            self.fail(f"{where} says it ends at {state.last}, its entries end otherwise")
