"""A message of an older term changes nothing."""

from __future__ import annotations

from typing import ClassVar

from stelae.sim.invariants.base import Invariant
from stelae.sim.stale import Told
from stelae.sim.world import ObservedNode


class StaleMessages(Invariant):
    """Whatever an older term says, status and deadline of a replica stay as they were.

    The one effect that is allowed is an answer to the sender, which names the newer term. See ``stelae.sim.stale`` for
    how it is found out without disturbing the run."""

    name: ClassVar[str] = "stale_messages"
    source: ClassVar[str] = "Raft section 5.1; durability.md rule 9 (late and repeated answers)"

    def on_stale(self, node: ObservedNode, told: Told) -> None:
        """Compare the copy of a core before and after a message of an older term."""
        what = f"node {node.position} in term {told.before.term} is told {told.what} of term {told.term}"
        if told.after != told.before:
            self.fail(f"{what}, and its status changes to {told.after}")
        elif told.deadline_after != told.deadline_before:
            self.fail(f"{what}, and its deadline goes from {told.deadline_before} to {told.deadline_after}")
        elif told.effects:
            self.fail(f"{what}, and it has effects: {told.effects}")
