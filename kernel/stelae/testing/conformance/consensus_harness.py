"""The harness that makes clusters of the consensus engine under test."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from stelae.spi.consensus import REPLICATES, ConsensusEngine
from stelae.spi.consensus_events import Campaign
from stelae.spi.members import MemberType
from stelae.testing.conformance.consensus_cluster import ConsensusCluster


@dataclass(slots=True)
class ConsensusHarness:
    """Makes clusters of one engine.

    Attributes:
        engine: the engine under test.
        config: its ``Config``.
        election_timeout_us: the election timeout that ``config`` sets.
        member_join_timeout_us: how long ``config`` lets a new member be silent before it is removed.
        clusters: the clusters made so far.
    """

    engine: type[ConsensusEngine]
    config: Any
    election_timeout_us: int
    member_join_timeout_us: int = 60_000_000
    clusters: list[ConsensusCluster] = field(default_factory=list)

    def cluster(self, size: int = 3, *learners: MemberType, seed: int = 0) -> ConsensusCluster:
        """Make a cluster of ``size`` voters, and learners after them.

        If it has several members, the check is skipped unless the engine declares ``replicates``."""
        if size + len(learners) > 1:
            self.needs(REPLICATES)
        cluster = ConsensusCluster(
            self.engine,
            self.config,
            size,
            election_timeout_us=self.election_timeout_us,
            member_types=learners,
            seed=seed,
        )
        self.clusters.append(cluster)
        return cluster

    def needs(self, capability: str) -> None:
        """Skip the check, with the reason, unless the engine declares a capability."""
        if capability not in self.engine.capabilities:
            pytest.skip(f"the consensus engine {self.engine.name!r} does not declare {capability!r}")

    def led(self, size: int = 3, *learners: MemberType) -> ConsensusCluster:
        """Make a cluster that node 1 leads, with the first entry committed everywhere."""
        cluster = self.cluster(size, *learners)
        cluster.step(1, Campaign())
        cluster.deliver_all()
        assert cluster.nodes[1].status.serving
        return cluster
