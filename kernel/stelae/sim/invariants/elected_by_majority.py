"""A leader has the durable votes of a majority of the voters of the newest config in its log."""

from __future__ import annotations

from typing import ClassVar

from stelae.sim.invariants.base import Invariant
from stelae.sim.world import ObservedNode
from stelae.spi.consensus import Role, Status


class ElectedByMajority(Invariant):
    """A vote counts if its voter is a voter of the leader's newest config, and has saved the vote.

    A leader that its newest config does not list as a voter does not count itself."""

    name: ClassVar[str] = "elected_by_majority"
    source: ClassVar[str] = "Raft section 5.2; Raft thesis section 4.2.2; durability.md rule 9"

    def on_status(self, node: ObservedNode, before: Status | None, status: Status) -> None:
        """Check a replica that has become leader."""
        led = before is not None and before.role is Role.LEADER and before.term == status.term
        if status.role is not Role.LEADER or led:
            return
        voters = self.world.newest_config_before(node, status.term).voters()
        vote = (status.term, node.node_id)
        saved = [voter.saved for voter in self.world.nodes if voter.node_id in voters]
        votes = sum((found.term, found.voted_for) == vote or found.term > status.term for found in saved)
        if votes <= len(voters) // 2:
            self.fail(f"node {node.position} leads term {status.term} with {votes} votes of {len(voters)}")
