"""The tap on a core knows what every message depends on, and reports one that its core has not returned."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from stelae.sim.tap_core import CoreTap, VoterTap
from stelae.sim.world import Needs
from stelae.spi.consensus import ConsensusCore, HardState, Outbound, Ready
from stelae_consensus_raft.messages import VoteReply
from tests.unit.sim.rig import NAMES, Rig

VOTED = HardState(2, NAMES[1])


def reply() -> VoteReply:
    return VoteReply(term=2, campaign_term=2, attempt=1, pre=False, refusal=None)


def core_that_returns(ready: Ready) -> ConsensusCore:
    return cast(ConsensusCore, SimpleNamespace(take_ready=lambda: ready, status=lambda: None))


@pytest.mark.parametrize("make", [CoreTap, lambda *known: VoterTap(*known, HardState(1, None))])
def test_a_message_that_is_sent_must_be_one_that_the_core_has_returned(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, message = Rig(), reply()
    monkeypatch.setattr(rig.facts, "status", lambda node, status: None)
    ready = Ready(id=1, hard_state=VOTED, after_persist=(Outbound(NAMES[1], message, 2),))
    tap = make(core_that_returns(ready), rig.world.nodes[0], rig.facts)
    tap.take_ready()
    assert tap.needs_of(message).hard_state == VOTED
    assert rig.violated is None
    assert tap.needs_of(reply()) == Needs(HardState())
    assert rig.violated == "persist_before_send"
