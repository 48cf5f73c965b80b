"""What comes late: first members of a tablet that runs, and answers of the policy."""

from __future__ import annotations

import pytest

from stelae.partition.schema import KeyRange
from stelae.protocol.actions import CreateReplica
from stelae.protocol.catalog_names import TabletState
from stelae.protocol.master_heartbeats import ReplicaStatus, ReportedDataState
from stelae.protocol.master_messages import AddColumn, AddRange, AlterTable, DeleteTable, DropRange
from stelae.server.master.core.events import AskPolicy
from stelae.server.master.core.policy_views import PolicyViews
from stelae.spi.ids import OpId, TabletId
from stelae.spi.schema import Schema
from tests.unit.master.master_with_servers import SETTINGS, MasterWithServers, changes, create, full, only, sent, status
from tests.unit.master.planned import (
    FIFTH,
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


@pytest.fixture
def lacking(planner: Planner) -> MasterWithServers:
    """The third member of the tablet has never reported a replica."""
    return with_a_tablet(planner, [LEADER, SECOND])


# -- first members that come late -----------------------------------------------------------------------


def late_creations(cluster: MasterWithServers) -> list[CreateReplica]:
    """What the third server is asked to create, that was away while the first two elected a leader, and lacks all."""
    cluster.effects.clear()
    cluster.heartbeat(THIRD, full(), run=2)
    cluster.pass_ms(SETTINGS.action_retry_ms)
    return [a for a in sent(cluster.effects, CreateReplica) if isinstance(a, CreateReplica)]


def test_a_first_member_that_missed_its_creation_is_asked_again_though_the_tablet_runs(
    lacking: MasterWithServers,
) -> None:
    (action,) = set(late_creations(lacking))
    assert action.node_id == THIRD and action.tablet_id == the_tablet(lacking)
    assert action.config.op_id == OpId(0, 0) and len(action.config.members) == 3


def test_a_late_replica_begins_with_the_schema_that_the_log_of_its_tablet_begins_with(
    lacking: MasterWithServers,
) -> None:
    """Found on running nodes: with the newest one it would lack those that the rows of its log were made for."""
    lacking.ask(AlterTable(table="readings", steps=(AddColumn(name="x", type="int64"),)), 40)
    lacking.commit()
    (action,) = set(late_creations(lacking))
    assert Schema.from_bytes(action.schema).version == 1


def test_a_replacement_and_a_new_range_begin_with_a_schema_that_is_on_record(cluster: MasterWithServers) -> None:
    cluster.ask(create("ranged", buckets=1, ranges=2), 40)
    cluster.commit()
    cut = DropRange(range=KeyRange(b"00001", None))
    grown = AddRange(range=KeyRange(b"00002", None))
    cluster.ask(AlterTable(table="ranged", steps=(AddColumn(name="x", type="int64"), cut, grown)), 41)
    cluster.commit()
    cluster.pass_ms(SETTINGS.create_timeout_ms + 1)
    cluster.commit()
    catalog = cluster.core.catalog
    table = catalog.tables[catalog.names["ranged"]]
    live = catalog.live_tablets(table.table_id)
    versions = sorted(Schema.from_bytes(table.schema_of(tablet)).version for tablet in live)
    assert versions == [1, 2] == [version for version, _ in table.first_schemas]
    assert any(t.state is TabletState.REPLACED for t in catalog.tablets.values())


def test_nobody_is_asked_to_begin_anew_once_the_members_have_changed(lacking: MasterWithServers) -> None:
    report(lacking, LEADER, op_id=OpId(1, 5))
    assert late_creations(lacking) == []


def test_a_member_whose_replica_was_there_and_is_not_begins_nothing_anew(lacking: MasterWithServers) -> None:
    """Its files are gone, say, and what it had acknowledged with them: empty, it would outvote who still has it."""
    report(lacking, THIRD, leads=False)
    lacking.commit()
    assert late_creations(lacking) == []
    tablet = lacking.core.catalog.tablets[the_tablet(lacking)]
    assert THIRD in tablet.begun and tablet.state is TabletState.RUNNING
    lacking.follow(7)
    lacking.lead(8)
    assert late_creations(lacking) == [], "it is on record, whoever leads"


def missing(cluster: MasterWithServers, upto: int) -> None:
    """The third server reports that a leader takes it for a voter, and that it has nothing of the tablet."""
    nothing = ReplicaStatus(tablet_id=the_tablet(cluster), data_state=ReportedDataState.MISSING)
    cluster.heartbeat(THIRD, changes(nothing, since=upto - 1, upto=upto), run=2)
    cluster.commit()


def test_a_first_member_that_has_not_begun_is_not_barred_because_its_leader_asks_for_it(
    lacking: MasterWithServers,
) -> None:
    cluster = lacking
    cluster.heartbeat(THIRD, full(), run=2)
    missing(cluster, 2)
    tablet = cluster.core.catalog.tablets[the_tablet(cluster)]
    assert THIRD not in tablet.barred and THIRD not in tablet.begun
    cluster.effects.clear()
    cluster.pass_ms(SETTINGS.action_retry_ms)
    assert {a.node_id for a in sent(cluster.effects, CreateReplica) if isinstance(a, CreateReplica)} == {THIRD}


def test_a_first_member_that_had_begun_and_lost_its_disk_is_barred_before_any_member_has_changed(
    lacking: MasterWithServers,
) -> None:
    """It was seen only after another member had joined: the tablet had two replicas, and nobody said why."""
    cluster = lacking
    report(cluster, THIRD, leads=False)
    cluster.commit()
    cluster.heartbeat(THIRD, full(), run=2)
    missing(cluster, 2)
    tablet = cluster.core.catalog.tablets[the_tablet(cluster)]
    assert tablet.barred == (THIRD,) and tablet.config is not None and tablet.config.op_id.index <= 1
    assert late_creations(cluster) == []


def test_a_member_that_begins_after_it_was_missing_is_missing_no_more(lacking: MasterWithServers) -> None:
    cluster = lacking
    cluster.heartbeat(THIRD, full(), run=2)
    missing(cluster, 2)
    begun = status(the_tablet(cluster), config_of(cluster), leads=False)
    cluster.heartbeat(THIRD, changes(begun, since=2, upto=3), run=2)
    cluster.commit()
    tablet = cluster.core.catalog.tablets[the_tablet(cluster)]
    assert THIRD in tablet.begun and THIRD not in tablet.barred


def test_a_server_that_has_not_told_everything_is_not_asked(lacking: MasterWithServers) -> None:
    lacking.effects.clear()
    lacking.heartbeat(THIRD, run=2)
    lacking.pass_ms(SETTINGS.action_retry_ms)
    assert sent(lacking.effects, CreateReplica) == []


# -- an answer of the policy that comes late -----------------------------------------------------------


def asked_about_a_new_table(cluster: MasterWithServers) -> tuple[AskPolicy, TabletId]:
    """A table is created while the policy thinks; returns what it was asked last."""
    cluster.policy_answers = False
    cluster.ask(create("late", buckets=1), 50)
    asked = only(cluster.commit(), AskPolicy)
    (tablet,) = (t for t in cluster.core.catalog.tablets.values() if t.state is TabletState.PREPARING)
    return asked[-1], tablet.tablet_id


def test_a_tablet_is_placed_by_an_answer_that_comes_late(cluster: MasterWithServers) -> None:
    asked, tablet = asked_about_a_new_table(cluster)
    cluster.pass_ms(60)
    cluster.step(cluster.plan(asked))
    cluster.commit()
    assert cluster.core.catalog.tablets[tablet].state is TabletState.CREATING


def test_a_tablet_whose_table_was_dropped_meanwhile_is_not_placed(cluster: MasterWithServers) -> None:
    asked, tablet = asked_about_a_new_table(cluster)
    cluster.ask(DeleteTable(table="late"), 51)
    cluster.commit()
    cluster.step(cluster.plan(asked))
    cluster.commit()
    assert cluster.core.catalog.tablets[tablet].state is TabletState.REMOVED


def test_a_tablet_is_not_placed_where_a_server_has_fallen_silent_meanwhile(cluster: MasterWithServers) -> None:
    asked, tablet = asked_about_a_new_table(cluster)
    cluster.now_us += (SETTINGS.server_silent_ms + 1) * 1000
    cluster.heartbeat(FIFTH)
    cluster.step(cluster.plan(asked))
    cluster.commit()
    assert cluster.core.catalog.tablets[tablet].state is TabletState.PREPARING


def test_an_answer_to_an_earlier_leadership_means_nothing(cluster: MasterWithServers) -> None:
    asked, tablet = asked_about_a_new_table(cluster)
    cluster.follow(2)
    cluster.lead(3)
    cluster.step(cluster.plan(asked))
    cluster.commit()
    assert cluster.core.catalog.tablets[tablet].state is TabletState.PREPARING


def test_the_policy_is_asked_one_thing_at_a_time_and_less_often_the_longer_it_takes(cluster: MasterWithServers) -> None:
    cluster.policy_answers = False
    (asked,) = only(cluster.pass_ms(SETTINGS.policy_interval_ms), AskPolicy)
    assert only(cluster.pass_ms(SETTINGS.policy_interval_ms), AskPolicy) == []
    cluster.step(cluster.plan(asked))
    assert only(cluster.pass_ms(SETTINGS.policy_interval_ms * 9 - 1), AskPolicy) == []
    assert len(only(cluster.pass_ms(1), AskPolicy)) == 1


def test_what_the_policy_is_shown_is_what_a_new_leader_would_show_it(
    cluster: MasterWithServers, planner: Planner
) -> None:
    """Views are kept from plan to plan: whatever happens to tablet, table or server must reach them."""
    cluster.ask(create("second", buckets=3), 40)
    cluster.commit()
    cluster.ask(AlterTable(table="second", steps=(AddColumn(name="x", type="int64"),)), 41)
    cluster.commit()
    for run in (1, 2):
        cluster.heartbeat(SECOND, full(), run=run)
    cluster.now_us += SETTINGS.server_dead_ms * 1000
    for server in (LEADER, SECOND, FOURTH, FIFTH):
        cluster.heartbeat(server, run=2 if server == SECOND else 1)
    cluster.pass_ms(SETTINGS.policy_interval_ms)
    kept, view = planner.shown, cluster.core._view()
    fresh = PolicyViews(cluster.core.catalog.tablets)
    fresh.refresh(view, 1000)
    assert kept is not None and kept.tablets == fresh.snapshot(view).tablets
    assert any(not replica.healthy for tablet in kept.tablets.values() for replica in tablet.replicas)
