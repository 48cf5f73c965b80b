"""Members whose replicas are being created or copied, as the masters show them to the policy."""

from __future__ import annotations

from stelae.protocol.master_heartbeats import CopyHold, ReplicaStatus, ReportedDataState
from stelae.spi.ids import NodeId, OpId, TabletId
from stelae.spi.members import Member, MemberType, TabletConfig
from stelae.spi.policy import ActionKind, ReplicaView
from tests.unit.master.master_with_servers import SERVERS, SETTINGS, MasterWithServers, changes, full, status
from tests.unit.master.planned import (
    FOURTH,
    LEADER,
    SECOND,
    THIRD,
    Planner,
    config_of,
    report,
    the_tablet,
    with_a_tablet,
)
from tests.unit.master.test_reconciler import propose, reasons


def shown(cluster: MasterWithServers, planner: Planner, node: NodeId) -> ReplicaView:
    """How the policy is shown a member of the tablet."""
    cluster.pass_ms(SETTINGS.policy_interval_ms)
    assert planner.shown is not None
    return next(r for r in planner.shown.tablets[the_tablet(cluster)].replicas if r.node_id == node)


def copying(
    cluster: MasterWithServers,
    node: NodeId,
    copied_bytes: int,
    upto: int,
    hold: CopyHold = CopyHold.NONE,
    tablet: str = "",
) -> None:
    tablet_id = TabletId(tablet) if tablet else the_tablet(cluster)
    copying = ReportedDataState.COPYING
    at = ReplicaStatus(tablet_id=tablet_id, data_state=copying, copied_bytes=copied_bytes, copy_hold=hold)
    cluster.heartbeat(node, changes(at, since=upto - 1, upto=upto))


