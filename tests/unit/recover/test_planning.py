"""Which tablets are recovered, from which survivor, and what is said to be lost."""

from __future__ import annotations

import msgspec
import pytest

from stelae.protocol.recovery_messages import SurvivorView
from stelae.recover.plan import BadPlan, NotPlanned, RecoveryPlan, TabletPlan, decode_plan, encode_plan
from stelae.recover.planning import KnownTablet, SurveyedNode, plan_tablet
from stelae.spi.ids import NodeId, OpId, TabletId
from stelae.spi.members import Member, MemberType, TabletConfig
from stelae.spi.recovery_epoch import first_term

TABLET = TabletId("t")
A, B, C, D, E = (NodeId(letter * 32) for letter in "abcde")


def address(node: NodeId) -> str:
    return f"{node[0]}:1"


def config(*voters: NodeId, op_id: OpId = OpId(1, 1), witness: NodeId | None = None) -> TabletConfig:
    kinds = [(node, MemberType.VOTER) for node in voters] + ([(witness, MemberType.WITNESS)] if witness else [])
    members = tuple(Member(node_id=n, address=address(n), member_type=kind) for n, kind in sorted(kinds))
    return TabletConfig(op_id=op_id, members=members)


def view(
    last: OpId, *, term: int = 5, commit: int = 0, members: TabletConfig | None = None, **more: object
) -> SurvivorView:
    found = SurvivorView(
        tablet_id=TABLET, state="CONFIGURING", role="FOLLOWER", term=term, last=last, commit=commit, config=members
    )
    return msgspec.structs.replace(found, **more)


def plan(views: dict[NodeId, SurvivorView | str], tablet: KnownTablet | None = None) -> TabletPlan | NotPlanned:
    """The plan for nodes that answer with a view, or do not answer for a reason."""
    nodes = {}
    for node, found in views.items():
        problem, seen = (found, {}) if isinstance(found, str) else ("", {TABLET: found})
        nodes[node] = SurveyedNode(node_id=node, address=address(node), problem=problem, views=seen, silent_ms=9000)
    return plan_tablet(tablet or KnownTablet(tablet_id=TABLET, table="t", replicas_wanted=3), nodes, 7)


def planned(views: dict[NodeId, SurvivorView | str], tablet: KnownTablet | None = None) -> TabletPlan:
    found = plan(views, tablet)
    assert isinstance(found, TabletPlan), found
    return found


def left_alone(views: dict[NodeId, SurvivorView | str], tablet: KnownTablet | None = None) -> NotPlanned:
    found = plan(views, tablet)
    assert isinstance(found, NotPlanned)
    return found


FIVE = config(A, B, C, D, E)
DOWN = "its server does not answer"


def test_the_survivor_whose_log_ends_last_is_chosen_by_term_first() -> None:
    found = planned(
        {
            A: view(OpId(4, 90), commit=80, members=FIVE),
            B: view(OpId(5, 20), commit=15, members=FIVE),
            C: DOWN,
            D: DOWN,
            E: DOWN,
        }
    )
    assert (found.survivor.node_id, found.last, found.config_id) == (B, OpId(5, 20), OpId(1, 1))
    assert [one.node_id for one in found.ranking] == [B, A]
    assert [one.node_id for one in found.others] == [A]
    assert [one.node_id for one in found.lost] == [C, D, E]
    assert found.term == first_term(1, 7)


def test_the_loss_is_said_in_exact_words() -> None:
    three = config(A, B, C)
    found = planned({A: view(OpId(5, 120), commit=117, members=three, applied_us=1_000_000), B: DOWN, C: DOWN})
    text = "\n".join(found.loss)
    assert "entries after 5.120 that only the lost nodes may have had" in text
    assert "2 of 3 members do not answer" in text
    assert "written at 1970-01-01 00:00:01 UTC" in text
    assert "every entry that any survivor knows to be committed (up to index 117)" in text
    assert "the last 3 entries of the survivor" in text


def test_a_tablet_with_a_leader_or_a_majority_is_left_alone() -> None:
    three = config(A, B, C)
    led = left_alone({A: view(OpId(5, 9), members=three, role="LEADER", serving=True), B: DOWN, C: DOWN})
    assert led.has_majority and "leader" in led.why
    voting = left_alone({A: view(OpId(5, 9), members=three), B: view(OpId(5, 9), members=three), C: DOWN})
    assert voting.has_majority and "2 of its 3 voters" in voting.why


def test_a_majority_by_the_masters_counts_although_the_survivors_know_an_older_config() -> None:
    known = KnownTablet(tablet_id=TABLET, members=((A, address(A)),))
    found = left_alone({A: view(OpId(5, 9), members=config(A, B, C)), B: DOWN, C: DOWN}, known)
    assert found.has_majority


