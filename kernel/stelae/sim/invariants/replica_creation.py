"""The creation of a replica leaves nothing or a whole replica, and never replaces one that the node has or had."""

from __future__ import annotations

from typing import ClassVar

from stelae.sim.hosting.replica_on_disk import ReplicaOnDisk
from stelae.sim.invariants.base import Invariant
from stelae.sim.world import ObservedNode


class ReplicaCreation(Invariant):
    """A replica is created only on a node that never had one. It exists from its superblock on, until it is deleted.

    A node that lost its replica has lost votes and entries that others rely on. It gets no empty one under its uuid."""

    name: ClassVar[str] = "replica_creation"
    source: ClassVar[str] = "durability.md rules 19 and 22; ADR 70"

    def on_replica_on_disk(self, node: ObservedNode, state: ReplicaOnDisk) -> None:
        """Check that a creation which begins replaces nothing."""
        if state is not ReplicaOnDisk.BEGUN:
            return
        if node.given_up:
            self.fail(f"node {node.position} has lost its replica, and creates an empty one under the same uuid")
        elif node.on_disk is ReplicaOnDisk.WHOLE:
            self.fail(f"node {node.position} creates an empty replica over the one that it has")
        elif node.on_disk is ReplicaOnDisk.TOMBSTONE:
            self.fail(f"node {node.position} creates an empty replica over a tombstone")

    def on_replica_found(self, node: ObservedNode, *, exists: bool) -> None:
        """Check that a started node has a replica if and only if its creation was completed."""
        if node.on_disk in (ReplicaOnDisk.ENDING, ReplicaOnDisk.LEAVING) or exists == (
            node.on_disk is ReplicaOnDisk.WHOLE
        ):
            return
        if exists:
            self.fail(f"node {node.position} starts with a replica, but no creation had come to its superblock")
        else:
            self.fail(f"node {node.position} starts without the replica that it had")
