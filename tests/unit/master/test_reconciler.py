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
    Unreadable,
)
from stelae.protocol.catalog_names import ServerMode, TabletState
from stelae.protocol.master_heartbeats import ReplicaStatus, ReportedDataState
from stelae.protocol.master_messages import AddColumn, AlterTable, DeleteTable, SetServerMode
from stelae.server.master.core import policy_guards
from stelae.server.master.core.events import AskPolicy
from stelae.server.master.settings import MasterSettings
from stelae.spi.ids import NodeId, OpId, TabletId
from stelae.spi.members import Member, MemberType, TabletConfig
from stelae.spi.policy import Action, ActionKind, NodeHealth
from tests.unit.master.master_with_servers import (
    SERVERS,
    SETTINGS,
    MasterWithServers,
    changes,
    create,
    full,
    only,
    sent,
    status,
)
from tests.unit.master.planned import FIFTH, FOURTH, LEADER, SECOND, THIRD, Planner, config_of, report, the_tablet


def propose(cluster: MasterWithServers, planner: Planner, kind: ActionKind, node: NodeId, **more: Any) -> list[Any]:
    """Have the policy propose one action; returns what is sent of it."""
    fields = {"cas": config_of(cluster).op_id, "member_type": None, **more}
    planner.proposed = (Action(kind=kind, tablet_id=the_tablet(cluster), node_id=node, reason="test", **fields),)
    cluster.effects.clear()
    cluster.pass_ms(SETTINGS.policy_interval_ms)
    return sent(cluster.effects)


def reasons(cluster: MasterWithServers) -> list[str]:
    return [refused.reason for refused in cluster.core.refused]


def test_the_first_leader_puts_the_cluster_on_record_and_no_other_does(cluster: MasterWithServers) -> None:
    first = cluster.core.catalog.cluster
    assert first is not None and first.cluster_id == "one"
    cluster.follow(2)
    cluster.lead(3)
    cluster.pass_ms(SETTINGS.scan_interval_ms)
    cluster.commit()
    assert cluster.core.catalog.cluster is first


# -- creation ----------------------------------------------------------------------------------------


def test_a_tablet_that_is_not_on_record_is_counted_and_left_alone(cluster: MasterWithServers) -> None:
    strange = status(TabletId("foreign"), config_of(cluster), leads=True)
    cluster.effects.clear()
    cluster.heartbeat(FIFTH, changes(strange))
    cluster.pass_ms(10 * SETTINGS.scan_interval_ms)
    assert [a for a in sent(cluster.effects) if a.tablet_id == "foreign"] == []
    assert cluster.core.status().strangers == 1


def test_a_replica_of_a_removed_tablet_is_deleted_whenever_it_is_reported(cluster: MasterWithServers) -> None:
    tablet, config = the_tablet(cluster), config_of(cluster)
    cluster.ask(DeleteTable(table="readings"), 2)
    cluster.commit()
    cluster.heartbeat(LEADER, full(upto=5))
    cluster.effects.clear()
    cluster.now_us += SETTINGS.action_retry_ms * 1000
    cluster.heartbeat(LEADER, changes(status(tablet, config), since=5, upto=6))
    (action,) = [a for a in sent(cluster.effects, DeleteReplica) if a.node_id == LEADER]
    assert action == DeleteReplica(node_id=LEADER, tablet_id=tablet, fence=Terminal(state=TabletState.REMOVED))


def test_a_newer_config_goes_on_record_whoever_reports_it_and_an_older_one_does_not(cluster: MasterWithServers) -> None:
    report(cluster, THIRD, op_id=OpId(2, 9))
    assert config_of(cluster).op_id == OpId(2, 9)
    report(cluster, SECOND, op_id=OpId(1, 5))
    assert config_of(cluster).op_id == OpId(2, 9)


def test_a_replica_that_the_config_left_behind_is_deleted_by_compare_and_set(cluster: MasterWithServers) -> None:
    tablet, before = the_tablet(cluster), config_of(cluster)
    without = TabletConfig(op_id=OpId(2, 9), members=tuple(m for m in before.members if m.node_id != THIRD))
    cluster.heartbeat(LEADER, changes(status(tablet, without, leads=True, op_id=OpId(2, 9))))
    cluster.effects.clear()
    cluster.commit()
    (action,) = sent(cluster.effects, DeleteReplica)
    assert action == DeleteReplica(
        node_id=THIRD, tablet_id=tablet, fence=Evicted(config_op_id=OpId(2, 9), seen=OpId(1, 1))
    )


