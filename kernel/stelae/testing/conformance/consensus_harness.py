"""Makes clusters of the consensus engine under test."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stelae.spi.consensus import Campaign, ConsensusEngine, MemberType
from stelae.testing.conformance.consensus_cluster import ConsensusCluster


@dataclass(slots=True)
class ConsensusHarness:
    """Makes clusters of one engine, and validates them when the test is over."""

    engine: type[ConsensusEngine]
    config: Any
    election_timeout_us: int
    clusters: list[ConsensusCluster] = field(default_factory=list)

    def cluster(self, size: int = 3, *learners: MemberType, seed: int = 0) -> ConsensusCluster:
        """A cluster of ``size`` voters, and learners after them."""
        made = ConsensusCluster(
            self.engine,
            self.config,
            size,
            election_timeout_us=self.election_timeout_us,
            member_types=learners,
            seed=seed,
        )
        self.clusters.append(made)
        return made

    def led(self, size: int = 3, *learners: MemberType) -> ConsensusCluster:
        """A cluster that node 1 leads, with the first entry committed everywhere."""
        made = self.cluster(size, *learners)
        made.step(1, Campaign())
        made.deliver_all()
        assert made.nodes[1].status.serving
        return made
