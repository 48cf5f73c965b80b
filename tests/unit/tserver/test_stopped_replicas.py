"""A replica that has failed or is stopping says no more that it leads, although its status stays as it was."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from stelae.host.replica_state import ReplicaState
from stelae.protocol.codec import decode, encode
from stelae.protocol.member_messages import CONFIG, ConfigRequest
from stelae.protocol.tablet_messages import DESCRIBE, DescribeRequest, Description
from stelae.server.tserver.actions import ActionService
from stelae.server.tserver.member_service import MemberService, check_config_id
from stelae.server.tserver.recovery_service import survivor_view, tablet_facts
from stelae.server.tserver.stopped_replicas import leads
from stelae.server.tserver.tablet_service import TabletService
from stelae.spi.errors import Unavailable, WrongConfigId
from stelae.spi.ids import NodeId, OpId, TabletId
from stelae.spi.members import Member, MemberType, TabletConfig
from tests.unit.client.tablets import one_column
from tests.unit.leader_status import leader_status

T, NODE = TabletId("t"), NodeId("a" * 32)
SCHEMA = one_column("text", "string")
CONFIG_NOW = TabletConfig(
    op_id=OpId(1, 1), members=(Member(node_id=NODE, address="m:1", member_type=MemberType.VOTER),)
)
ENDED = [(ReplicaState.FAILED, "the log cannot be trusted"), (ReplicaState.FAILED, ""), (ReplicaState.STOPPING, "")]


def leader(state: ReplicaState = ReplicaState.RUNNING, failure: str = "") -> Any:
    """A replica that led when its status was last noted."""
    status = leader_status(NODE, CONFIG_NOW, OpId(2, 5))
    made = MagicMock(tablet_id=T, status=status, state=state, failure=failure, log_only=False)
    made.core.status.return_value = status
    made.applier.store.schema, made.applier.schemas = SCHEMA, (SCHEMA.to_bytes(),)
    made.applier.applied, made.applier.timestamp = OpId(2, 5), 1 << 40
    made.flusher.log_base = OpId(0, 0)
    block = made.flusher.superblock
    block.table_name, block.partition.scheme, block.partition.hash_buckets = "table", b"", ()
    block.consensus_engine = "raft"
    return made


def ask(service: Callable[[Any], Any], replica: Any, kind: str, asked: Any) -> bytes:
    handlers: dict[str, Callable[[Any], None]] = {}
    node: Any = MagicMock(replicas={T: replica}, failed_tablets={})
    node.messenger.serve = lambda kind, handler, **_: handlers.update({kind: handler})
    service(node).start()
    answers: list[Any] = []
    handlers[kind](SimpleNamespace(body=[encode(asked)], kind=kind, reply=answers.extend))
    (answer,) = answers
    return bytes(answer)


def tablet_service(node: Any) -> TabletService:
    load: Any = None
    return TabletService(node, load)


@pytest.mark.parametrize(("state", "failure"), ENDED)
def test_it_gives_no_leader_and_no_schema_to_clients(state: ReplicaState, failure: str) -> None:
    """A new leader may have changed both. A client that asked this node first got the old ones again and again."""
    found = decode(ask(tablet_service, leader(), DESCRIBE, DescribeRequest(T)), Description)
    assert found.leader == NODE
    with pytest.raises(Unavailable, match=failure or state.value):
        ask(tablet_service, leader(state, failure), DESCRIBE, DescribeRequest(T))


@pytest.mark.parametrize(("state", "failure"), ENDED)
def test_it_does_not_answer_for_the_leader(state: ReplicaState, failure: str) -> None:
    """A command that asks the leader for the members got those of a former leader, and asked no other node."""
    assert ask(MemberService, leader(), CONFIG, ConfigRequest(T))
    with pytest.raises(Unavailable, match=failure or state.value):
        ask(MemberService, leader(state, failure), CONFIG, ConfigRequest(T))
    assert ask(MemberService, leader(state, failure), CONFIG, ConfigRequest(T, leader_only=False))


@pytest.mark.parametrize(("state", "failure"), ENDED)
def test_it_does_not_say_that_a_request_is_meant_for_another_config(state: ReplicaState, failure: str) -> None:
    with pytest.raises(WrongConfigId):
        check_config_id(leader(), OpId(1, 7))
    check_config_id(leader(state, failure), OpId(1, 7))


def test_it_is_no_leader_whose_schema_a_rebuilt_catalog_can_rely_on() -> None:
    """The plan called the table sound, though its newest schema may be that of a later leader."""
    assert tablet_facts(leader()).leads
    assert not tablet_facts(leader(ReplicaState.FAILED, "damage")).leads


def test_a_recovered_replica_that_has_failed_since_serves_no_more() -> None:
    assert survivor_view(leader()).serving
    assert not survivor_view(leader(ReplicaState.FAILED, "damage")).serving


def test_it_does_not_carry_out_what_leaders_do() -> None:
    for state, expected in ((ReplicaState.RUNNING, True), (ReplicaState.STOPPING, False)):
        replica = leader(state)
        service = ActionService(MagicMock(replicas={T: replica}), MagicMock(), MagicMock())
        found = service.local(T)
        assert found is not None
        assert (found.leads, leads(replica)) == (expected, expected)