@pytest.mark.parametrize("lost", [True, False])
def test_a_replica_of_which_nothing_can_be_read_is_deleted_once_the_tablet_is_without_it(
    cluster: MasterWithServers, lost: bool
) -> None:
    """It was never deleted: it reports no config that could be compared."""
    tablet, before = the_tablet(cluster), config_of(cluster)
    failed = ReplicaStatus(tablet_id=tablet, data_state=ReportedDataState.FAILED, op_id_lost=lost)
    cluster.heartbeat(THIRD, changes(failed))
    cluster.commit()
    assert sent(cluster.effects, DeleteReplica) == [], "it is a member"
    without = TabletConfig(op_id=OpId(2, 9), members=tuple(m for m in before.members if m.node_id != THIRD))
    cluster.heartbeat(LEADER, changes(status(tablet, without, leads=True, op_id=OpId(2, 9))))
    cluster.effects.clear()
    cluster.commit()
    found = sent(cluster.effects, DeleteReplica)
    fence = Unreadable(config_op_id=OpId(2, 9))
    assert found == ([DeleteReplica(node_id=THIRD, tablet_id=tablet, fence=fence)] if lost else [])


@pytest.mark.parametrize("state", [ReportedDataState.READY, ReportedDataState.COPYING])
def test_a_newcomer_of_a_pending_config_is_left_alone(cluster: MasterWithServers, state: ReportedDataState) -> None:
    known = config_of(cluster)
    newcomer = status(the_tablet(cluster), known, data_state=state, op_id=known.op_id)
    cluster.effects.clear()
    cluster.heartbeat(FIFTH, changes(newcomer))
    cluster.pass_ms(10 * SETTINGS.scan_interval_ms)
    assert sent(cluster.effects, DeleteReplica) == []


def test_an_older_report_that_was_overtaken_changes_nothing(cluster: MasterWithServers) -> None:
    server = cluster.core.servers.get(LEADER)
    assert server is not None
    cluster._sequences[LEADER] -= 1
    cluster.heartbeat(LEADER, full(upto=9))
    assert the_tablet(cluster) in server.replicas


def test_an_incremental_report_that_builds_on_what_is_not_known_is_answered_by_wanting_all(
    cluster: MasterWithServers,
) -> None:
    reply = cluster.heartbeat(LEADER, changes(since=7, upto=8))
    assert reply.wants_full and reply.acknowledged == 1


def test_a_late_heartbeat_of_an_earlier_run_is_no_restart(cluster: MasterWithServers) -> None:
    cluster.heartbeat(LEADER, full(upto=4), run=2)
    cluster.heartbeat(LEADER, full(status(the_tablet(cluster), config_of(cluster))), run=1)
    server = cluster.core.servers.get(LEADER)
    assert server is not None and server.complete and server.replicas == {}


def test_a_leader_that_has_an_older_schema_is_told_the_newest_until_it_reports_it(cluster: MasterWithServers) -> None:
    cluster.ask(AlterTable(table="readings", steps=(AddColumn(name="w", type="int64"),)), 2)
    assert [a.node_id for a in sent(cluster.commit(), AlterSchema)] == [LEADER]
    assert sent(cluster.pass_ms(SETTINGS.action_retry_ms - 1), AlterSchema) == []
    assert len(sent(cluster.pass_ms(SETTINGS.action_retry_ms), AlterSchema)) == 1
    assert [a for a in report(cluster, LEADER, version=2) if isinstance(a, AlterSchema)] == []


# -- liveness ----------------------------------------------------------------------------------------


def health(cluster: MasterWithServers, planner: Planner, node: NodeId) -> NodeHealth:
    cluster.pass_ms(SETTINGS.policy_interval_ms)
    assert planner.shown is not None
    return planner.shown.nodes[node].health


def test_a_silent_server_gets_nothing_new_and_is_not_yet_dead(cluster: MasterWithServers, planner: Planner) -> None:
    cluster.now_us += SETTINGS.server_silent_ms * 1000
    assert health(cluster, planner, FIFTH) is NodeHealth.MAINTENANCE
    cluster.now_us += SETTINGS.server_dead_ms * 1000
    assert health(cluster, planner, FIFTH) is NodeHealth.DEAD


