"""A vote goes only to a candidate that campaigns, and whose log has everything that the voter's log has or had."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from stelae.host.superblock import DataState
from stelae.sim.invariants.base import Invariant
from stelae.sim.world import Needs, ObservedNode, World
from stelae.spi.consensus import HardState, Outbound, Ready
from stelae.spi.ids import NodeId, OpId


class ElectionRestriction(Invariant):
    """Each vote is compared with the end of the candidate's log when it began to campaign.

    A live replica votes by its log, a tombstone by the last op id that its replica ever had. A witness that has begun
    over a tombstone votes by the larger of the two."""

    name: ClassVar[str] = "election_restriction"
    source: ClassVar[str] = "Raft section 5.4.1; durability.md rule 19"

    def __init__(self, world: World, report: Callable[[str, str], None]) -> None:
        super().__init__(world, report)
        self._campaigns: dict[tuple[int, NodeId], OpId] = {}
        self._votes: set[tuple[int, int, NodeId]] = set()

    def on_ready(self, node: ObservedNode, ready: Ready) -> None:
        """Note where a candidate's log ends, and check the vote of a live replica."""
        new = ready.hard_state
        if new is None or new.voted_for is None or new == node.hard_state:
            return
        if new.voted_for == node.node_id:
            self._campaigns[new.term, node.node_id] = node.last()
        else:
            # Entries may arrive in the same turn, before or after the request for the vote.
            last, had = min(node.last(), node.last_after(ready)), None if node.block is None else node.block.tombstone
            self._judge(node, new, max(last, had) if isinstance(had, OpId) else last)

    def on_sent(self, node: ObservedNode, outbound: Outbound, needs: Needs) -> None:
        """Check that the vote was asked for, and the vote of a tombstone, which has no log."""
        vote = needs.hard_state
        if vote.voted_for is not None and (vote.term, vote.voted_for) not in self._campaigns:
            self.fail(f"node {node.position} claims a vote in term {vote.term} for a node that did not campaign in it")
        block = node.block
        if block is not None and block.data_state is not DataState.READY and isinstance(block.tombstone, OpId):
            self._judge(node, vote, block.tombstone)

    def _judge(self, node: ObservedNode, hard_state: HardState, last: OpId) -> None:
        candidate = hard_state.voted_for
        if candidate == node.node_id:
            return  # It voted for the log that it had then. As a leader it has got more since.
        if candidate is None or (node.position, hard_state.term, candidate) in self._votes:
            return
        self._votes.add((node.position, hard_state.term, candidate))
        campaign = self._campaigns.get((hard_state.term, candidate))
        if campaign is not None and campaign < last:
            fact = f"node {node.position} votes in term {hard_state.term} for a log that ends at {campaign}"
            self.fail(f"{fact}, and its own ends at {last}")
