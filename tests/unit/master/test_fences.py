"""Fences: what a replica lets happen to it, whoever asks (appendix A of the multi-master document)."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from stelae.partition.schema import Partition
from stelae.protocol.actions import (
    AlterSchema,
    ChangeConfig,
    ConfigChange,
    CreateReplica,
    DeleteReplica,
    Evicted,
    ServerAction,
    Terminal,
    TransferLeadership,
    Unreadable,
)
from stelae.protocol.catalog_names import TableId, TabletState
from stelae.protocol.fences import FenceVerdict, LocalReplica, judge
from stelae.protocol.master_heartbeats import ReportedDataState
from stelae.spi.ids import ZERO, OpId, TabletId
from stelae.spi.members import MemberType, TabletConfig
from tests.unit.master.master_with_servers import SCHEMA, SERVERS

TABLET = TabletId("x1")
CAS = OpId(3, 7)
SEEN = OpId(3, 6)
CREATE = CreateReplica(
    node_id=SERVERS[0],
    tablet_id=TABLET,
    table_id=TableId("t1"),
    config=TabletConfig(op_id=ZERO, members=()),
    schema=SCHEMA.to_bytes(),
    partition=Partition(),
    consensus="raft",
)
GONE = DeleteReplica(node_id=SERVERS[0], tablet_id=TABLET, fence=Terminal(state=TabletState.REMOVED))
EVICTED = DeleteReplica(node_id=SERVERS[0], tablet_id=TABLET, fence=Evicted(config_op_id=CAS, seen=SEEN))
LOST = DeleteReplica(node_id=SERVERS[0], tablet_id=TABLET, fence=Unreadable(config_op_id=CAS))
ALTER = AlterSchema(node_id=SERVERS[0], tablet_id=TABLET, version=4, schema=SCHEMA.to_bytes())
CHANGE = ChangeConfig(
    node_id=SERVERS[0],
    tablet_id=TABLET,
    change=ConfigChange.ADD,
    member=SERVERS[4],
    address="e:1",
    member_type=MemberType.PRE_VOTER,
    cas=CAS,
)
TRANSFER = TransferLeadership(node_id=SERVERS[0], tablet_id=TABLET, to=SERVERS[1], cas=CAS)


def local(state: ReportedDataState = ReportedDataState.READY, **more: object) -> LocalReplica:
    fields = {
        "data_state": state,
        "committed_config": CAS,
        "newest_config": CAS,
        "schema_version": 3,
        "leads": True,
        "change_pending": False,
        **more,
    }
    return LocalReplica(**fields)  # type: ignore[arg-type]


def verdict(action: ServerAction, replica: LocalReplica | None) -> FenceVerdict:
    judged = judge(action, replica)
    assert judged.reason
    return judged.verdict


def test_a_replica_is_created_only_where_the_tablet_has_never_been() -> None:
    assert verdict(CREATE, None) is FenceVerdict.ACT
    assert verdict(CREATE, local()) is FenceVerdict.DONE
    for state in (ReportedDataState.DELETED, ReportedDataState.COPYING, ReportedDataState.FAILED):
        assert verdict(CREATE, local(state)) is FenceVerdict.REFUSED


@pytest.mark.parametrize("state", [ReportedDataState.READY, ReportedDataState.COPYING, ReportedDataState.FAILED])
def test_what_the_catalog_calls_gone_for_ever_is_deleted_in_any_state(state: ReportedDataState) -> None:
    later = local(state, committed_config=OpId(9, 9), newest_config=OpId(9, 9))
    assert verdict(GONE, later) is FenceVerdict.ACT


@pytest.mark.parametrize("state", [TabletState.PREPARING, TabletState.CREATING, TabletState.RUNNING])
def test_a_state_of_the_catalog_that_is_not_terminal_deletes_nothing(state: TabletState) -> None:
    claim = DeleteReplica(node_id=SERVERS[0], tablet_id=TABLET, fence=Terminal(state=state))
    assert verdict(claim, local()) is FenceVerdict.REFUSED


def test_deleting_what_is_not_there_is_done_already() -> None:
    for action in (GONE, EVICTED):
        assert verdict(action, None) is FenceVerdict.DONE
        assert verdict(action, local(ReportedDataState.DELETED)) is FenceVerdict.DONE


def test_an_eviction_deletes_a_replica_that_was_left_behind() -> None:
    assert verdict(EVICTED, local(committed_config=SEEN, newest_config=SEEN)) is FenceVerdict.ACT


def test_an_eviction_is_refused_by_a_replica_that_knows_the_evicting_config_or_a_later_one() -> None:
    for known in (CAS, OpId(3, 8), OpId(4, 1)):
        assert verdict(EVICTED, local(committed_config=known, newest_config=known)) is FenceVerdict.REFUSED


def test_an_eviction_is_refused_by_a_replica_that_is_not_the_one_that_was_reported() -> None:
    for known in (OpId(3, 5), OpId(1, 1)):
        assert verdict(EVICTED, local(committed_config=known, newest_config=known)) is FenceVerdict.REFUSED


def test_only_a_replica_of_which_nothing_can_be_read_is_deleted_without_its_config() -> None:
    failed = local(ReportedDataState.FAILED, newest_config=OpId(1 << 62, 1 << 62))
    assert verdict(LOST, msgspec.structs.replace(failed, unreadable=True)) is FenceVerdict.ACT
    assert verdict(LOST, None) is FenceVerdict.DONE
    for other in (failed, local(), local(ReportedDataState.COPYING)):
        assert verdict(LOST, other) is FenceVerdict.REFUSED


def test_an_eviction_is_refused_by_a_replica_whose_leader_is_adding_it_again() -> None:
    told = local(committed_config=SEEN, newest_config=OpId(3, 9))
    assert verdict(EVICTED, told) is FenceVerdict.REFUSED


def test_an_eviction_is_refused_by_a_replica_that_is_being_copied() -> None:
    copying = local(ReportedDataState.COPYING, committed_config=SEEN, newest_config=SEEN)
    assert verdict(EVICTED, copying) is FenceVerdict.REFUSED


def test_a_schema_is_taken_by_a_leader_that_has_the_one_before_it() -> None:
    assert verdict(ALTER, local()) is FenceVerdict.ACT
    for version in (0, 2):
        assert verdict(ALTER, local(schema_version=version)) is FenceVerdict.REFUSED
    for version in (4, 5):
        assert verdict(ALTER, local(schema_version=version)) is FenceVerdict.DONE
    assert verdict(ALTER, local(leads=False)) is FenceVerdict.REFUSED
    assert verdict(ALTER, None) is FenceVerdict.REFUSED


@pytest.mark.parametrize("action", [CHANGE, TRANSFER])
def test_a_config_changes_only_from_the_one_that_it_was_planned_for(action: ServerAction) -> None:
    assert verdict(action, local()) is FenceVerdict.ACT
    for known in (OpId(3, 6), OpId(3, 8)):
        assert verdict(action, local(committed_config=known)) is FenceVerdict.REFUSED


@pytest.mark.parametrize("action", [CHANGE, TRANSFER])
def test_a_config_changes_by_its_leader_and_one_change_at_a_time(action: ServerAction) -> None:
    assert verdict(action, local(leads=False)) is FenceVerdict.REFUSED
    assert verdict(action, local(change_pending=True)) is FenceVerdict.REFUSED
    assert verdict(action, None) is FenceVerdict.REFUSED


def test_every_action_is_judged_in_every_state() -> None:
    for action, state in itertools.product(
        (CREATE, GONE, EVICTED, ALTER, CHANGE, TRANSFER), (None, *ReportedDataState)
    ):
        assert verdict(action, None if state is None else local(state)) in FenceVerdict
