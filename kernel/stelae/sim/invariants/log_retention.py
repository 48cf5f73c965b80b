"""A log is kept for every replica that may still need it."""

from __future__ import annotations

from typing import ClassVar

from stelae.sim.invariants.base import Invariant
from stelae.sim.world import ObservedNode
from stelae.spi.consensus import Status
from stelae.spi.ids import LogId


class LogRetention(Invariant):
    """No replica ever needs a copy, because no log is collected beyond what every other replica holds durably.

    Runs set no ``lagging_peer_bytes_max``, so nothing excuses a replica that is down, or behind, or unknown to a new
    leader. A replica that has failed for good does not count: nothing brings it back."""

    name: ClassVar[str] = "log_retention"
    source: ClassVar[str] = "durability.md rule 4, ADR 55"

    def on_collect(self, node: ObservedNode, log: LogId, upto: int) -> None:
        """Compare what may go with what the slowest replica has."""
        settled = self.world.settled()
        if upto > settled:
            where = f"log {log} of node {node.position}"
            self.fail(f"{where} is collected up to {upto}, the slowest replica holds the entries up to {settled}")

    def on_status(self, node: ObservedNode, before: Status | None, status: Status) -> None:
        """Look for peers that their leader cannot catch up from its log, failed ones included."""
        for peer in status.peers:
            if peer.state == "COPY":
                self.fail(f"node {node.position} leads in term {status.term} and says that {peer.node_id} needs a copy")
