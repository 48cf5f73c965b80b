"""A message of an older term changes nothing in a replica."""

from __future__ import annotations

from typing import ClassVar

from stelae.sim.invariants.base import Invariant
from stelae.sim.stale_probe import StaleDelivery
from stelae.sim.world import ObservedNode


class StaleMessages(Invariant):
    """A message of an older term does not change the status or the deadline of a replica.

    The only allowed effect is an answer to the sender with the newer term. ``stelae.sim.stale_probe`` delivers such
    messages to copies of the cores, so that the run is not affected."""

    name: ClassVar[str] = "stale_messages"
    source: ClassVar[str] = "Raft section 5.1; durability.md rule 9 (late and repeated answers)"

    def on_stale(self, node: ObservedNode, delivery: StaleDelivery) -> None:
        """Compare the copy of a core before and after a message of an older term."""
        what = f"node {node.position} in term {delivery.before.term} gets {delivery.what} of term {delivery.term}"
        if delivery.after != delivery.before:
            self.fail(f"{what}, and its status changes to {delivery.after}")
        elif delivery.deadline_after != delivery.deadline_before:
            self.fail(f"{what}, and its deadline changes from {delivery.deadline_before} to {delivery.deadline_after}")
        elif delivery.effects:
            self.fail(f"{what}, and it has effects: {delivery.effects}")
