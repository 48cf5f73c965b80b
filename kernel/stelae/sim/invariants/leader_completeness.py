"""A new leader has every entry that was committed before its election."""

from __future__ import annotations

from typing import ClassVar

from stelae.sim.invariants.base import Invariant
from stelae.sim.world import ObservedNode
from stelae.spi.consensus import Role, Status


class LeaderCompleteness(Invariant):
    """The log of a new leader contains all entries committed in earlier terms."""

    name: ClassVar[str] = "leader_completeness"
    source: ClassVar[str] = "Raft section 5.4, figure 3"

    def on_status(self, node: ObservedNode, before: Status | None, status: Status) -> None:
        """Compare the log of a new leader with the committed log."""
        if status.role is not Role.LEADER:
            return
        if before is not None and (before.role, before.term) == (Role.LEADER, status.term):
            return
        for op_id in self.world.committed:
            if op_id.index <= node.base.index:
                continue
            if op_id.term < status.term and node.op_id_at(op_id.index) != op_id:
                self.fail(
                    f"leader {node.position} of term {status.term} lacks committed {op_id}, "
                    f"has {node.op_id_at(op_id.index)}"
                )
                return
