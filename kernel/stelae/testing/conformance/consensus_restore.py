"""Conformance checks for consensus engines: what durable state a core accepts, and how a core without a log votes."""

from __future__ import annotations

import random

import pytest

from stelae.spi.consensus import RECOVERS, REPLICATES, ConsensusCore, HardState, LogView, Role
from stelae.spi.consensus_events import (
    AbortChange,
    ChangeMembers,
    Event,
    MergeMetadata,
    Proposal,
    Propose,
    ReadRequest,
    RecoverAlone,
    StandDown,
    Transfer,
)
from stelae.spi.errors import Corrupt
from stelae.spi.ids import ZERO, OpId
from stelae.spi.log import EntryKind
from stelae.spi.members import Member, RemoveServer, TabletConfig
from stelae.spi.recovery_epoch import first_term
from stelae.testing.conformance.consensus_disk import ConsensusDisk
from stelae.testing.conformance.consensus_harness import ConsensusHarness
from stelae.testing.conformance.consensus_nodes import node_name

CONTRADICTIONS = {
    "the log has a later term than the metadata": (HardState(1, node_name(1)), 0, 0),
    "entries above the end of the log are committed": (HardState(2, node_name(1)), 5, 0),
    "entries that are not committed are applied": (HardState(2, node_name(1)), 1, 2),
}
"""A hard state, commit index and applied index that do not fit to a log up to 2.3."""


class RestoreChecks:
    """Checks of ``restore`` and ``restore_voter``; part of ``ConsensusConformance``."""

    @pytest.mark.parametrize(("hard_state", "commit", "applied"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
    def test_durable_state_that_contradicts_itself_is_refused(
        self, harness: ConsensusHarness, hard_state: HardState, commit: int, applied: int
    ) -> None:
        """Metadata that was lost has forgotten votes. A replica that goes on with it may vote twice in a term."""
        alone = TabletConfig(op_id=OpId(1, 1), members=(Member(node_id=node_name(1), address="node-1:1"),))
        log = LogView(base=ZERO, last=OpId(2, 3), term_runs=((1, 1), (2, 2)), configs=(alone,))
        with pytest.raises(Corrupt) as caught:
            harness.engine.restore(
                node_id=node_name(1),
                hard_state=hard_state,
                log=log,
                commit=commit,
                applied=applied,
                committed_config=alone,
                config=harness.config,
                rng=random.Random(1),
                now_us=0,
            )
        assert "; " in str(caught.value), "the error does not say what to do next"

    def test_a_replica_votes_for_no_log_that_ends_before_what_its_node_has_acknowledged(
        self, harness: ConsensusHarness
    ) -> None:
        """It has lost its replica and begins anew. Its vote would let a log win that lacks committed entries."""
        cluster = harness.led()
        first = cluster.nodes[1].status.last
        cluster.isolate(2)
        cluster.propose(1, b"a", b"b")
        cluster.deliver_all()
        node = cluster.nodes[3]
        cluster.crash(1)
        cluster.crash(3)
        node.disk = ConsensusDisk(node.disk.config, first, node.disk.hard_state, commit_hint=first.index)
        node.disk.vote_floor = OpId(1, 3)
        cluster.heal()
        cluster.start(3)
        cluster.advance(10 * cluster.timeout_us)
        assert cluster.role(2) is not Role.LEADER and cluster.role(3) is not Role.LEADER
        cluster.start(1)
        cluster.advance(10 * cluster.timeout_us)
        assert cluster.nodes[3].status.last >= OpId(1, 3)
        cluster.crash(1)
        cluster.advance(6 * cluster.timeout_us)
        leader = cluster.leader()
        assert leader is not None and leader.status.serving, "its log has reached the floor, so it votes again"

    @pytest.mark.parametrize("has_log", [True, False])
    def test_a_vote_that_may_have_been_promised_before_a_restart_is_withheld(
        self, harness: ConsensusHarness, has_log: bool
    ) -> None:
        """A leader may answer reads by that promise. Another leader would let these reads miss its writes."""
        cluster = harness.led()
        node, last = cluster.nodes[3], cluster.nodes[3].status.last
        cluster.crash(1)
        cluster.crash(3)
        state = node.disk.hard_state
        node.disk.hard_state = HardState(state.term, state.voted_for, 5 * cluster.timeout_us)
        if has_log:
            cluster.start(3)
        else:
            node.readies.clear()
            node.core = self._voter(harness, node.disk.hard_state, last, cluster.now_us)
        cluster.advance(4 * cluster.timeout_us)
        assert cluster.role(2) is not Role.LEADER and cluster.role(3) is not Role.LEADER
        cluster.advance(8 * cluster.timeout_us)
        assert cluster.leader() is not None

    # -- without a log -----------------------------------------------------------------------------

    @pytest.mark.parametrize("promised_us", [0, 7_000_000])
    def test_a_copy_brings_the_term_of_its_source_and_never_a_vote(
        self, harness: ConsensusHarness, promised_us: int
    ) -> None:
        """A vote that is forgotten in its term could be given again. The source's vote is that of another member."""
        harness.needs(REPLICATES)
        before = HardState(3, node_name(1), promised_us)
        for term in (1, 3):
            core = self._voter(harness, before)
            core.step([MergeMetadata(term)])
            ready = core.take_ready()
            assert ready is None or ready.hard_state in (None, before)
            assert (core.status().term, core.status().voted_for) == (3, node_name(1))
        core = self._voter(harness, before)
        core.step([MergeMetadata(4)])
        ready = core.take_ready()
        assert ready is not None and ready.hard_state == HardState(4, None, promised_us)
        assert (core.status().term, core.status().voted_for) == (4, None)

    def test_a_replica_without_a_log_answers_every_request(self, harness: ConsensusHarness) -> None:
        """Otherwise the driver would wait for the answer for ever."""
        core = self._voter(harness, HardState(3, None))
        requests: list[Event] = [
            Propose((Proposal(1, EntryKind.WRITE, b"a"), Proposal(2, EntryKind.WRITE, b"b"))),
            ReadRequest(3),
            Transfer(4, None),
            ChangeMembers(5, RemoveServer(node_id=node_name(1))),
            AbortChange(6),
        ]
        if RECOVERS in harness.engine.capabilities:
            requests += [RecoverAlone(7, first_term(1, 1), ZERO, ZERO), StandDown(8, first_term(1, 1), node_name(1))]
        core.step(requests)
        ready = core.take_ready()
        assert ready is not None
        tokens = 6 if RECOVERS not in harness.engine.capabilities else 8
        assert [(r.token, r.reason.value) for r in ready.rejections] == [
            (n, "NOT_LEADER") for n in range(1, tokens + 1)
        ]
        assert core.next_deadline() is None and core.status().role is Role.NON_PARTICIPANT

    def _voter(
        self, harness: ConsensusHarness, hard_state: HardState, last: OpId | None = OpId(2, 5), now_us: int = 0
    ) -> ConsensusCore:
        return harness.engine.restore_voter(
            node_id=node_name(3), hard_state=hard_state, last=last, config=harness.config, now_us=now_us
        )
