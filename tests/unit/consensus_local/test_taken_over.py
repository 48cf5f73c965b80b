"""Raft continues the log of a local tablet, and the local engine that of a Raft tablet with one voter."""

from __future__ import annotations

import random
from typing import Any

import pytest

from stelae.spi.consensus import ConsensusEngine
from stelae.spi.log import EntryKind
from stelae.testing.conformance import consensus_single_voter
from stelae.testing.conformance.consensus_cluster import ConsensusCluster
from stelae_consensus_local import LocalEngine
from stelae_consensus_local.config import LocalConfig
from stelae_consensus_raft import RaftEngine
from stelae_consensus_raft.config import RaftConfig

LOCAL: tuple[type[ConsensusEngine], Any] = (LocalEngine, LocalConfig())
RAFT: tuple[type[ConsensusEngine], Any] = (RaftEngine, RaftConfig())
SEEDS = range(12)


def change_engine(cluster: ConsensusCluster, to: tuple[type[ConsensusEngine], Any]) -> None:
    """Crash the node, and start its files under another engine."""
    cluster.crash(1)
    cluster.engine, cluster.config = to
    cluster.start(1)
    cluster.advance(4 * cluster.timeout_us)
    assert cluster.nodes[1].status.serving


def committed(cluster: ConsensusCluster) -> list[bytes]:
    return [e.body for e in cluster.nodes[1].disk.entries if e.kind is EntryKind.WRITE]


@pytest.mark.parametrize("seed", SEEDS)
def test_engines_take_over_from_each_other_after_any_history(seed: int) -> None:
    """The cluster checks that committed entries stay, that terms and votes never go back, and that no term repeats."""
    rng = random.Random(seed)
    ways = [LOCAL, RAFT, LOCAL, RAFT] if seed % 2 else [RAFT, LOCAL, RAFT]
    cluster = ConsensusCluster(*ways[0], size=1)
    for engine in ways:
        change_engine(cluster, engine)
        consensus_single_voter.random_history(cluster, rng)
        before = committed(cluster)
        cluster.propose(1, b"then")
        assert cluster.bodies(1) == [*before, b"then"]
    op_ids = [entry.op_id for entry in cluster.nodes[1].log]
    assert op_ids == sorted(set(op_ids))


def test_a_tablet_that_was_local_grows_to_three_members_under_raft() -> None:
    cluster = ConsensusCluster(*LOCAL, size=1)
    cluster.advance(cluster.timeout_us)
    cluster.propose(1, b"a", b"b")
    change_engine(cluster, RAFT)
    cluster.propose(1, b"c")
    for number in (2, 3):
        cluster.join(number)
        token = cluster.add(1, number)
        cluster.deliver_all()
        cluster.advance(4 * cluster.timeout_us)
        assert token in cluster.changed
    cluster.crash(1)
    cluster.advance(6 * cluster.timeout_us)
    leader = cluster.leader()
    assert leader is not None and leader.number in (2, 3)
    assert cluster.bodies(leader.number) == [b"a", b"b", b"c"]