def test_a_server_that_was_never_heard_counts_from_the_start_of_this_master(
    cluster: MasterWithServers, planner: Planner
) -> None:
    restarted = MasterWithServers(planner=planner)
    restarted.now_us = cluster.now_us + 10 * SETTINGS.server_dead_ms * 1000
    restarted.core = restarted._new(cluster.core.catalog)
    restarted.log = list(cluster.log)
    restarted.lead(2)
    assert health(restarted, planner, FIFTH) is NodeHealth.MAINTENANCE
    restarted.now_us += SETTINGS.server_dead_ms * 1000
    assert health(restarted, planner, FIFTH) is NodeHealth.DEAD


def test_a_server_in_maintenance_is_shown_so_though_it_is_dead(cluster: MasterWithServers, planner: Planner) -> None:
    cluster.ask(SetServerMode(node_id=FIFTH, mode=ServerMode.MAINTENANCE), 5)
    cluster.commit()
    cluster.now_us += 2 * SETTINGS.server_dead_ms * 1000
    assert health(cluster, planner, FIFTH) is NodeHealth.MAINTENANCE


# -- what a policy may not (durability.md rules 28 and 30) --------------------------------------------


def test_an_addition_goes_to_the_leader_as_pre_voter_by_compare_and_set(
    cluster: MasterWithServers, planner: Planner
) -> None:
    (action,) = propose(cluster, planner, ActionKind.ADD, FOURTH)
    assert action == ChangeConfig(
        node_id=LEADER,
        tablet_id=the_tablet(cluster),
        change=ConfigChange.ADD,
        member=FOURTH,
        address="host-4:7051",
        member_type=MemberType.PRE_VOTER,
        cas=config_of(cluster).op_id,
    )


def test_a_transfer_goes_to_the_leader(cluster: MasterWithServers, planner: Planner) -> None:
    (action,) = propose(cluster, planner, ActionKind.TRANSFER, SECOND)
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
    cluster: MasterWithServers, planner: Planner, kind: ActionKind, node: NodeId, more: dict[str, Any], words: str
) -> None:
    assert propose(cluster, planner, kind, node, **more) == []
    assert words in reasons(cluster)[0]


def test_an_eviction_that_leaves_no_healthy_majority_is_refused(cluster: MasterWithServers, planner: Planner) -> None:
    report(cluster, LEADER, unhealthy=(SECOND,))
    assert propose(cluster, planner, ActionKind.REMOVE, THIRD) == []
    assert "1 of 2 voters" in reasons(cluster)[0]
    assert len(propose(cluster, planner, ActionKind.REMOVE, SECOND)) == 1


