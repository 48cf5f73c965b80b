"""A recovered log has the entries that it reported durable, and none that it was not given."""

from __future__ import annotations

from typing import ClassVar

from stelae.sim.invariants.base import Invariant
from stelae.sim.log_model import LogModel
from stelae.sim.world import ObservedNode
from stelae.spi.ids import LogId
from stelae.spi.log import Entry
from stelae.spi.wal import LogState


class LogDurability(Invariant):
    """After a crash a log has the durable entries, then at most a prefix of the append under way.

    If an append replaces a suffix, either the whole old suffix remains or none of it. Entries that were replaced,
    collected or left in recycled space never come back. No recovered commit hint exceeds the highest one that was
    passed to the engine. A crash alone never makes a log unreadable. A log with flipped bits may be refused, but the
    entries that it returns are right."""

    name: ClassVar[str] = "log_durability"
    source: ClassVar[str] = "durability.md rules 3, 5, 6 and 7"

    def on_recovered(
        self, node: ObservedNode, log: LogId, state: LogState, found: list[Entry], model: LogModel
    ) -> None:
        """Compare what recovery found with the model, and update the model."""
        where = f"log {log} of node {node.position}"
        if model.is_older_copy:
            return
        if state.damage is not None:
            if not model.damaged:
                self.fail(f"{where} is damaged by a crash: {state.damage}")
            return
        if state.commit_hint > model.hint:
            self.fail(f"{where} has commit hint {state.commit_hint}, but the highest hint given was {model.hint}")
        wrong = model.match_recovered(state.base, found)
        if wrong is not None:
            self.fail(f"{where} {wrong}")
        elif state.last != (found[-1].op_id if found else state.base):
            self.fail(f"{where} reports its end at {state.last}, but its entries end elsewhere")
