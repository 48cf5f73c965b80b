"""The message by which a leader starts a copy of a tablet on the node of a member (``StartTabletCopy``).

Source: "Auto-vivifying Tablet Copy protocol" of the tablet-copy design. The message is idempotent: the leader repeats
it until the member answers appends again. It needs no answer. The target checks it (``stelae.lifecycle.copy_guards``),
and asks a source for the snapshot itself."""

import msgspec

from stelae.host.member_promises import member_type, type_that_counts
from stelae.host.superblock import Superblock
from stelae.spi.consensus import CopyRequest, Status
from stelae.spi.ids import NodeId, OpId, TabletId
from stelae.spi.members import Member, MemberType

START_COPY = "start_copy"
CANCEL_COPY = "cancel_copy"


class CancelCopy(msgspec.Struct, frozen=True, kw_only=True):
    """Cancel the copy of the rows to a replica without rows, which needs none."""

    tablet_id: TabletId
    term: int  #: In which the sender leads the tablet.
    why: str


class StartCopy(msgspec.Struct, frozen=True, kw_only=True):
    """Copy a tablet to this node, from one of the sources."""

    to: NodeId  #: The recipient.
    leader: NodeId  #: The sender, which leads the tablet in ``term``.
    term: int
    tablet_id: TabletId
    table_name: str
    consensus: str  #: Name of the consensus engine of the tablet.
    config: OpId  #: The op id of the leader's config, which lists the recipient.
    member_type: MemberType  #: Of the recipient; a type with a vote if it has, or had, one (``member_promises``).
    #: What the leader believes: whether the recipient has a replica of the tablet, although it lacks collected entries.
    hosted: bool
    log_base: OpId  #: The base of the leader's log. A replica whose log has this entry needs no copy.
    #: The last op id of the recipient's log, if the leader knows it. The copy is refused if the log has gone on since.
    last: OpId | None = None
    sources: tuple[Member, ...]  #: The leader first, then other members that may serve the copy.
    #: The recipient is a ``PRE_WITNESS`` now, also if it had a vote before. Without a replica it needs no copy.
    pre_witness: bool = False
    rows_only: bool = False  #: The recipient has the log, and no rows (a witness). It goes on to vote meanwhile.


def start_copy(request: CopyRequest, block: Superblock, status: Status, log_base: OpId) -> StartCopy | None:
    """Return the message for a peer that needs a copy; ``None`` if it is no member any more, or if no
    member that is reached has rows (a caretaker leads).

    The sources are this leader, if it has rows, and the voters to which it replicates without problems.

    Args:
        request: of the leader's core.
        block: the leader's superblock.
        status: of the leader.
        log_base: where the leader's log begins.
    """
    return _to_member(request.peer, block, status, log_base, hosted=request.hosted)


def copy_rows(peer: NodeId, block: Superblock, status: Status, log_base: OpId) -> StartCopy | None:
    """Return the message for a member that has the log and no rows; ``None`` as for ``start_copy``."""
    asked = _to_member(peer, block, status, log_base, hosted=True)
    return None if asked is None else msgspec.structs.replace(asked, rows_only=True)


def _to_member(node: NodeId, block: Superblock, status: Status, log_base: OpId, *, hosted: bool) -> StartCopy | None:
    counts = type_that_counts(node, status.config, status.committed_config)
    if counts is None:
        return None
    healthy = {progress.node_id for progress in status.peers if progress.state == "REPLICATE"}
    voting = [member for member in status.config.members if member.member_type is MemberType.VOTER]
    # With rows, also if it leads as a WITNESS that no leader has made a VOTER yet.
    leader = [member for member in status.config.members if member.node_id == status.node_id and not block.log_only]
    others = [member for member in voting if member.node_id in healthy and member.node_id != node]
    if not leader and not others:
        return None
    return StartCopy(
        to=node,
        leader=status.node_id,
        term=status.term,
        tablet_id=block.tablet_id,
        table_name=block.table_name,
        consensus=block.consensus_engine,
        config=status.config.op_id,
        member_type=counts,
        hosted=hosted,
        log_base=log_base,
        sources=(*leader, *others),
        pre_witness=member_type(node, status.config) is MemberType.PRE_WITNESS,
    )
