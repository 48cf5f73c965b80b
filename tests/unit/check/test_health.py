"""Health: the verdict on a tablet, from what its members say."""

from __future__ import annotations

from typing import Any

import pytest

from stelae.check.health import CARETAKER, NO_ROWS, REMEDY, NodeFacts, TabletHealth, TabletVerdict, tablet_health
from stelae.protocol.node_messages import NodeInfo, ReplicaFacts
from stelae.protocol.tablet_messages import ReplicaReport
from stelae.spi.ids import ClusterId, IncarnationId, NodeId, OpId, TabletId

T = TabletId("t")
A, B, C = NODES = [NodeId(letter * 32) for letter in "abc"]
MEMBERS = tuple((node, f"{node[0]}:1") for node in NODES)


def report(node: NodeId, **fields: Any) -> ReplicaReport:
    given = {"state": "RUNNING", "role": "FOLLOWER", "term": 3, "leader": A, **fields}
    return ReplicaReport(tablet_id=T, node_id=node, last=OpId(3, 9), durable_index=9, commit=9, applied=9, **given)


def judged(unfinished: str = "", **said: dict[str, Any] | str | None) -> TabletHealth:
    """The health of a tablet whose members said this; a text: why a node said nothing; ``None``: no such replica."""
    nodes = {}
    for node, letter in zip(NODES, "abc", strict=True):
        fields = said.get(letter, {})
        if isinstance(fields, str):
            nodes[node] = NodeFacts(node_id=node, address="", problem=fields)
        else:
            reports = {} if fields is None else {T: report(node, **fields)}
            nodes[node] = NodeFacts(node_id=node, address="", reports=reports)
    return tablet_health(T, MEMBERS, nodes, unfinished=unfinished)


LEADS = {"role": "LEADER"}


def test_all_members_that_agree_on_one_leader_are_healthy() -> None:
    assert judged(a=LEADS).verdict is TabletVerdict.HEALTHY


def test_one_that_does_not_run_leaves_the_tablet_under_replicated_and_is_named() -> None:
    for missing in ("does not answer", None, {"state": "FAILED", "failure": "disk"}):
        found = judged(a=LEADS, b=missing)
        assert found.verdict is TabletVerdict.UNDER_REPLICATED and "b:1" in found.why
    assert "disk" in judged(a=LEADS, b={"state": "FAILED", "failure": "disk"}).why


def test_without_a_majority_or_a_leader_it_is_unavailable() -> None:
    assert judged(a=LEADS, b="down", c="down").verdict is TabletVerdict.UNAVAILABLE
    assert judged().verdict is TabletVerdict.UNAVAILABLE
    assert judged(a=LEADS, b={"term": 4, "leader": None}).verdict is TabletVerdict.UNAVAILABLE, (
        "a newer term without one"
    )


def test_replicas_that_run_and_lack_a_leader_are_said_to_run() -> None:
    """It was told as "0 of 3 replicas run"."""
    waits = {"state": "CONFIGURING", "leader": None, "role": "FOLLOWER"}
    found = judged(a=waits, b=waits, c=waits)
    assert (found.verdict, found.why) == (TabletVerdict.UNAVAILABLE, "3 of 3 replicas run, and none leads")
    assert {(replica.problem, replica.state) for replica in found.replicas} == {("", "CONFIGURING")}
    found = judged(a=LEADS | {"state": "CONFIGURING"}, b=waits, c="down")
    assert found.verdict is TabletVerdict.UNAVAILABLE
    assert found.why == "2 of 3 replicas run, and a:1 leads in term 3, of which nothing is committed yet"


def test_one_that_waits_for_the_leader_is_told_from_one_that_is_down() -> None:
    found = judged(a=LEADS, b={"state": "CONFIGURING", "leader": None})
    assert (found.verdict, found.why) == (TabletVerdict.UNDER_REPLICATED, "not in touch with the leader yet: b:1")


def info_of(node: NodeId, replica: ReplicaFacts) -> NodeInfo:
    return NodeInfo(
        node_id=node,
        incarnation=IncarnationId("1"),
        role="tserver",
        version="1",
        cluster_id=ClusterId("c"),
        address="",
        location="",
        uptime_ms=1,
        wall_us=1,
        free_bytes=1,
        masters=(),
        peers=(),
        replicas=(replica,),
        failed=(),
        settings={},
    )


