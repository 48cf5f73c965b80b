"""The reconciler and what it makes of a policy: from the state to transitions and fenced actions."""

from __future__ import annotations

from typing import Any

import pytest

from stelae.protocol.actions import (
    AlterSchema,
    ChangeConfig,
    ConfigChange,
    CreateReplica,
    DeleteReplica,
    Evicted,
    Terminal,
    TransferLeadership,
)
from stelae.protocol.catalog_names import ServerMode, TabletState
from stelae.protocol.master_heartbeats import ReportedDataState
from stelae.protocol.master_messages import AddColumn, AlterTable, DeleteTable, SetServerMode
from stelae.server.master.core import policy_guards
from stelae.server.master.core.events import AskPolicy
from stelae.server.master.settings import MasterSettings
from stelae.spi.ids import NodeId, OpId, TabletId
from stelae.spi.members import Member, MemberType, TabletConfig
from stelae.spi.policy import Action, ActionKind, NodeHealth
from tests.unit.master.company import SERVERS, SETTINGS, Company, changes, create, full, only, sent, status
from tests.unit.master.planned import FIFTH, FOURTH, LEADER, SECOND, THIRD, Planner, config_of, report, the_tablet


def propose(company: Company, planner: Planner, kind: ActionKind, node: NodeId, **more: Any) -> list[Any]:
    """Have the policy propose one action; returns what is sent of it."""
    fields = {"cas": config_of(company).op_id, "member_type": None, **more}
    planner.proposed = (Action(kind=kind, tablet_id=the_tablet(company), node_id=node, reason="test", **fields),)
    company.effects.clear()
    company.pass_ms(SETTINGS.policy_interval_ms)
    return sent(company.effects)


def reasons(company: Company) -> list[str]:
    return [refused.reason for refused in company.core.refused]


def test_the_first_leader_puts_the_cluster_on_record_and_no_other_does(company: Company) -> None:
    first = company.core.catalog.cluster
    assert first is not None and first.cluster_id == "one"
    company.follow(2)
    company.lead(3)
    company.pass_ms(SETTINGS.scan_interval_ms)
    company.commit()
    assert company.core.catalog.cluster is first


# -- creation ----------------------------------------------------------------------------------------


def test_a_tablet_that_is_not_on_record_is_counted_and_left_alone(company: Company) -> None:
    strange = status(TabletId("foreign"), config_of(company), leads=True)
    company.effects.clear()
    company.heartbeat(FIFTH, changes(strange))
    company.pass_ms(10 * SETTINGS.scan_interval_ms)
    assert [a for a in sent(company.effects) if a.tablet_id == "foreign"] == []
    assert company.core.status().strangers == 1


def test_a_replica_of_a_removed_tablet_is_deleted_whenever_it_is_reported(company: Company) -> None:
    tablet, config = the_tablet(company), config_of(company)
    company.ask(DeleteTable(table="readings"), 2)
    company.commit()
    company.heartbeat(LEADER, full(upto=5))
    company.effects.clear()
    company.now_us += SETTINGS.action_retry_ms * 1000
    company.heartbeat(LEADER, changes(status(tablet, config), since=5, upto=6))
    (action,) = [a for a in sent(company.effects, DeleteReplica) if a.node_id == LEADER]
    assert action == DeleteReplica(node_id=LEADER, tablet_id=tablet, fence=Terminal(state=TabletState.REMOVED))


def test_a_newer_config_goes_on_record_whoever_reports_it_and_an_older_one_does_not(company: Company) -> None:
    report(company, THIRD, op_id=OpId(2, 9))
    assert config_of(company).op_id == OpId(2, 9)
    report(company, SECOND, op_id=OpId(1, 5))
    assert config_of(company).op_id == OpId(2, 9)


def test_a_replica_that_the_config_left_behind_is_deleted_by_compare_and_set(company: Company) -> None:
    tablet, before = the_tablet(company), config_of(company)
    without = TabletConfig(op_id=OpId(2, 9), members=tuple(m for m in before.members if m.node_id != THIRD))
    company.heartbeat(LEADER, changes(status(tablet, without, leads=True, op_id=OpId(2, 9))))
    company.effects.clear()
    company.commit()
    (action,) = sent(company.effects, DeleteReplica)
    assert action == DeleteReplica(
        node_id=THIRD, tablet_id=tablet, fence=Evicted(config_op_id=OpId(2, 9), seen=OpId(1, 1))
    )


