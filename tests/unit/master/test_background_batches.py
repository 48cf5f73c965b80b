"""Background work of the leader: how many batches it has in flight, and how small the records are that it leaves."""

from __future__ import annotations

import pytest

from stelae.protocol.catalog_names import TableState, TabletState
from stelae.protocol.master_messages import DeleteTable
from stelae.server.master.core.events import Decided, Refuse, Replicate
from stelae.server.master.core.operations import BatchOutcome
from stelae.server.master.settings import MasterSettings
from stelae.spi.ids import OpId
from tests.unit.master.master_with_servers import (
    SERVERS,
    SETTINGS,
    MasterWithServers,
    create,
    full,
    leading,
    only,
    refusals,
)
from tests.unit.master.planned import LEADER, THIRD, Planner, report, the_tablet, with_a_tablet

CLIENTS = 3 * SETTINGS.changes_in_flight_max


def batches(cluster: MasterWithServers) -> list[Replicate]:
    return only(cluster.pass_ms(cluster.settings.scan_interval_ms), Replicate)


def test_the_old_answers_of_many_clients_share_batches_and_hold_up_no_user() -> None:
    """Each client had a batch of its own. With hundreds of them, all changes by users were refused meanwhile."""
    cluster = leading()
    for number in range(CLIENTS):
        cluster.ask(create("bad name!"), client=f"client{number}")
        cluster.commit()
    cluster.now_us += SETTINGS.answer_keep_ms * 1000
    assert len(batches(cluster)) == 1 and refusals(cluster.ask(create())) == []
    cluster.commit()
    assert len(cluster.core.catalog.clients) == CLIENTS
    assert len(batches(cluster)) == 1
    cluster.commit()
    assert {*cluster.core.catalog.requests} == {"ann"}, "the others are dropped, in one batch"


def test_tables_that_expire_at_once_are_removed_in_one_batch() -> None:
    cluster = leading()
    for number in range(CLIENTS):
        cluster.ask(create(f"t{number}", buckets=1), number + 1)
        cluster.commit()
        cluster.ask(DeleteTable(table=f"t{number}", keep_ms=1_000), number + 1, client="bob")
        cluster.commit()
    cluster.now_us += 2_000_000
    assert len(batches(cluster)) == 1
    cluster.commit()
    assert {table.state for table in cluster.core.catalog.tables.values()} == {TableState.REMOVED}


def test_a_table_that_expires_is_removed_with_a_tablet_whose_members_have_just_changed(planner: Planner) -> None:
    """One batch had the tablet as REMOVED, and then as RUNNING with its new members: it outlived its table."""
    cluster = with_a_tablet(planner)
    tablet_id = the_tablet(cluster)
    cluster.ask(DeleteTable(table="readings", keep_ms=1_000), 2)
    cluster.commit()
    cluster.now_us += max(2_000, SETTINGS.scan_interval_ms) * 1000
    report(cluster, LEADER, op_id=OpId(1, 5))
    batches(cluster)
    cluster.commit()
    assert {table.state for table in cluster.core.catalog.tables.values()} == {TableState.REMOVED}
    assert cluster.core.catalog.tablets[tablet_id].state is TabletState.REMOVED


@pytest.mark.parametrize("limit", [1, 2, 8, 64])
def test_background_work_leaves_room_for_users_within_the_limit(limit: int) -> None:
    """Each record makes a batch of its own here, and no batch is decided."""
    cluster = MasterWithServers(MasterSettings(changes_in_flight_max=limit, batch_records_max=1))
    cluster.lead(1)
    for server in (*SERVERS, *(f"{number:032x}" for number in range(100, 200))):
        cluster.heartbeat(server, full())  # type: ignore[arg-type]
    batches(cluster)
    assert cluster.core.status().operations == max(1, limit - max(1, limit // 8))
    assert refusals(cluster.ask(create())) == (["OVERLOADED"] if limit == 1 else [])
    assert cluster.core.status().operations <= limit


def test_a_change_that_was_not_replicated_is_refused_with_the_reason_and_the_next_step() -> None:
    for outcome, code in ((BatchOutcome.CERTAINLY_NOT, "NOT_REPLICATED"), (BatchOutcome.UNKNOWN, "OUTCOME_UNKNOWN")):
        cluster = leading()
        (batch,) = only(cluster.ask(create()), Replicate)
        (refusal,) = only(cluster.step(Decided(batch.token, outcome, reason="the disk is full")), Refuse)
        assert refusal.code == code and ": the disk is full; ask again" in refusal.detail and refusal.retryable


def test_a_removed_tablet_names_no_node_that_had_begun_it() -> None:
    """Its record is kept for ever, so it is small."""
    cluster = leading()
    (tablet_id,) = cluster.create_running(create(buckets=1))
    assert len(cluster.core.catalog.tablets[tablet_id].begun) == 3
    cluster.ask(DeleteTable(table="readings"), 2)
    cluster.commit()
    removed = cluster.core.catalog.tablets[tablet_id]
    assert removed.terminal and removed.begun == ()


def test_servers_that_come_and_go_later_are_not_put_on_record_as_first_holders(planner: Planner) -> None:
    """The list grew with each server that ever had a replica, for as long as the tablet lived."""
    cluster = with_a_tablet(planner, [LEADER])
    report(cluster, LEADER, op_id=OpId(1, 5))
    cluster.commit()
    report(cluster, THIRD, leads=False, op_id=OpId(1, 5))
    cluster.commit()
    tablet = cluster.core.catalog.tablets[the_tablet(cluster)]
    assert tablet.config is not None and tablet.config.op_id == OpId(1, 5) and tablet.begun == (LEADER,)
