"""The message by which a leader starts a copy of a tablet on the node of a member (``StartTabletCopy``).

Source: "Auto-vivifying Tablet Copy protocol" of the tablet-copy design. The message is idempotent: the leader repeats
it until the member answers appends again. It needs no answer. The target checks it (``stelae.lifecycle.copy_guards``),
and asks a source for the snapshot itself."""

import msgspec

from stelae.spi.ids import NodeId, OpId, TabletId
from stelae.spi.members import Member, MemberType

START_COPY = "start_copy"


class StartCopy(msgspec.Struct, frozen=True, kw_only=True):
    """Copy a tablet to this node, from one of the sources."""

    to: NodeId  #: The recipient.
    leader: NodeId  #: The sender, which leads the tablet in ``term``.
    term: int
    tablet_id: TabletId
    table_name: str
    consensus: str  #: Name of the consensus engine of the tablet.
    config: OpId  #: The op id of the leader's config, which lists the recipient.
    member_type: MemberType  #: Of the recipient in that config.
    #: What the leader believes: whether the recipient has a replica of the tablet, although it lacks collected entries.
    hosted: bool
    log_base: OpId  #: The base of the leader's log. A replica whose log has this entry needs no copy.
    #: The last op id of the recipient's log, if the leader knows it. The copy is refused if the log has gone on since.
    last: OpId | None = None
    sources: tuple[Member, ...]  #: The leader first, then other members that may serve the copy.