@pytest.mark.parametrize("state", [ReportedDataState.READY, ReportedDataState.COPYING])
def test_a_newcomer_of_a_pending_config_is_left_alone(company: Company, state: ReportedDataState) -> None:
    known = config_of(company)
    newcomer = status(the_tablet(company), known, data_state=state, op_id=known.op_id)
    company.effects.clear()
    company.heartbeat(FIFTH, changes(newcomer))
    company.pass_ms(10 * SETTINGS.scan_interval_ms)
    assert sent(company.effects, DeleteReplica) == []


def test_an_older_report_that_was_overtaken_changes_nothing(company: Company) -> None:
    server = company.core.servers.get(LEADER)
    assert server is not None
    company._sequences[LEADER] -= 1
    company.heartbeat(LEADER, full(upto=9))
    assert the_tablet(company) in server.replicas


def test_an_incremental_report_that_builds_on_what_is_not_known_is_answered_by_wanting_all(company: Company) -> None:
    reply = company.heartbeat(LEADER, changes(since=7, upto=8))
    assert reply.wants_full and reply.acknowledged == 1


def test_a_late_heartbeat_of_an_earlier_run_is_no_restart(company: Company) -> None:
    company.heartbeat(LEADER, full(upto=4), run=2)
    company.heartbeat(LEADER, full(status(the_tablet(company), config_of(company))), run=1)
    server = company.core.servers.get(LEADER)
    assert server is not None and server.complete and server.replicas == {}


def test_a_leader_that_has_an_older_schema_is_told_the_newest_until_it_reports_it(company: Company) -> None:
    company.ask(AlterTable(table="readings", steps=(AddColumn(name="w", type="int64"),)), 2)
    assert [a.node_id for a in sent(company.commit(), AlterSchema)] == [LEADER]
    assert sent(company.pass_ms(SETTINGS.action_retry_ms - 1), AlterSchema) == []
    assert len(sent(company.pass_ms(SETTINGS.action_retry_ms), AlterSchema)) == 1
    assert [a for a in report(company, LEADER, version=2) if isinstance(a, AlterSchema)] == []


# -- liveness ----------------------------------------------------------------------------------------


def health(company: Company, planner: Planner, node: NodeId) -> NodeHealth:
    company.pass_ms(SETTINGS.policy_interval_ms)
    assert planner.shown is not None
    return planner.shown.nodes[node].health


def test_a_silent_server_gets_nothing_new_and_is_not_yet_dead(company: Company, planner: Planner) -> None:
    company.now_us += SETTINGS.server_silent_ms * 1000
    assert health(company, planner, FIFTH) is NodeHealth.MAINTENANCE
    company.now_us += SETTINGS.server_dead_ms * 1000
    assert health(company, planner, FIFTH) is NodeHealth.DEAD


def test_a_server_that_was_never_heard_counts_from_the_start_of_this_master(company: Company, planner: Planner) -> None:
    restarted = Company(planner=planner)
    restarted.now_us = company.now_us + 10 * SETTINGS.server_dead_ms * 1000
    restarted.core = restarted._new(company.core.catalog)
    restarted.log = list(company.log)
    restarted.lead(2)
    assert health(restarted, planner, FIFTH) is NodeHealth.MAINTENANCE
    restarted.now_us += SETTINGS.server_dead_ms * 1000
    assert health(restarted, planner, FIFTH) is NodeHealth.DEAD


def test_a_server_in_maintenance_is_shown_so_though_it_is_dead(company: Company, planner: Planner) -> None:
    company.ask(SetServerMode(node_id=FIFTH, mode=ServerMode.MAINTENANCE), 5)
    company.commit()
    company.now_us += 2 * SETTINGS.server_dead_ms * 1000
    assert health(company, planner, FIFTH) is NodeHealth.MAINTENANCE


# -- what a policy may not (durability.md rules 28 and 30) --------------------------------------------