def test_an_older_config_of_the_masters_makes_no_majority_for_survivors_that_need_more() -> None:
    """A is lost, D replaces it, and the second failure hits D while its promotion is replicated.

    The promotion is in the logs of B and C and cannot commit: they need a third vote of four. The masters know the
    config before it for ever, by which B and C are two of three."""
    known = KnownTablet(
        tablet_id=TABLET,
        members=tuple((node, address(node)) for node in (A, B, C, D)),
        learners=(D,),
        config=OpId(2, 30),
    )
    promoted = config(A, B, C, D, op_id=OpId(2, 35))
    both = {B: view(OpId(2, 36), members=promoted), C: view(OpId(2, 35), members=promoted), A: DOWN, D: DOWN}
    assert planned(both, known).survivor.node_id == B
    only_leader = {**both, C: view(OpId(2, 34), members=config(A, B, C, op_id=OpId(1, 1)))}
    assert planned(only_leader, known).survivor.node_id == B


def test_survivors_that_elect_by_the_config_before_are_left_alone_although_another_one_knows_a_newer_one() -> None:
    """The config that only A has was replaced in term 6 by a leader that is lost: B wins with its own vote and A's."""
    known = KnownTablet(tablet_id=TABLET, members=tuple((n, address(n)) for n in (A, B, C)), config=OpId(1, 1))
    found = left_alone(
        {
            A: view(OpId(5, 10), members=config(A, B, C, D, op_id=OpId(5, 10))),
            B: view(OpId(6, 10), members=config(A, B, C)),
            C: DOWN,
            D: DOWN,
        },
        known,
    )
    assert found.has_majority and "2 of its 3 voters" in found.why


def test_a_member_that_the_masters_do_not_know_yet_is_chosen_before_one_that_was_removed() -> None:
    known = KnownTablet(tablet_id=TABLET, members=tuple((node, address(node)) for node in (A, B, C)), config=OpId(1, 1))
    moved = config(A, B, D, op_id=OpId(2, 40))
    found = planned(
        {C: view(OpId(2, 30), members=config(A, B, C)), D: view(OpId(2, 41), members=moved), A: DOWN, B: DOWN}, known
    )
    assert found.survivor.node_id == D


def test_a_witness_is_no_survivor_and_what_only_it_has_is_lost() -> None:
    members = config(A, B, C, D, witness=E)
    found = planned(
        {
            A: view(OpId(5, 20), commit=10, members=members),
            E: view(OpId(5, 25), commit=10, members=members, log_only=True),
            B: DOWN,
            C: DOWN,
            D: DOWN,
        }
    )
    assert found.survivor.node_id == A and [one.node_id for one in found.others] == [E]
    assert any("Lost as well: entries after 5.20" in sentence and "witness" in sentence for sentence in found.loss)
    assert not any("every entry that any survivor knows" in sentence for sentence in found.loss)


def test_without_a_survivor_that_has_rows_the_tablet_is_named_with_every_reason() -> None:
    members = config(A, B, witness=C)
    views = {A: DOWN, B: "node f has its address now", C: view(OpId(5, 2), members=members, log_only=True)}
    found = left_alone(views)
    assert not found.has_majority
    assert all(part in found.why for part in ("witness", DOWN, "node f has its address now", "backup"))


def test_a_replica_that_failed_is_lost() -> None:
    failed = SurvivorView(tablet_id=TABLET, state="FAILED", failure="the disk fails")
    found = planned({A: view(OpId(5, 2), members=config(A, B, C)), B: failed, C: DOWN})
    assert {one.node_id: one.why for one in found.lost}[B] == "FAILED: the disk fails"


def test_replicas_that_a_recovery_left_behind_make_no_majority_and_the_next_epoch_is_higher() -> None:
    three = config(A, B, C)
    term = first_term(3, 1)
    views = {A: view(OpId(5, 9), term=term, members=three), B: view(OpId(5, 8), term=term, members=three), C: DOWN}
    found = planned(views)
    assert found.term == first_term(4, 7) and found.survivor.node_id == A


def test_a_replica_that_was_removed_is_no_survivor() -> None:
    known = KnownTablet(tablet_id=TABLET, members=((B, address(B)), (C, address(C)), (D, address(D))))
    newer = config(B, C, D, op_id=OpId(2, 30))
    found = planned(
        {A: view(OpId(1, 20), members=config(A, B, C)), B: view(OpId(2, 31), members=newer), C: DOWN, D: DOWN}, known
    )
    assert found.survivor.node_id == B
    assert found.ranking[1].unusable == "it was removed from the tablet"


def test_a_plan_is_read_as_it_was_written() -> None:
    whole = RecoveryPlan(made_us=5, tablets=(planned({A: view(OpId(5, 9), members=config(A, B, C)), B: DOWN}),))
    assert decode_plan(encode_plan(whole)) == whole


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"version": 1}', b'{"version": "x"}', b"\xff", b"[" * 100_000])
def test_what_is_no_plan_is_refused_with_the_next_step(text: bytes) -> None:
    with pytest.raises(BadPlan, match="recover plan --out"):
        decode_plan(text)


def test_a_plan_of_another_version_is_refused() -> None:
    with pytest.raises(BadPlan, match="version 2"):
        decode_plan(b'{"version": 2, "tablets": 1}')
