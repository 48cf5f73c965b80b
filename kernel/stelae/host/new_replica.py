"""The message by which a leader creates an empty replica on the node of a new member, which it then feeds from its log.

Source: "Tablet copy", *Tablet auto-vivification*: to add a replica, a request to the leader is enough. This is the case
in which the leader's log still begins at its first entry, so that nothing must be copied. In all other cases the leader
starts a copy (``start_copy``).

A ``PRE_WITNESS`` gets a replica without rows (rule 12). Its log begins where the leader's store is flushed, so this
works however far the leader's log was collected. That op id is committed, and rows that are copied later are
never older, as the flushed op id of a store only rises.

A member that votes, or had a vote, never gets a replica in this way, except as a ``PRE_WITNESS`` over its tombstone. It
has had one, with votes and entries that count. Without them it could vote for a leader that lacks acknowledged entries
(``durability.md`` rule 19). The tombstone has them."""

import msgspec

from stelae.host.member_promises import member_type, type_that_counts
from stelae.host.superblock import PartitionBounds, Superblock
from stelae.spi.consensus import Status
from stelae.spi.ids import ZERO, NodeId, OpId, TabletId
from stelae.spi.members import JOINING, MemberType, TabletConfig

NEW_REPLICA = "new_replica"


_NO_CONFIG = TabletConfig(op_id=ZERO, members=())


class LogStart(msgspec.Struct, frozen=True, kw_only=True):
    """Where the log of a replica without rows begins."""

    base: OpId  #: Committed. The log has the entries after it.
    #: The committed config, if its entry is not after ``base``, so that the log never gets it; else the empty config.
    committed: TabletConfig
    leader: NodeId  #: The sender, which leads the tablet in ``term``.
    term: int
    #: The member has, or had, a vote (``member_promises``). The log may begin over its tombstone only.
    had_vote: bool


class NewReplica(msgspec.Struct, frozen=True, kw_only=True):
    """Create a replica without entries. With rows, it has no effect on a node that ever had the tablet.

    Without rows it may begin over a tombstone, whose term, vote and last op id are kept
    (``stelae.lifecycle.witness_over_tombstone``)."""

    tablet_id: TabletId
    table_name: str
    #: The first schema, which entry 1 of the log may already write rows of. With ``log_only``: the one at its base.
    schema: bytes
    partition: PartitionBounds
    consensus: str  #: Name of the consensus engine of the tablet.
    config: OpId  #: The op id of the config with the new member.
    log_only: LogStart | None = None  #: Set for a replica without rows.


def new_replica(block: Superblock, status: Status, log_base: OpId, peer: NodeId) -> NewReplica | str:
    """Return the message for a peer that does not host the tablet, or why it cannot be sent.

    Args:
        block: the leader's superblock.
        status: of the leader.
        log_base: where the leader's log begins.
        peer: the member."""
    counts = type_that_counts(peer, status.config, status.committed_config)
    log_only = None
    if member_type(peer, status.config) is MemberType.PRE_WITNESS:
        known = status.committed_config if status.committed_config.op_id <= block.flushed else _NO_CONFIG
        log_only = LogStart(
            base=block.flushed, committed=known, leader=status.node_id, term=status.term, had_vote=counts not in JOINING
        )
    elif counts not in JOINING:
        return "a member with a vote has lost its replica"
    elif log_base != ZERO:
        return f"the log begins behind entry {log_base}, and what is older must be copied"
    return NewReplica(
        tablet_id=block.tablet_id,
        table_name=block.table_name,
        schema=block.schemas[0] if log_only is None else block.schemas[-1],
        partition=block.partition,
        consensus=block.consensus_engine,
        config=status.config.op_id,
        log_only=log_only,
    )
