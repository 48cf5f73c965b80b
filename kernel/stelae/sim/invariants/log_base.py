"""A collected log knows its base."""

from __future__ import annotations

from typing import ClassVar

from stelae.sim.invariants.base import Invariant
from stelae.sim.log_model import LogModel
from stelae.sim.world import ObservedNode
from stelae.spi.ids import LogId
from stelae.spi.log import Entry
from stelae.spi.wal import LogState


class LogBase(Invariant):
    """The base is the op id of an entry that was allowed to be collected, and the log begins right after it.

    An emptied log never reports the base 0.0, and no entry above the allowed index is ever missing. A replicated log is
    collected at most up to the flushed op id of a durable superblock, which has the rows and the results. A config
    entry is collected only once it, or a newer config, is in durable consensus metadata."""

    name: ClassVar[str] = "log_base"
    source: ClassVar[str] = "durability.md rule 4"

    def on_collect(self, node: ObservedNode, log: LogId, upto: int) -> None:
        """Check that the collected entries are flushed, and that the configs among them are saved."""
        if upto > node.flushed.index:
            self.fail(f"log {log} of node {node.position} is collected up to {upto}, only {node.flushed} is flushed")
        unsaved = [c.op_id for c in node.configs if node.saved_config.index < c.op_id.index <= upto]
        if unsaved:
            where = f"log {log} of node {node.position} is collected up to {upto}"
            self.fail(f"{where}, and of its configs {node.saved_config} is saved, but not {unsaved[0]}")

    def on_recovered(
        self, node: ObservedNode, log: LogId, state: LogState, found: list[Entry], model: LogModel
    ) -> None:
        """Check the base that recovery found."""
        where = f"log {log} of node {node.position}"
        if model.is_older_copy:
            return
        if state.damage is not None:
            return
        if not model.base.index <= state.base.index <= model.collectable:
            self.fail(f"{where} has base {state.base}, expected from {model.base} to index {model.collectable}")
        elif model.op_id_at(state.base.index) != state.base:
            expected = model.op_id_at(state.base.index)
            self.fail(f"{where} has base {state.base}, but the entry there was {expected}")
        elif found and found[0].op_id.index != state.base.index + 1:
            self.fail(f"{where} begins with {found[0].op_id} after base {state.base}")
