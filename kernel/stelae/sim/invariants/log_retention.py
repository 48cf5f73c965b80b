"""A log retains the entries that another replica may still need."""

from __future__ import annotations

from typing import ClassVar

from stelae.sim.invariants.base import Invariant
from stelae.sim.world import ObservedNode
from stelae.spi.consensus import Ready
from stelae.spi.ids import LogId


class LogRetention(Invariant):
    """No replica ever needs a copy, because no log is collected beyond what all replicas hold durably.

    That holds in runs without copies, where ``lagging_peer_bytes_max`` never has an effect. So a log must be retained
    also for a replica that is down, lagging, or unknown to a new leader. A replica that is lost permanently does not
    count.

    The log of a replica without rows begins late, and the replica never leads for long. So it need not retain entries
    for others, and may request a copy for them."""

    name: ClassVar[str] = "log_retention"
    source: ClassVar[str] = "durability.md rule 4, ADR 55"

    def on_collect(self, node: ObservedNode, log: LogId, upto: int) -> None:
        """Compare the collected index with the entries of the slowest replica."""
        if node.log_only or self.world.copies:
            return
        settled = self.world.settled_index()
        if upto > settled:
            where = f"log {log} of node {node.position}"
            self.fail(f"{where} is collected up to {upto}, the slowest replica holds the entries up to {settled}")

    def on_ready(self, node: ObservedNode, ready: Ready) -> None:
        """Check that a leader can catch up all peers that have a replica from its log, unless they found damage."""
        for request in ready.copy_requests:
            if request.hosted and not request.damaged and not node.log_only and not self.world.copies:
                self.fail(f"leader {node.position} of term {node.hard_state.term} requests a copy for {request.peer}")
