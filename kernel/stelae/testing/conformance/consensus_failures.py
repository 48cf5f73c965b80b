"""Conformance checks for consensus engines: failing disks, restarts, and replicas without a log."""

from __future__ import annotations

import random

import pytest

from stelae.spi.consensus import HardState, Role
from stelae.spi.ids import OpId
from stelae.testing.conformance.consensus_cluster import ConsensusCluster
from stelae.testing.conformance.consensus_disk import ConsensusDisk, effects_of
from stelae.testing.conformance.consensus_harness import ConsensusHarness
from stelae.testing.conformance.consensus_nodes import node_name


class ConsensusFailureChecks:
    """Checks of failures and restarts; part of ``ConsensusConformance``."""

    def test_a_leader_whose_log_fails_steps_down_and_loses_its_unsynced_entries(
        self, harness: ConsensusHarness
    ) -> None:
        cluster = harness.led()
        cluster.isolate(1)
        cluster.nodes[1].holds = True
        cluster.propose(1, b"lost")
        cluster.fail_persist(1)
        status = cluster.nodes[1].status
        assert status.role is Role.FOLLOWER
        assert status.last == OpId(1, 1) and status.durable_index == 1

    def test_a_follower_whose_log_fails_acknowledges_nothing_and_recovers(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.crash(3)
        cluster.nodes[2].holds = True
        cluster.propose(1, b"a")
        cluster.deliver_all()
        cluster.fail_persist(2)
        cluster.deliver_all()
        assert cluster.nodes[1].status.commit == 1
        cluster.nodes[2].holds = False
        while cluster.nodes[2].pending:
            cluster.persist(2)
        cluster.advance(8 * cluster.timeout_us)
        assert cluster.bodies(1) == cluster.bodies(2) == [b"a"]

    def test_a_replica_restarts_from_every_prefix_of_its_durable_effects(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.propose(1, b"a", b"b")
        cluster.deliver_all()
        cluster.isolate(2)
        cluster.propose(1, b"c")
        cluster.crash(1)
        cluster.advance(5 * cluster.timeout_us, beats=False)
        cluster.heal()
        cluster.start(1)
        cluster.advance(5 * cluster.timeout_us)
        for number in cluster.nodes:
            self._restart_from_every_prefix(harness, cluster, number)

    def _restart_from_every_prefix(self, harness: ConsensusHarness, cluster: ConsensusCluster, number: int) -> None:
        node = cluster.nodes[number]
        disk = ConsensusDisk(cluster.initial)
        effects = [e for r in node.readies for e in effects_of(r, node.log, disk.base)]
        assert len(effects) > 4
        for effect in effects:
            effect(disk)
            core = harness.engine.restore(
                node_id=node_name(number),
                hard_state=disk.hard_state,
                log=disk.view(),
                commit=0,
                applied=0,
                committed_config=disk.config,
                config=harness.config,
                rng=random.Random(1),
                now_us=0,
            )
            core.validate_state()
            status = core.status()
            assert (status.term, status.voted_for) == (disk.hard_state.term, disk.hard_state.voted_for)
            assert status.last == disk.last
            assert status.durable_index == disk.last.index
            assert status.commit == 0 and not status.serving

    # -- the voting core --------------------------------------------------------------------------

    def _replace_node_3_by_a_voting_core(self, cluster: ConsensusCluster, last: OpId | None) -> None:
        cluster.crash(3)
        node = cluster.nodes[3]
        node.readies.clear()
        node.core = cluster.engine.restore_voter(
            node_id=node_name(3),
            hard_state=node.disk.hard_state,
            last=last,
            config=cluster.config,
            now_us=cluster.now_us,
        )

    def test_a_tombstone_votes_and_does_nothing_else(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        self._replace_node_3_by_a_voting_core(cluster, OpId(1, 1))
        cluster.crash(1)
        cluster.advance(4 * cluster.timeout_us)
        assert cluster.nodes[2].status.role is Role.LEADER
        assert cluster.nodes[3].disk.hard_state.voted_for == node_name(2)
        assert cluster.nodes[3].status.role is Role.NON_PARTICIPANT
        assert not cluster.nodes[2].status.serving, "a tombstone acknowledged entries"
        wanted = [r for ready in cluster.nodes[2].readies for r in ready.copy_requests]
        assert node_name(3) in {request.peer for request in wanted}

    @pytest.mark.parametrize("last", [None, OpId(9, 9)])
    def test_a_tombstone_with_a_longer_or_unknown_log_withholds_its_vote(
        self, harness: ConsensusHarness, last: OpId | None
    ) -> None:
        cluster = harness.led()
        cluster.nodes[3].disk.hard_state = HardState(9 if last else 1, None)
        self._replace_node_3_by_a_voting_core(cluster, last)
        cluster.crash(1)
        cluster.advance(8 * cluster.timeout_us)
        assert cluster.nodes[2].status.role is not Role.LEADER
        assert cluster.nodes[3].disk.hard_state.voted_for is None
