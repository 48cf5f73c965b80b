"""Which copies a stopped master may ask for by itself, and from whom."""

from __future__ import annotations

import msgspec
import pytest

from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.protocol.member_messages import ConfigView
from stelae.server.tserver.stopped_node_copy import copy_order, still_leads
from stelae.spi.errors import MemberChangeRefused
from stelae.spi.ids import NodeId, OpId
from stelae.spi.members import Member, MemberType, TabletConfig

OWN, LEADER, OTHER = (NodeId(letter * 32) for letter in "abc")
VOTERS = (Member(node_id=OTHER, address="c:1"), Member(node_id=LEADER, address="b:1"))


def view(*more: Member, former: tuple[NodeId, ...] = (), committed: TabletConfig | None = None) -> ConfigView:
    config = TabletConfig(op_id=OpId(3, 9), members=(*more, *VOTERS), former_voters=former)
    return ConfigView(
        tablet_id=SYSTEM_TABLET,
        node_id=LEADER,
        role="LEADER",
        term=4,
        leader=LEADER,
        config=config,
        committed=committed or config,
        last=OpId(4, 12),
        log_base=OpId(2, 5),
    )


def own(kind: MemberType, **more: bool) -> Member:
    return Member(node_id=OWN, address="a:1", member_type=kind, **more)


def test_a_new_member_is_copied_from_the_leader_first_and_then_from_the_other_voters() -> None:
    asked = copy_order(view(own(MemberType.PRE_VOTER)), OWN, "raft", "system catalog")
    assert [source.address for source in asked.sources] == ["b:1", "c:1"]
    assert (asked.to, asked.leader, asked.term, asked.config) == (OWN, LEADER, 4, OpId(3, 9))
    assert asked.member_type is MemberType.PRE_VOTER and asked.log_base == OpId(2, 5) and not asked.hosted


def test_a_node_that_is_no_member_yet_may_be_copied_to() -> None:
    assert copy_order(view(), OWN, "raft", "").member_type is MemberType.PRE_VOTER


@pytest.mark.parametrize(
    "seen",
    [
        view(own(MemberType.VOTER)),
        view(own(MemberType.NON_VOTER, was_voter=True)),
        view(former=(OWN,)),
        view(committed=TabletConfig(op_id=OpId(3, 8), members=(own(MemberType.VOTER), *VOTERS))),
        view(committed=TabletConfig(op_id=OpId(3, 8), members=VOTERS, former_voters=(OWN,))),
        view(
            own(MemberType.PRE_VOTER),
            committed=TabletConfig(op_id=OpId(3, 8), members=(own(MemberType.VOTER), *VOTERS)),
        ),
    ],
    ids=["voter", "demoted", "former voter", "removal pending", "former by the committed config", "demotion pending"],
)
def test_a_uuid_that_has_or_had_a_vote_is_refused_because_an_empty_directory_knows_no_promise(seen: ConfigView) -> None:
    with pytest.raises(MemberChangeRefused, match=r"has, or had, a vote .*new uuid.*nothing was changed"):
        copy_order(seen, OWN, "raft", "")


def told(*answers: tuple[NodeId, int]) -> list[ConfigView]:
    """What masters answer, by their terms."""
    return [msgspec.structs.replace(view(), node_id=node, term=term) for node, term in answers]


def test_a_leader_is_believed_only_while_a_majority_of_both_configs_knows_no_later_term() -> None:
    third = Member(node_id=NodeId("d" * 32), address="d:1")
    seen = view(third)
    assert still_leads(seen, told((LEADER, 4), (OTHER, 4)))
    assert still_leads(seen, told((LEADER, 4), (OTHER, 3)))  # A follower that lags has voted in no later term.
    assert not still_leads(seen, told((LEADER, 4), (OTHER, 5)))
    assert not still_leads(seen, told((LEADER, 4)))
    assert not still_leads(seen, told((LEADER, 4), (OWN, 4)))
    alone = TabletConfig(op_id=OpId(3, 8), members=(Member(node_id=LEADER, address="b:1"),))
    assert not still_leads(view(third, committed=alone), told((LEADER, 4)))
    assert not still_leads(view(third, committed=alone), told((OTHER, 4), (third.node_id, 4)))


def test_a_learner_confirms_nothing() -> None:
    seen = view(own(MemberType.PRE_VOTER))
    assert not still_leads(seen, told((LEADER, 4), (OWN, 4)))
    assert still_leads(seen, told((LEADER, 4), (OTHER, 4)))