def pass_with_heartbeats(cluster: MasterWithServers, ms: int) -> None:
    """Let time pass in which all servers are heard."""
    for _ in range(ms // SETTINGS.server_silent_ms + 1):
        cluster.pass_ms(SETTINGS.server_silent_ms)
        for server in SERVERS:
            cluster.heartbeat(server)


def test_a_replica_that_is_being_copied_counts_as_coming_while_it_gets_bytes(
    cluster: MasterWithServers, planner: Planner
) -> None:
    copying(cluster, THIRD, 0, 2)
    report(cluster, LEADER, unhealthy=(THIRD,))
    assert shown(cluster, planner, THIRD).copying and not shown(cluster, planner, THIRD).healthy
    pass_with_heartbeats(cluster, 0)
    assert propose(cluster, planner, ActionKind.REMOVE, THIRD) == []
    assert "is being copied" in reasons(cluster)[0]
    pass_with_heartbeats(cluster, SETTINGS.copy_stalled_ms - SETTINGS.server_silent_ms * 3)
    copying(cluster, THIRD, 1, 3)
    pass_with_heartbeats(cluster, SETTINGS.copy_stalled_ms // 2)
    assert shown(cluster, planner, THIRD).copying
    pass_with_heartbeats(cluster, SETTINGS.copy_stalled_ms)
    assert not shown(cluster, planner, THIRD).copying
    assert len(propose(cluster, planner, ActionKind.REMOVE, THIRD)) == 1
    copying(cluster, THIRD, 2, 4)
    assert shown(cluster, planner, THIRD).copying


def test_a_first_member_that_has_yet_to_begin_is_expected_until_the_leader_does_not_hear_it_for_too_long(
    planner: Planner,
) -> None:
    """A server that was slow to create its replica was replaced as soon as the others had elected their leader."""
    cluster = with_a_tablet(planner, [LEADER, SECOND])
    cluster.heartbeat(THIRD, full(), run=2)
    assert shown(cluster, planner, THIRD).copying
    report(cluster, LEADER, unhealthy=(THIRD,))
    view = shown(cluster, planner, THIRD)
    assert not view.copying and not view.healthy


def test_a_member_of_a_later_config_without_a_replica_has_lost_it(planner: Planner) -> None:
    cluster = with_a_tablet(planner, [LEADER, SECOND])
    cluster.heartbeat(THIRD, full(), run=2)
    report(cluster, LEADER, op_id=OpId(1, 5))
    cluster.commit()
    view = shown(cluster, planner, THIRD)
    assert not view.copying and not view.healthy


def test_a_replica_that_was_copied_is_shown_as_any_other(cluster: MasterWithServers, planner: Planner) -> None:
    copying(cluster, THIRD, 0, 2)
    cluster.heartbeat(THIRD, changes(status(the_tablet(cluster), config_of(cluster)), since=2, upto=3))
    assert not shown(cluster, planner, THIRD).copying and shown(cluster, planner, THIRD).healthy


def test_a_replica_whose_copy_has_ended_is_expected_until_the_leader_hears_it(
    cluster: MasterWithServers, planner: Planner
) -> None:
    """A leader does not hear a replica while it is copied. If its next report came after that of the copied replica,
    the masters removed the member in between. A move whose copies took long never ended: each was thrown away."""
    copying(cluster, THIRD, 0, 2)
    report(cluster, LEADER, unhealthy=(THIRD,))
    cluster.heartbeat(THIRD, changes(status(the_tablet(cluster), config_of(cluster)), since=2, upto=3))
    view = shown(cluster, planner, THIRD)
    assert view.copying and not view.healthy
    assert propose(cluster, planner, ActionKind.REMOVE, THIRD) == []
    failed = ReplicaStatus(tablet_id=the_tablet(cluster), data_state=ReportedDataState.FAILED)
    cluster.heartbeat(THIRD, changes(failed, since=3, upto=4))
    assert not shown(cluster, planner, THIRD).copying


def test_a_replica_that_the_leader_does_not_hear_long_after_its_copy_is_replaced(
    cluster: MasterWithServers, planner: Planner
) -> None:
    copying(cluster, THIRD, 0, 2)
    report(cluster, LEADER, unhealthy=(THIRD,))
    cluster.heartbeat(THIRD, changes(status(the_tablet(cluster), config_of(cluster)), since=2, upto=3))
    assert shown(cluster, planner, THIRD).copying
    pass_with_heartbeats(cluster, SETTINGS.server_dead_ms + SETTINGS.server_silent_ms)
    assert not shown(cluster, planner, THIRD).copying
    assert len(propose(cluster, planner, ActionKind.REMOVE, THIRD)) == 1


def test_a_newcomer_is_expected_until_the_leader_has_not_heard_it_for_long(
    cluster: MasterWithServers, planner: Planner
) -> None:
    newcomer = Member(node_id=FOURTH, address="d:1", member_type=MemberType.PRE_VOTER, pinned=True)
    now = TabletConfig(op_id=OpId(1, 2), members=(*config_of(cluster).members, newcomer))
    cluster.heartbeat(FOURTH, full())
    known = status(the_tablet(cluster), now, leads=True, op_id=now.op_id)
    cluster.heartbeat(LEADER, changes(known))
    cluster.commit()
    view = shown(cluster, planner, FOURTH)
    assert view.copying and not view.healthy and view.pinned
    late = status(the_tablet(cluster), now, leads=True, op_id=now.op_id, unhealthy=(FOURTH,))
    cluster.heartbeat(LEADER, changes(late, since=2, upto=3))
    assert not shown(cluster, planner, FOURTH).copying
    copying(cluster, FOURTH, 0, 2)
    assert shown(cluster, planner, FOURTH).copying, "it comes, though the leader does not hear it meanwhile"


def test_a_voter_without_a_replica_has_lost_it(cluster: MasterWithServers, planner: Planner) -> None:
    cluster.heartbeat(THIRD, full(upto=2))
    view = shown(cluster, planner, THIRD)
    assert not view.copying and not view.healthy


def with_a_new_leading_master(cluster: MasterWithServers) -> TabletConfig:
    """Add a newcomer that is being copied and a voter that is; then another leadership begins.

    The leader of the tablet hears neither of them. Their servers live, and their full reports are lost."""
    newcomer = Member(node_id=FOURTH, address="d:1", member_type=MemberType.PRE_VOTER)
    now = TabletConfig(op_id=OpId(1, 2), members=(*config_of(cluster).members, newcomer))
    known = status(the_tablet(cluster), now, leads=True, op_id=now.op_id, unhealthy=(THIRD, FOURTH))
    cluster.heartbeat(LEADER, changes(known))
    cluster.commit()
    copying(cluster, THIRD, 7, 2)
    cluster.heartbeat(FOURTH, full())
    copying(cluster, FOURTH, 7, 2)
    cluster.follow(2)
    cluster.lead(3)
    for server in (LEADER, SECOND):
        leads = server == LEADER
        again = status(
            the_tablet(cluster), now, leads=leads, op_id=now.op_id, unhealthy=(THIRD, FOURTH) if leads else ()
        )
        cluster.heartbeat(server, full(again, upto=3))
    for server in (THIRD, FOURTH):
        assert cluster.heartbeat(server).wants_full
    return now


def test_a_member_whose_server_has_not_reported_to_a_new_leading_master_is_expected(
    cluster: MasterWithServers, planner: Planner
) -> None:
    """A copy had run for long when another master became leader. The tablet's leader reported, and the report of the
    copy's server was lost. Within two seconds the new member was removed, or another one was added."""
    now = with_a_new_leading_master(cluster)
    for server in (THIRD, FOURTH):
        view = shown(cluster, planner, server)
        assert view.copying and not view.healthy
        pass_with_heartbeats(cluster, 0)
        assert propose(cluster, planner, ActionKind.REMOVE, server, cas=now.op_id) == []
        assert "has not reported" in reasons(cluster)[0]


def test_a_server_that_lives_and_never_reports_does_not_prevent_healing(
    cluster: MasterWithServers, planner: Planner
) -> None:
    now = with_a_new_leading_master(cluster)
    assert shown(cluster, planner, FOURTH).copying
    pass_with_heartbeats(cluster, SETTINGS.server_dead_ms)
    for run in (2, 3):  # Nor does one that restarts again and again.
        cluster.heartbeat(FOURTH, run=run)
    for server in (THIRD, FOURTH):
        assert not shown(cluster, planner, server).copying
    pass_with_heartbeats(cluster, 0)
    assert len(propose(cluster, planner, ActionKind.REMOVE, FOURTH, cas=now.op_id)) == 1


def test_a_copy_that_fails_and_begins_again_makes_no_progress_by_that(
    cluster: MasterWithServers, planner: Planner
) -> None:
    upto = 2
    for _ in range(SETTINGS.copy_stalled_ms // SETTINGS.server_silent_ms + 2):
        copying(cluster, THIRD, 7, upto)
        gone = ReplicaStatus(tablet_id=the_tablet(cluster), data_state=ReportedDataState.DELETED)
        cluster.heartbeat(THIRD, changes(gone, since=upto, upto=upto + 1))
        upto += 2
        pass_with_heartbeats(cluster, SETTINGS.server_silent_ms - 1)
    copying(cluster, THIRD, 7, upto)
    assert not shown(cluster, planner, THIRD).copying
    copying(cluster, THIRD, 8, upto + 1)
    assert shown(cluster, planner, THIRD).copying


def test_a_paused_copy_is_waited_for_and_the_pause_is_no_time_without_bytes(
    cluster: MasterWithServers, planner: Planner
) -> None:
    copying(cluster, THIRD, 7, 2)
    pass_with_heartbeats(cluster, SETTINGS.copy_stalled_ms // 2)
    copying(cluster, THIRD, 7, 3, CopyHold.PAUSED)
    pass_with_heartbeats(cluster, 3 * SETTINGS.copy_stalled_ms)
    assert shown(cluster, planner, THIRD).copying
    copying(cluster, THIRD, 7, 4)
    assert shown(cluster, planner, THIRD).copying
    pass_with_heartbeats(cluster, SETTINGS.copy_stalled_ms + SETTINGS.server_silent_ms)
    assert not shown(cluster, planner, THIRD).copying, "it goes on, and gets nothing"


def test_a_copy_that_is_paused_again_and_again_has_the_time_between_counted(
    cluster: MasterWithServers, planner: Planner
) -> None:
    upto = 2
    for _ in range(4):
        copying(cluster, THIRD, 7, upto)
        pass_with_heartbeats(cluster, SETTINGS.copy_stalled_ms // 3)
        copying(cluster, THIRD, 7, upto + 1, CopyHold.PAUSED)
        pass_with_heartbeats(cluster, SETTINGS.copy_stalled_ms // 3)
        upto += 2
    copying(cluster, THIRD, 7, upto)
    assert not shown(cluster, planner, THIRD).copying


def test_a_newcomer_that_waits_for_a_slot_is_waited_for_while_other_copies_get_bytes(
    cluster: MasterWithServers, planner: Planner
) -> None:
    """It was removed after `follower_unhealthy_ms` and added again, for ever."""
    newcomer = Member(node_id=FOURTH, address="d:1", member_type=MemberType.PRE_VOTER)
    now = TabletConfig(op_id=OpId(1, 2), members=(*config_of(cluster).members, newcomer))
    cluster.heartbeat(FOURTH, full())
    late = status(the_tablet(cluster), now, leads=True, op_id=now.op_id, unhealthy=(FOURTH,))
    cluster.heartbeat(LEADER, changes(late))
    cluster.commit()
    assert not shown(cluster, planner, FOURTH).copying
    copying(cluster, FOURTH, 0, 2, CopyHold.WAITS)
    copying(cluster, FOURTH, 0, 3, tablet="other")
    assert shown(cluster, planner, FOURTH).copying
    for done in range(1, 5):
        pass_with_heartbeats(cluster, SETTINGS.copy_stalled_ms // 2)
        copying(cluster, FOURTH, done, 3 + done, tablet="other")
    assert shown(cluster, planner, FOURTH).copying
    pass_with_heartbeats(cluster, SETTINGS.copy_stalled_ms + SETTINGS.server_silent_ms)
    assert not shown(cluster, planner, FOURTH).copying, "nothing gets on there"


def test_a_server_where_a_copy_failed_is_avoided_for_a_while_and_one_where_it_only_waited_is_not(
    cluster: MasterWithServers, planner: Planner
) -> None:
    def avoided() -> tuple[NodeId, ...]:
        cluster.pass_ms(SETTINGS.policy_interval_ms)
        assert planner.shown is not None
        return planner.shown.tablets[the_tablet(cluster)].avoided

    gone = ReplicaStatus(tablet_id=the_tablet(cluster), data_state=ReportedDataState.DELETED)
    cluster.heartbeat(FOURTH, full())
    copying(cluster, FOURTH, 0, 2, CopyHold.WAITS)
    cluster.heartbeat(FOURTH, changes(gone, since=2, upto=3))
    assert avoided() == ()
    copying(cluster, FOURTH, 7, 4)
    cluster.heartbeat(FOURTH, changes(gone, since=4, upto=5))
    assert avoided() == (FOURTH,)
    pass_with_heartbeats(cluster, SETTINGS.copy_stalled_ms + SETTINGS.server_silent_ms)
    assert avoided() == ()


def test_a_voter_with_rows_stays_while_others_have_the_log_only(cluster: MasterWithServers, planner: Planner) -> None:
    """Whatever a policy proposes: two witnesses and the leader are a majority, and only the leader has the rows."""
    before = config_of(cluster).members
    types = {THIRD: MemberType.WITNESS, FOURTH: MemberType.WITNESS}
    members = (*before, Member(node_id=FOURTH, address="d:1"))
    now = TabletConfig(
        op_id=OpId(1, 2),
        members=tuple(
            Member(node_id=m.node_id, address=m.address, member_type=types.get(m.node_id, m.member_type))
            for m in members
        ),
    )
    for upto, server in ((2, LEADER), (2, SECOND), (2, THIRD)):
        known = status(
            the_tablet(cluster), now, leads=server == LEADER, op_id=now.op_id, unhealthy=(SECOND,) * (server == LEADER)
        )
        cluster.heartbeat(server, changes(known, upto=upto))
    cluster.heartbeat(FOURTH, full(status(the_tablet(cluster), now, op_id=now.op_id), upto=2))
    cluster.commit()
    assert propose(cluster, planner, ActionKind.REMOVE, SECOND, cas=now.op_id) == []
    assert "have the rows" in reasons(cluster)[0]
    demotion = propose(
        cluster, planner, ActionKind.CHANGE_ROLE, SECOND, cas=now.op_id, member_type=MemberType.NON_VOTER
    )
    assert demotion == []
    assert "have the rows" in reasons(cluster)[0]
