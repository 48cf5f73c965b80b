"""Terms never decrease and votes never change within a term, also across crashes."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from stelae.sim.invariants.base import Invariant
from stelae.sim.world import Needs, ObservedNode, World
from stelae.spi.consensus import HardState, LogView, Outbound, Ready, Status
from stelae.spi.ids import NodeId


class TermsAndVotes(Invariant):
    """A node gives one vote in each term, its term only increases, and it hands out both to be saved.

    A hard state that a sent message depends on is *exposed*: a later start of the node must find at
    least that term and, within the term, the same vote."""

    name: ClassVar[str] = "terms_and_votes"
    source: ClassVar[str] = "Raft figure 2 (persistent state); durability.md rules 1 and 9"

    def __init__(self, world: World, report: Callable[[str, str], None]) -> None:
        super().__init__(world, report)
        self._votes: dict[tuple[int, int], NodeId] = {}

    def on_ready(self, node: ObservedNode, ready: Ready) -> None:
        """Check that the term does not decrease, and that a vote does not change within its term."""
        new = ready.hard_state
        if new is None:
            return
        old = node.hard_state
        if new.term < old.term:
            self.fail(f"node {node.position} goes back from term {old.term} to {new.term}")
        elif new.term == old.term and old.voted_for not in (None, new.voted_for):
            self.fail(
                f"node {node.position} changes its vote of term {new.term} from {old.voted_for} to {new.voted_for}"
            )

    def on_status(self, node: ObservedNode, before: Status | None, status: Status) -> None:
        """Check that the core has handed out its current term and vote to be made durable."""
        shown = HardState(status.term, status.voted_for, node.hard_state.promised_us)
        if shown != node.hard_state:
            self.fail(f"node {node.position} acts on {shown}, but it has handed out {node.hard_state} to be saved")

    def on_sent(self, node: ObservedNode, outbound: Outbound, needs: Needs) -> None:
        """Record the vote that the message exposes."""
        exposed = needs.hard_state
        if exposed.voted_for is None:
            return
        first = self._votes.setdefault((node.position, exposed.term), exposed.voted_for)
        if first != exposed.voted_for:
            self.fail(
                f"node {node.position} has exposed votes for {first} and {exposed.voted_for} in term {exposed.term}"
            )

    def on_restart(self, node: ObservedNode, hard_state: HardState, log: LogView, commit: int) -> None:
        """Check that the exposed hard state was durable."""
        self._judge(node, hard_state)

    def on_voter(self, node: ObservedNode, hard_state: HardState) -> None:
        """Check the same for a tombstone."""
        self._judge(node, hard_state)

    def _judge(self, node: ObservedNode, hard_state: HardState) -> None:
        exposed = node.exposed
        if hard_state.term < exposed.term:
            self.fail(f"node {node.position} starts in term {hard_state.term} after messages of term {exposed.term}")
        elif hard_state.term == exposed.term and exposed.voted_for not in (None, hard_state.voted_for):
            self.fail(f"node {node.position} has forgotten its vote of term {exposed.term}")
