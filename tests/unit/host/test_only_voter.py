"""The only voter of a config takes nothing from a node with a newer config: that is of another tablet (ADR 80)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from stelae.host.peer_traffic import PeerTraffic
from stelae.spi.errors import PeerError
from stelae.spi.ids import NodeId, OpId, TabletId
from stelae.spi.members import Member, MemberType, TabletConfig
from stelae.spi.recovery_epoch import first_term

ME, OTHER, STRANGER = (NodeId(letter * 32) for letter in "abc")


def check(config: TabletConfig, sender: NodeId, known: OpId) -> None:
    """Let a message of a sender arrive that knows a committed config."""
    status: Any = SimpleNamespace(node_id=ME, term=3, config=config, committed_config=config)
    message: Any = SimpleNamespace(header=SimpleNamespace(tablet_id=TabletId("t"), config=known))
    PeerTraffic(MagicMock(), MagicMock(), MagicMock(), 1, MagicMock())._check_sender(sender, message, status)


def of(*members: Member) -> TabletConfig:
    return TabletConfig(op_id=OpId(1, 1), members=members)


ALONE = of(Member(node_id=ME, address="a:1"))
LEARNER = of(*ALONE.members, Member(node_id=OTHER, address="b:1", member_type=MemberType.PRE_VOTER))
PAIR = of(*ALONE.members, Member(node_id=OTHER, address="b:1"))


@pytest.mark.parametrize("config", [ALONE, LEARNER])
def test_the_only_voter_refuses_a_node_with_a_newer_config(config: TabletConfig) -> None:
    """It was formatted anew under its old uuid, and would vote without what it has promised."""
    with pytest.raises(PeerError, match="is not a member of tablet t"):
        check(config, STRANGER, OpId(2, 9))


def test_one_of_several_voters_hears_members_that_were_added_since() -> None:
    check(PAIR, STRANGER, OpId(2, 9))


def test_the_only_voter_hears_its_learner_and_who_has_recovered_the_tablet_without_it() -> None:
    check(LEARNER, OTHER, OpId(1, 1))
    check(ALONE, STRANGER, OpId(first_term(1, 1), 9))
