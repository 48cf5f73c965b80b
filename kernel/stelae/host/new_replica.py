"""The message by which a leader creates an empty replica on the node of a new member, which it then feeds from its log.

Source: "Tablet copy", *Tablet auto-vivification*: to add a replica, only the leader has to be told. This is the case in
which the leader's log still begins at its first entry, so that nothing must be copied.

A member that votes never gets a replica in this way. It has had one, with votes and entries that count. Without them it
could vote for a leader that lacks acknowledged entries (``durability.md`` rule 19)."""

import logging
from collections.abc import Callable

import msgspec

from stelae.host.superblock import PartitionBounds, Superblock
from stelae.spi.consensus import CopyRequest, Status
from stelae.spi.ids import ZERO, NodeId, OpId, TabletId
from stelae.spi.members import MemberType
from stelae.spi.services import Metrics

log = logging.getLogger(__name__)

NEW_REPLICA = "new_replica"

_WITHOUT_VOTE = (MemberType.PRE_VOTER, MemberType.NON_VOTER)


class NewReplica(msgspec.Struct, frozen=True, kw_only=True):
    """Create an empty replica. It has no effect on a node that ever had the tablet."""

    tablet_id: TabletId
    table_name: str
    schema: bytes  #: The first schema, which entry 1 of the log may already write rows of.
    partition: PartitionBounds
    consensus: str  #: Name of the consensus engine of the tablet.
    config: OpId  #: The op id of the config with the new member.


def new_replica(block: Superblock, status: Status, log_base: OpId, peer: NodeId) -> NewReplica | str:
    """Return the message for a peer that does not host the tablet, or why it cannot be sent.

    Args:
        block: the leader's superblock.
        status: of the leader.
        log_base: where the leader's log begins.
        peer: the member."""
    # A vote that a pending change takes away is still counted by members that do not know the change.
    known = [config.member(peer) for config in (status.config, status.committed_config)]
    if known[0] is None or any(member and member.member_type not in _WITHOUT_VOTE for member in known):
        return "a member with a vote has lost its replica"
    if log_base != ZERO:
        return f"the log begins behind entry {log_base}, and what is older must be copied"
    return NewReplica(
        tablet_id=block.tablet_id,
        table_name=block.table_name,
        schema=block.schemas[0],
        partition=block.partition,
        consensus=block.consensus_engine,
        config=status.config.op_id,
    )


class CopyRequests:
    """Carries out the ``CopyRequest`` effects of one leader.

    Args:
        create: sends the message to a peer.
        metrics: counts the copies that are needed.
    """

    def __init__(self, create: Callable[[NodeId, NewReplica], None], metrics: Metrics) -> None:
        self._create = create
        self._metrics = metrics
        self._reasons: dict[NodeId, str] = {}

    def handle(self, request: CopyRequest, block: Superblock, status: Status, log_base: OpId) -> None:
        """Create the replica if nothing must be copied. Otherwise log why the peer needs a copy, once."""
        new: NewReplica | str = f"the log no longer has entry {request.first_index}"
        if not request.hosted:
            new = new_replica(block, status, log_base, request.peer)
        if isinstance(new, NewReplica):
            self._reasons.pop(request.peer, None)
            self._create(request.peer, new)
        elif self._reasons.get(request.peer) != new:
            self._reasons[request.peer] = new
            self._metrics.count("copies_needed")
            log.warning("replica needs a copy tablet=%s peer=%s reason=%s", block.tablet_id, request.peer, new)