def test_an_addition_goes_to_the_leader_as_pre_voter_by_compare_and_set(company: Company, planner: Planner) -> None:
    (action,) = propose(company, planner, ActionKind.ADD, FOURTH)
    assert action == ChangeConfig(
        node_id=LEADER,
        tablet_id=the_tablet(company),
        change=ConfigChange.ADD,
        member=FOURTH,
        address="host-4:7051",
        member_type=MemberType.PRE_VOTER,
        cas=config_of(company).op_id,
    )


def test_a_transfer_goes_to_the_leader(company: Company, planner: Planner) -> None:
    (action,) = propose(company, planner, ActionKind.TRANSFER, SECOND)
    assert isinstance(action, TransferLeadership) and (action.node_id, action.to) == (LEADER, SECOND)


@pytest.mark.parametrize(
    ("kind", "node", "more", "words"),
    [
        (ActionKind.ADD, SECOND, {}, "member already"),
        (ActionKind.ADD, FOURTH, {"member_type": MemberType.VOTER}, "PRE_VOTER"),
        (ActionKind.ADD, NodeId("f" * 32), {}, "not live"),
        (ActionKind.ADD, FOURTH, {"cas": OpId(9, 9)}, "planned for config 9.9"),
        (ActionKind.REMOVE, FOURTH, {}, "no member"),
        (ActionKind.CHANGE_ROLE, SECOND, {"member_type": MemberType.VOTER}, "already"),
        (ActionKind.TRANSFER, FOURTH, {}, "no member"),
        (ActionKind.PLACE, FOURTH, {}, "first members"),
    ],
)
def test_what_does_not_fit_the_tablet_is_refused(
    company: Company, planner: Planner, kind: ActionKind, node: NodeId, more: dict[str, Any], words: str
) -> None:
    assert propose(company, planner, kind, node, **more) == []
    assert words in reasons(company)[0]


def test_an_eviction_that_leaves_no_healthy_majority_is_refused(company: Company, planner: Planner) -> None:
    report(company, LEADER, unhealthy=(SECOND,))
    assert propose(company, planner, ActionKind.REMOVE, THIRD) == []
    assert "1 of 2 voters" in reasons(company)[0]
    assert len(propose(company, planner, ActionKind.REMOVE, SECOND)) == 1