def facts(node: NodeId, base: int, *copies_needed: NodeId) -> NodeInfo:
    found = ReplicaFacts(
        tablet_id=T,
        table_id="",
        size_bytes=1,
        schema_version=1,
        config=OpId(1, 1),
        members=tuple(NODES),
        log_base=OpId(2, base),
        copies_needed=copies_needed,
    )
    return info_of(node, found)


def judged_with_bases(a: int, c: int, b: dict[str, Any] | None) -> TabletHealth:
    """Node ``a`` leads and says that ``b`` needs a copy; the numbers are the bases of the logs of ``a`` and ``c``."""
    nodes = {
        A: NodeFacts(node_id=A, address="", reports={T: report(A, role="LEADER")}, info=facts(A, a, B)),
        B: NodeFacts(node_id=B, address="", problem="does not answer: refused"),
        C: NodeFacts(node_id=C, address="", reports={T: report(C)}, info=facts(C, c)),
    }
    if b is not None:
        nodes[B] = NodeFacts(node_id=B, address="", reports={T: report(B, **b)}, info=facts(B, 2))
    return tablet_health(T, MEMBERS, nodes)


@pytest.mark.parametrize("state", ["RUNNING", "CONFIGURING"])
def test_a_replica_that_the_log_cannot_catch_up_needs_a_copy_and_is_told_why(state: str) -> None:
    """It was "not in touch with the leader yet", for ever."""
    found = judged_with_bases(20, 30, {"state": state})
    assert found.verdict is TabletVerdict.UNDER_REPLICATED
    why = "its log ends at 3.9, and the logs of all others begin at index 21 on a:1, 31 on c:1"
    assert found.why == f"b:1 needs a copy, because {why}; {REMEDY}"
    late = found.replicas[1]
    assert (late.needs_copy, late.state, late.problem) == (why, "NEEDS_COPY", "")
    assert [replica.needs_copy for replica in found.replicas] == ["", why, ""]


def test_a_member_whose_log_reaches_back_far_enough_is_named() -> None:
    found = judged_with_bases(20, 9, {})
    assert "the log of c:1 reaches back far enough, if that replica becomes the leader" in found.why
    assert "reaches back" not in judged_with_bases(20, 10, {}).why


def test_a_replica_that_is_down_and_needs_a_copy_is_told_as_both() -> None:
    found = judged_with_bases(20, 30, None)
    assert found.why.startswith(
        "2 of 3 replicas run; not: b:1 (does not answer); b:1 needs a copy, because its log ended"
    )


def test_of_a_replica_that_has_failed_nothing_is_told_about_its_log() -> None:
    """The leader has a damaged replica copied whatever its log has."""
    found = judged_with_bases(20, 30, {"state": "FAILED"})
    assert "FAILED" in found.why and "b:1 needs a copy, because its replica has failed" in found.why


def test_a_new_member_whose_server_creates_no_replica_is_not_told_that_its_log_ended() -> None:
    """The logs of the others are whole: its server has deleted a replica before, and keeps a tombstone."""
    found = judged_with_bases(0, 0, None)
    assert "because its server has no replica of it" in found.why


def test_replicas_that_name_different_leaders_or_terms_do_not_agree() -> None:
    for other in ({"leader": C}, {"term": 2}):
        found = judged(a=LEADS, b=other)
        assert found.verdict is TabletVerdict.CONSENSUS_MISMATCH and "b:1" in found.why


def test_an_old_leader_beside_the_new_one_is_a_mismatch() -> None:
    found = judged(a={"role": "LEADER", "term": 2}, b={"role": "LEADER", "term": 3, "leader": B}, c={"leader": B})
    assert found.verdict is TabletVerdict.CONSENSUS_MISMATCH and "a:1" in found.why


def test_what_masters_still_work_on_is_unfinished_whatever_its_members_say() -> None:
    found = judged("the masters have it as CREATING", b="down", c="down")
    assert found.verdict is TabletVerdict.UNFINISHED and "CREATING" in found.why


