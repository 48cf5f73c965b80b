"""A leader creates the replica of a new member only where nothing must be copied, and never that of a voter."""

from __future__ import annotations

import msgspec
import pytest

from stelae.host.new_replica import LogStart, NewReplica, new_replica
from stelae.host.superblock import PartitionBounds, Superblock
from stelae.spi.consensus import Status
from stelae.spi.ids import ZERO, NodeId, OpId, TabletId
from stelae.spi.members import Member, MemberType, TabletConfig
from tests.unit.leader_status import leader_status

LEADER, PEER = NodeId("a" * 32), NodeId("b" * 32)
BOUNDS = PartitionBounds(hash_buckets=(1,), key_low=b"k", scheme=b"scheme")
BLOCK = Superblock(tablet_id=TabletId("t"), table_name="table", schemas=(b"first", b"second"), partition=BOUNDS)


def status(member_type: MemberType | None) -> Status:
    members = [Member(node_id=LEADER, address="a:1")]
    if member_type is not None:
        members.append(Member(node_id=PEER, address="b:1", member_type=member_type))
    config = TabletConfig(op_id=OpId(2, 7), members=tuple(members))
    return leader_status(LEADER, config, OpId(2, 9))


@pytest.mark.parametrize("member_type", [MemberType.PRE_VOTER, MemberType.NON_VOTER])
def test_a_member_without_a_vote_gets_the_first_schema_and_the_partition_of_the_tablet(member_type: MemberType) -> None:
    assert new_replica(BLOCK, status(member_type), ZERO, PEER) == NewReplica(
        tablet_id=TabletId("t"),
        table_name="table",
        schema=b"first",
        partition=BOUNDS,
        consensus="raft",
        config=OpId(2, 7),
    )


@pytest.mark.parametrize("member_type", [MemberType.VOTER, MemberType.WITNESS, None])
def test_a_voter_that_has_lost_its_replica_gets_no_empty_one(member_type: MemberType | None) -> None:
    """It may have acknowledged entries and given votes. A new empty replica would act as if it had not (rule 19)."""
    assert new_replica(BLOCK, status(member_type), ZERO, PEER) == "a member with a vote has lost its replica"


def test_a_vote_that_only_a_pending_change_takes_away_still_counts() -> None:
    """Until the change commits, a member that does not know it may still ask this replica for a vote."""
    voter, learner = status(MemberType.VOTER), status(MemberType.NON_VOTER)
    pending = msgspec.structs.replace(learner, committed_config=voter.config)
    assert new_replica(BLOCK, pending, ZERO, PEER) == "a member with a vote has lost its replica"


def test_what_is_not_in_the_log_any_more_must_be_copied() -> None:
    found = new_replica(BLOCK, status(MemberType.PRE_VOTER), OpId(1, 4), PEER)
    assert found == "the log begins behind entry 1.4, and what is older must be copied"


@pytest.mark.parametrize("log_base", [ZERO, OpId(1, 4)])
def test_a_witness_gets_a_log_that_begins_where_the_store_is_flushed_however_far_the_log_was_collected(
    log_base: OpId,
) -> None:
    learner = status(MemberType.PRE_WITNESS)
    for flushed, known in ((ZERO, False), (OpId(2, 6), False), (OpId(2, 7), True), (OpId(2, 8), True)):
        made = new_replica(msgspec.structs.replace(BLOCK, flushed=flushed), learner, log_base, PEER)
        assert isinstance(made, NewReplica)
        committed = learner.committed_config if known else TabletConfig(op_id=ZERO, members=())
        assert made.log_only == LogStart(
            base=flushed, committed=committed, leader=learner.node_id, term=learner.term, had_vote=False
        )
        assert made.schema == b"second", "the schema that is in force where the log begins"