def test_an_eviction_without_a_healthy_majority_that_is_asked_for_is_missed(
    company: Company, planner: Planner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 28: the test above catches the planted bug."""
    monkeypatch.setattr(policy_guards, "_majority_refusal", lambda _view, _tablet, _members: None)
    with pytest.raises(AssertionError):
        test_an_eviction_that_leaves_no_healthy_majority_is_refused(company, planner)


def test_a_silent_server_counts_for_no_majority_when_another_voter_is_evicted(
    company: Company, planner: Planner
) -> None:
    """The tablet's leader reports it after a minute. Until then, a good voter was removed and the dead one stayed."""
    company.now_us += (SETTINGS.server_silent_ms + 1) * 1000
    for server in (LEADER, THIRD):
        company.heartbeat(server)
    assert propose(company, planner, ActionKind.REMOVE, THIRD) == []
    assert "1 of 2 voters" in reasons(company)[0]
    assert healthy(planner, the_tablet(company)) == [True, False, True]
    assert propose(company, planner, ActionKind.REMOVE, SECOND) == []
    assert "does not report" in reasons(company)[0]
    for server in (LEADER, SECOND, THIRD):
        company.heartbeat(server)
    assert len(propose(company, planner, ActionKind.REMOVE, THIRD)) == 1
    assert healthy(planner, the_tablet(company)) == [True, True, True]


def healthy(planner: Planner, tablet_id: TabletId) -> list[bool]:
    assert planner.shown is not None
    return [replica.healthy for replica in planner.shown.tablets[tablet_id].replicas]


def test_an_eviction_follows_the_report_of_the_leader_and_not_the_ears_of_a_master(
    company: Company, planner: Planner
) -> None:
    company.now_us += SETTINGS.server_dead_ms * 1000
    for server in (LEADER, SECOND, FOURTH):
        company.heartbeat(server)
    assert propose(company, planner, ActionKind.REMOVE, THIRD) == []
    assert "does not report" in reasons(company)[0]
    report(company, LEADER, unhealthy=(THIRD,), upto=3)
    assert len(propose(company, planner, ActionKind.REMOVE, THIRD)) == 1


def test_one_change_of_a_config_at_a_time(company: Company, planner: Planner) -> None:
    report(company, LEADER, change_pending=True)
    assert propose(company, planner, ActionKind.ADD, FOURTH) == []
    assert "pending" in reasons(company)[0]


def test_without_a_leader_nothing_of_a_config_is_changed(company: Company, planner: Planner) -> None:
    report(company, LEADER, leads=False)
    assert propose(company, planner, ActionKind.ADD, FOURTH) == []
    assert "no leader" in reasons(company)[0]


def test_a_replica_that_lost_its_last_op_id_is_barred_for_ever(company: Company, planner: Planner) -> None:
    report(company, THIRD, op_id_lost=True, data_state=ReportedDataState.FAILED)
    assert company.core.catalog.tablets[the_tablet(company)].barred == (THIRD,)
    without = TabletConfig(
        op_id=OpId(2, 2), members=(*(m for m in config_of(company).members if m.node_id != THIRD), _voter(FOURTH))
    )
    company.heartbeat(LEADER, changes(status(the_tablet(company), without, leads=True, op_id=OpId(2, 2)), upto=4))
    company.commit()
    assert [a for a in propose(company, planner, ActionKind.ADD, THIRD) if isinstance(a, ChangeConfig)] == []
    assert "never is a member again" in reasons(company)[0]


def _voter(node: NodeId) -> Member:
    return Member(node_id=node, address="d:1")


def test_the_first_of_several_actions_on_a_tablet_is_taken_alone(company: Company, planner: Planner) -> None:
    cas, tablet = config_of(company).op_id, the_tablet(company)
    planner.proposed = tuple(
        Action(kind=ActionKind.ADD, tablet_id=tablet, node_id=node, cas=cas, reason="") for node in (FOURTH, FIFTH)
    )
    company.effects.clear()
    company.pass_ms(SETTINGS.policy_interval_ms)
    assert [a.member for a in sent(company.effects, ChangeConfig)] == [FOURTH]
    assert "comes first" in reasons(company)[0]


def test_the_same_state_gives_the_same_plan(company: Company) -> None:
    first = company.pass_ms(SETTINGS.action_retry_ms)
    second = company.pass_ms(SETTINGS.action_retry_ms)
    assert sent(first) == sent(second)


def of_a_look(company: Company, first: list[Any]) -> list[set[TabletId]]:
    """Step until nothing is left over; returns which tablets were created in each step."""
    turns = [{a.tablet_id for a in sent(first, CreateReplica)}]
    while company.core.is_behind:
        turns.append({a.tablet_id for a in sent(company.step(), CreateReplica)})
    return turns


def test_a_large_catalog_is_looked_over_in_turns_and_none_is_left_out() -> None:
    company = Company(MasterSettings(scan_tablets_max=4))
    company.lead(1)
    company.hear()
    for number in range(5):
        company.ask(create(f"t{number}", buckets=2), number + 1)
        company.commit()
    while company.core.is_behind:
        company.step()
    company.commit()
    for server in SERVERS[:3]:
        company.heartbeat(server)
    company.policy_answers = False
    turns = of_a_look(company, company.pass_ms(SETTINGS.action_retry_ms))
    assert [len(turn) for turn in turns if turn] == [4, 4, 2]
    assert len(set().union(*turns)) == 10


def test_the_policy_is_asked_once_all_that_it_is_shown_is_up_to_date_some_tablets_in_a_step() -> None:
    company = Company(MasterSettings(scan_tablets_max=4))
    company.policy_answers = False
    company.lead(1)
    company.hear()
    (first,) = only(company.effects, AskPolicy)
    company.step(company.plan(first))
    asked = only([*company.ask(create(buckets=10)), *company.commit()], AskPolicy)
    steps = 0
    while company.core.is_behind:
        assert asked == []
        asked = only(company.step(), AskPolicy)
        steps += 1
    assert steps == 2 and len(asked[0].snapshot.tablets) == 10
