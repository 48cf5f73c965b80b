"""Followers of an idle tablet hear that all members have the log, once, and only if that frees much of it."""

from __future__ import annotations

from stelae.testing.conformance.consensus_cluster import ConsensusCluster
from stelae.testing.conformance.consensus_nodes import node_name
from stelae_consensus_raft import RaftEngine
from stelae_consensus_raft.replication import IDLE_LOG_BYTES, IDLE_RETRIES

IDLE_US = RaftEngine.Config().append_retry_ms * 1000 * IDLE_RETRIES


def caught_up(size: int) -> ConsensusCluster:
    """A cluster in which node 3 has just got the last entry, of some size; node 2 has been idle since it had that."""
    cluster = ConsensusCluster(RaftEngine, RaftEngine.Config())
    cluster.elect(1)
    cluster.isolate(3)
    cluster.propose(1, bytes(size))
    cluster.advance(4 * IDLE_US)
    cluster.heal()
    while cluster.nodes[1].status.all_replicated_index < cluster.nodes[1].status.last.index:
        cluster.advance(10_000)
    return cluster


def known(cluster: ConsensusCluster) -> list[int]:
    return [node.status.all_replicated_index for node in cluster.nodes.values()]


def sent(cluster: ConsensusCluster) -> int:
    """Messages of the leader to node 2."""
    readies = cluster.nodes[1].readies
    return sum(message.to == node_name(2) for ready in readies for message in (*ready.at_once, *ready.ranges))


def test_a_follower_that_keeps_much_hears_of_it_once() -> None:
    """Where one caught up after a long absence, the other followers kept all of their log until the next write."""
    cluster = caught_up(IDLE_LOG_BYTES)
    last_index = cluster.nodes[1].status.last.index
    assert known(cluster)[1] < last_index
    before = sent(cluster)
    cluster.advance(IDLE_US)
    assert known(cluster)[1] == last_index and sent(cluster) == before + 1
    cluster.advance(20 * IDLE_US)
    assert sent(cluster) == before + 1


def test_a_little_log_is_not_worth_a_message() -> None:
    cluster = caught_up(IDLE_LOG_BYTES // 2)
    before = sent(cluster)
    cluster.advance(20 * IDLE_US)
    assert sent(cluster) == before and known(cluster)[1] < known(cluster)[0]


def test_while_entries_flow_no_message_is_sent_for_it() -> None:
    cluster = caught_up(IDLE_LOG_BYTES)
    for _ in range(30):
        cluster.propose(1, bytes(IDLE_LOG_BYTES))
        cluster.deliver_all()
        before = sent(cluster)
        cluster.advance(RaftEngine.Config().append_retry_ms * 1000 - 1)
        assert sent(cluster) == before
    assert min(known(cluster)) >= cluster.nodes[1].status.last.index - 1