def test_an_eviction_without_a_healthy_majority_that_is_asked_for_is_missed(
    cluster: MasterWithServers, planner: Planner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 28: the test above catches the planted bug."""
    monkeypatch.setattr(policy_guards, "_majority_refusal", lambda _view, _tablet, _members: None)
    with pytest.raises(AssertionError):
        test_an_eviction_that_leaves_no_healthy_majority_is_refused(cluster, planner)


def test_a_silent_server_counts_for_no_majority_when_another_voter_is_evicted(
    cluster: MasterWithServers, planner: Planner
) -> None:
    """The tablet's leader reports it after a minute. Until then, a good voter was removed and the dead one stayed."""
    cluster.now_us += (SETTINGS.server_silent_ms + 1) * 1000
    for server in (LEADER, THIRD):
        cluster.heartbeat(server)
    assert propose(cluster, planner, ActionKind.REMOVE, THIRD) == []
    assert "1 of 2 voters" in reasons(cluster)[0]
    assert healthy(planner, the_tablet(cluster)) == [True, False, True]
    assert propose(cluster, planner, ActionKind.REMOVE, SECOND) == []
    assert "does not report" in reasons(cluster)[0]
    for server in (LEADER, SECOND, THIRD):
        cluster.heartbeat(server)
    assert len(propose(cluster, planner, ActionKind.REMOVE, THIRD)) == 1
    assert healthy(planner, the_tablet(cluster)) == [True, True, True]


def healthy(planner: Planner, tablet_id: TabletId) -> list[bool]:
    assert planner.shown is not None
    return [replica.healthy for replica in planner.shown.tablets[tablet_id].replicas]


def test_an_eviction_follows_the_report_of_the_leader_and_not_the_ears_of_a_master(
    cluster: MasterWithServers, planner: Planner
) -> None:
    cluster.now_us += SETTINGS.server_dead_ms * 1000
    for server in (LEADER, SECOND, FOURTH):
        cluster.heartbeat(server)
    assert propose(cluster, planner, ActionKind.REMOVE, THIRD) == []
    assert "does not report" in reasons(cluster)[0]
    report(cluster, LEADER, unhealthy=(THIRD,), upto=3)
    assert len(propose(cluster, planner, ActionKind.REMOVE, THIRD)) == 1


def test_one_change_of_a_config_at_a_time(cluster: MasterWithServers, planner: Planner) -> None:
    report(cluster, LEADER, change_pending=True)
    assert propose(cluster, planner, ActionKind.ADD, FOURTH) == []
    assert "pending" in reasons(cluster)[0]


def test_without_a_leader_nothing_of_a_config_is_changed(cluster: MasterWithServers, planner: Planner) -> None:
    report(cluster, LEADER, leads=False)
    assert propose(cluster, planner, ActionKind.ADD, FOURTH) == []
    assert "no leader" in reasons(cluster)[0]


def test_a_replica_that_lost_its_last_op_id_is_barred_for_ever(cluster: MasterWithServers, planner: Planner) -> None:
    report(cluster, THIRD, op_id_lost=True, data_state=ReportedDataState.FAILED)
    assert cluster.core.catalog.tablets[the_tablet(cluster)].barred == (THIRD,)
    without = TabletConfig(
        op_id=OpId(2, 2), members=(*(m for m in config_of(cluster).members if m.node_id != THIRD), _voter(FOURTH))
    )
    cluster.heartbeat(LEADER, changes(status(the_tablet(cluster), without, leads=True, op_id=OpId(2, 2)), upto=4))
    cluster.commit()
    assert [a for a in propose(cluster, planner, ActionKind.ADD, THIRD) if isinstance(a, ChangeConfig)] == []
    assert "never is a member again" in reasons(cluster)[0]


def _voter(node: NodeId) -> Member:
    return Member(node_id=node, address="d:1")


def test_the_first_of_several_actions_on_a_tablet_is_taken_alone(cluster: MasterWithServers, planner: Planner) -> None:
    cas, tablet = config_of(cluster).op_id, the_tablet(cluster)
    planner.proposed = tuple(
        Action(kind=ActionKind.ADD, tablet_id=tablet, node_id=node, cas=cas, reason="") for node in (FOURTH, FIFTH)
    )
    cluster.effects.clear()
    cluster.pass_ms(SETTINGS.policy_interval_ms)
    assert [a.member for a in sent(cluster.effects, ChangeConfig)] == [FOURTH]
    assert "comes first" in reasons(cluster)[0]


def test_the_same_state_gives_the_same_plan(cluster: MasterWithServers) -> None:
    first = cluster.pass_ms(SETTINGS.action_retry_ms)
    second = cluster.pass_ms(SETTINGS.action_retry_ms)
    assert sent(first) == sent(second)


def of_a_look(cluster: MasterWithServers, first: list[Any]) -> list[set[TabletId]]:
    """Step until nothing is left over; returns which tablets were created in each step."""
    turns = [{a.tablet_id for a in sent(first, CreateReplica)}]
    while cluster.core.is_behind:
        turns.append({a.tablet_id for a in sent(cluster.step(), CreateReplica)})
    return turns


def test_a_large_catalog_is_looked_over_in_turns_and_none_is_left_out() -> None:
    cluster = MasterWithServers(MasterSettings(scan_tablets_max=4))
    cluster.lead(1)
    cluster.hear()
    for number in range(5):
        cluster.ask(create(f"t{number}", buckets=2), number + 1)
        cluster.commit()
    while cluster.core.is_behind:
        cluster.step()
    cluster.commit()
    for server in SERVERS[:3]:
        cluster.heartbeat(server)
    cluster.policy_answers = False
    turns = of_a_look(cluster, cluster.pass_ms(SETTINGS.action_retry_ms))
    assert [len(turn) for turn in turns if turn] == [4, 4, 2]
    assert len(set().union(*turns)) == 10


def test_the_policy_is_asked_once_all_that_it_is_shown_is_up_to_date_some_tablets_in_a_step() -> None:
    cluster = MasterWithServers(MasterSettings(scan_tablets_max=4))
    cluster.policy_answers = False
    cluster.lead(1)
    cluster.hear()
    (first,) = only(cluster.effects, AskPolicy)
    cluster.step(cluster.plan(first))
    asked = only([*cluster.ask(create(buckets=10)), *cluster.commit()], AskPolicy)
    steps = 0
    while cluster.core.is_behind:
        assert asked == []
        asked = only(cluster.step(), AskPolicy)
        steps += 1
    assert steps == 2 and len(asked[0].snapshot.tablets) == 10
