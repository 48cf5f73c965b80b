"""A message is sent only after everything that it depends on is durable."""

from __future__ import annotations

from typing import ClassVar

from stelae.sim.invariants.base import Invariant
from stelae.sim.world import Needs, ObservedNode
from stelae.spi.consensus import HardState, Outbound, Status


class PersistBeforeSend(Invariant):
    """A message is sent only after the hard state and the log entries that it depends on are durable.

    Messages of ``after_persist`` depend on their own Ready, the others on the Readies before it.
    Entries that were replaced in the meantime need not be durable any more."""

    name: ClassVar[str] = "persist_before_send"
    source: ClassVar[str] = "durability.md rule 1; contract consensus, Ordering and durability"

    def on_sent(self, node: ObservedNode, outbound: Outbound, needs: Needs) -> None:
        """Check a message when it is sent."""
        what = f"node {node.position} sends {type(outbound.message).__name__}"
        if _is_behind(node.saved, needs.hard_state):
            self.fail(f"{what} that needs {needs.hard_state}, but {node.saved} is on disk")
        last = needs.last
        in_log = node.op_id_at(last.index) == last
        if in_log and node.durable_at(last.index) != last:
            self.fail(f"{what} that needs {last} before it is durable")

    def on_status(self, node: ObservedNode, before: Status | None, status: Status) -> None:
        """Check up to where a core believes its log to be durable, because its replies depend on that."""
        index = status.durable_index
        op_id = node.op_id_at(index)
        if op_id is not None and node.durable_at(index) != op_id:
            self.fail(f"node {node.position} believes that {op_id} is durable, but it is not")


def _is_behind(saved: HardState, needed: HardState) -> bool:
    """Return true if the saved hard state does not cover the needed one yet."""
    if saved.term != needed.term:
        return saved.term < needed.term
    return needed.voted_for not in (None, saved.voted_for)