def test_a_member_that_no_server_stands_for_does_not_run() -> None:
    found = tablet_health(T, MEMBERS, {})
    assert found.verdict is TabletVerdict.UNAVAILABLE and {r.problem for r in found.replicas} == {"no such server"}


def facts_with(
    node: NodeId,
    *,
    learners: tuple[NodeId, ...] = (),
    witnesses: tuple[NodeId, ...] = (),
    problem: str = "",
    **fields: Any,
) -> NodeFacts:
    replica = ReplicaFacts(
        tablet_id=T,
        table_id="x",
        size_bytes=0,
        schema_version=1,
        config=OpId(3, 8),
        members=tuple(NODES),
        learners=learners,
        witnesses=witnesses,
    )
    return NodeFacts(
        node_id=node, address="", problem=problem, reports={T: report(node, **fields)}, info=info_of(node, replica)
    )


def test_a_learner_counts_in_no_majority() -> None:
    """With two voters of three members, one voter alone serves nothing, although two of three replicas run."""
    nodes = {
        A: facts_with(A, learners=(C,), role="LEADER"),
        B: NodeFacts(node_id=B, address="", problem="does not answer"),
        C: facts_with(C, learners=(C,), role="LEARNER"),
    }
    found = tablet_health(T, MEMBERS, nodes)
    assert found.verdict is TabletVerdict.UNAVAILABLE and found.why.startswith("1 of 2 voters run; 2 are needed")
    assert "stelae recover plan" in found.why
    assert found.losses_survived == -1
    nodes[B], nodes[C] = facts_with(B, learners=(C,)), NodeFacts(node_id=C, address="", problem="does not answer")
    found = tablet_health(T, MEMBERS, nodes)
    assert found.verdict is TabletVerdict.UNDER_REPLICATED and "c:1" in found.why
    assert found.losses_survived == 0


def test_a_voter_that_needs_a_copy_does_not_help_to_survive_a_loss() -> None:
    """It acknowledges nothing, so the tablet commits nothing once one of the two others is lost."""
    found = judged_with_bases(5, 5, {})
    assert found.replicas[1].needs_copy and not found.replicas[1].problem
    assert found.losses_survived == 0


def with_witnesses(
    *witnesses: NodeId, down: tuple[NodeId, ...] = (), leader: NodeId = A, wanted: int = 0
) -> TabletHealth:
    """The health of a tablet with three voters, of which these are witnesses, and these do not answer."""
    nodes = {}
    for node in NODES:
        if node in down:
            nodes[node] = NodeFacts(node_id=node, address="", problem="does not answer")
        else:
            role = "LEADER" if node == leader else "FOLLOWER"
            nodes[node] = facts_with(node, witnesses=witnesses, role=role, leader=leader)
    return tablet_health(T, MEMBERS, nodes, wanted=wanted)


def test_a_tablet_does_not_survive_the_loss_of_its_only_voter_with_rows() -> None:
    """It was told that it survives one loss: with two witnesses, the loss of one node would have lost every row."""
    assert with_witnesses(B, C).losses_survived == 0
    assert with_witnesses(B, C).verdict is TabletVerdict.HEALTHY
    assert with_witnesses(C).losses_survived == 1
    assert with_witnesses(C, down=(B,)).losses_survived == 0
    assert with_witnesses(C, down=(C,)).losses_survived == 0
    assert with_witnesses().losses_survived == 1


def test_a_witness_is_none_of_the_voters_that_a_table_is_to_have() -> None:
    found = with_witnesses(C, wanted=3)
    assert found.verdict is TabletVerdict.UNDER_REPLICATED
    assert found.why == f"2 of 3 voters have the rows; {NO_ROWS}"
    assert [replica.log_only for replica in found.replicas] == [False, False, True]
    assert with_witnesses(C, wanted=2).verdict is TabletVerdict.HEALTHY


def test_a_witness_that_leads_serves_nothing() -> None:
    found = with_witnesses(B, C, down=(A,), leader=B)
    assert found.verdict is TabletVerdict.UNAVAILABLE and found.losses_survived == -1
    assert found.why == f"b:1 leads without rows, and serves no requests until {CARETAKER}"
