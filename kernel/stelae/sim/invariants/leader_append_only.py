"""A leader never changes what is in its own log."""

from __future__ import annotations

from typing import ClassVar

from stelae.sim.invariants.base import Invariant
from stelae.sim.world import ObservedNode
from stelae.spi.consensus import Ready, Role


class LeaderAppendOnly(Invariant):
    """While a node leads, it never replaces entries of its log."""

    name: ClassVar[str] = "leader_append_only"
    source: ClassVar[str] = "Raft section 5.3, figure 3; durability.md rule 11"

    def on_ready(self, node: ObservedNode, ready: Ready) -> None:
        """Check an append that a leader returns while its term and role are unchanged."""
        status = node.status
        if status is None or status.role is not Role.LEADER or ready.append is None:
            return
        if ready.hard_state is not None and ready.hard_state.term != status.term:
            return
        replaced = ready.append.replace_from
        if replaced is not None and replaced <= node.last().index:
            self.fail(f"leader {node.position} of term {status.term} replaces its log from index {replaced}")
