"""Conformance checks for consensus engines that lack a capability: they refuse what they cannot do, and say so."""

from __future__ import annotations

import random

import pytest

from stelae.spi.consensus import CHANGES_MEMBERS, REPLICATES, HardState, LogView
from stelae.spi.errors import ConfigError
from stelae.spi.ids import ZERO, OpId
from stelae.spi.members import AddServer, ChangeRole, Member, MemberChange, MemberType, RemoveServer, TabletConfig
from stelae.testing.conformance.consensus_harness import ConsensusHarness
from stelae.testing.conformance.consensus_nodes import node_name


def _config(*members: tuple[int, MemberType], op_id: OpId = ZERO) -> TabletConfig:
    made = (Member(node_id=node_name(n), address=f"node-{n}:1", member_type=kind) for n, kind in members)
    return TabletConfig(op_id=op_id, members=tuple(made))


_VOTER, _LEARNER = MemberType.VOTER, MemberType.NON_VOTER

CHANGES: list[MemberChange] = [
    AddServer(node_id=node_name(2), address="node-2:1"),
    RemoveServer(node_id=node_name(1)),
    ChangeRole(node_id=node_name(1), member_type=_LEARNER),
]


class FixedMembersChecks:
    """Checks of engines without a capability; part of ``ConsensusConformance``."""

    @pytest.mark.parametrize("change", CHANGES)
    def test_a_change_is_rejected_by_an_engine_that_does_not_change_members(
        self, harness: ConsensusHarness, change: MemberChange
    ) -> None:
        _lacks(harness, CHANGES_MEMBERS)
        cluster = harness.led(1)
        before = cluster.nodes[1].status
        token = cluster.change(1, change)
        assert cluster.rejected.get(token) == "UNSUPPORTED"
        assert cluster.rejections[token].detail, "the rejection does not say what to do instead"
        assert cluster.nodes[1].status == before

    def test_an_engine_that_does_not_change_members_has_nothing_to_abort(self, harness: ConsensusHarness) -> None:
        _lacks(harness, CHANGES_MEMBERS)
        cluster = harness.led(1)
        token = cluster.abort(1)
        assert cluster.rejected == {token: "NO_CHANGE"} and cluster.rejections[token].detail

    @pytest.mark.parametrize(
        "members",
        [
            ((1, _VOTER), (2, _VOTER), (3, _VOTER)),
            ((1, _VOTER), (2, MemberType.PRE_VOTER)),
            ((2, _VOTER),),
            ((1, _LEARNER),),
            ((1, MemberType.WITNESS),),
            (),
        ],
    )
    def test_other_members_than_the_node_are_refused_by_an_engine_that_does_not_replicate(
        self, harness: ConsensusHarness, members: tuple[tuple[int, MemberType], ...]
    ) -> None:
        _lacks(harness, REPLICATES)
        wrong = _config(*members, op_id=OpId(1, 1))
        with pytest.raises(ConfigError) as checked:
            harness.engine.check_members(node_name(1), wrong)
        assert checked.value.hint, "the refusal does not say what to do instead"
        last = OpId(1, 1)
        log = LogView(base=ZERO, last=last, term_runs=((1, 1),), configs=(wrong,))
        for committed in (wrong, _config((1, _VOTER))):
            with pytest.raises(ConfigError):
                harness.engine.restore(
                    node_id=node_name(1),
                    hard_state=HardState(1, node_name(1)),
                    log=log,
                    commit=0,
                    applied=0,
                    committed_config=committed,
                    config=harness.config,
                    rng=random.Random(1),
                    now_us=0,
                )

    def test_a_config_with_this_node_alone_is_accepted(self, harness: ConsensusHarness) -> None:
        harness.engine.check_members(node_name(1), _config((1, _VOTER)))


def _lacks(harness: ConsensusHarness, capability: str) -> None:
    """Skip the check if the engine declares a capability."""
    if capability in harness.engine.capabilities:
        pytest.skip(f"the consensus engine {harness.engine.name!r} declares {capability!r}")
