"""Deletes replicas of nodes that are no members any more, as the masters do, while faults happen.

What it has seen may be out of date when the request arrives. The fence must handle that (``durability.md`` rule 27)."""

from __future__ import annotations

import random
from typing import Final

from stelae.sim.draw import pick, skewed
from stelae.sim.hosting.replica_on_disk import ReplicaOnDisk
from stelae.sim.node import SimNode
from stelae.sim.run_parts import RunParts
from stelae.spi.errors import StelaeError

NUMBER: Final = 71
"""Position of the deleter on the network, above all clients and the changer of members."""

PAUSE_US: Final = (20_000, 1_500_000)
"""Shortest and longest time between two requests."""


class ReplicaDeleter:
    """Asks nodes to delete their replicas at random times until ``stopping``."""

    def __init__(self, parts: RunParts, rng: random.Random) -> None:
        self._parts = parts
        self._rng = rng
        self.stopping = False

    def start(self) -> None:
        """Begin to delete replicas, in runs with copies."""
        if self._parts.profile.copies:
            self._parts.scheduler.after(skewed(self._rng, *PAUSE_US), "deleter.act", self._act)

    def _act(self) -> None:
        if self.stopping:
            return
        config = self._parts.world.committed_config()
        removed = [
            node
            for node in self._parts.nodes
            if config.member(node.view.node_id) is None and node.view.on_disk is ReplicaOnDisk.WHOLE
        ]
        if removed:
            self._delete(pick(self._rng, removed))
        self.start()

    def _delete(self, node: SimNode) -> None:
        """Ask with the config that the node knows, as it has reported it, if that one does not list the node."""
        status, target = node.view.status, node.view.position
        if status is None or status.committed_config.member(node.view.node_id) is not None:
            seen = self._parts.world.committed_config().op_id
        else:
            seen = status.committed_config.op_id

        def done(error: StelaeError | None) -> None:
            self._parts.coverage.hit("deletions.done" if error is None else f"deletions.{error.code.lower()}")

        def arrived() -> None:
            node.delete_replica(seen, done)

        self._parts.network.send((len(self._parts.nodes) + NUMBER, target), "delete", lambda: node.run(arrived))
