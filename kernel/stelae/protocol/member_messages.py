"""The requests of operators about the members of a tablet. They go to its leader, and work without masters.

The constants are message kinds. Bodies are these types in MessagePack.

Source: "Raft config change", *Process for adding a new node to the cluster* and *Process for removing a node from the
cluster*."""

from __future__ import annotations

import msgspec

from stelae.spi.ids import NodeId, OpId, TabletId
from stelae.spi.members import MemberChange, TabletConfig

CONFIG = "tablet.config"
CHANGE_MEMBERS = "tablet.change_members"
ABORT_CHANGE = "tablet.abort_change"


class ConfigRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask a replica for the config of its tablet."""

    tablet_id: TabletId
    leader_only: bool = True  #: Only the leader may answer: the config of another replica may be old.


class MemberProgress(msgspec.Struct, frozen=True, kw_only=True):
    """What the leader knows of one member."""

    node_id: NodeId
    match_index: int  #: Up to this index the member has acknowledged the log.
    #: ``"PROBE"``, ``"REPLICATE"`` or ``"COPY"``, as ``stelae.spi.consensus.PeerProgress`` has it.
    state: str
    log_only: bool = False  #: The member has no rows (a witness).


class ConfigView(msgspec.Struct, frozen=True, kw_only=True):
    """The config of a tablet as one replica knows it: the answer to a ``ConfigRequest``."""

    tablet_id: TabletId
    node_id: NodeId  #: The replica that answers.
    role: str
    term: int
    leader: NodeId | None
    #: The config that is in force. It is not committed yet if its op id is not that of ``committed``.
    config: TabletConfig
    #: The last committed config. Its op id is the compare-and-set id of the next change.
    committed: TabletConfig
    last: OpId  #: The last entry of the replica's log.
    #: The last entry that was collected from the replica's log. A member that lacks older entries needs a copy.
    log_base: OpId
    progress: tuple[MemberProgress, ...] = ()  #: Leaders only.
    commit: int = 0  #: Up to this index the replica knows its log as committed.

    @property
    def change_pending(self) -> bool:
        """Whether a change is appended and not committed."""
        return self.config.op_id != self.committed.op_id


class ChangeMembersRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask the leader for one change. It is repeated safely: a change that is made already is ``NO_CHANGE``."""

    tablet_id: TabletId
    change: MemberChange
    #: The op id of the committed config that the change is meant for. ``None``: any.
    committed_config_id: OpId | None = None


class ChangeMembersReply(msgspec.Struct, frozen=True, array_like=True):
    """The answer to a ``ChangeMembersRequest``: the new config, which is committed."""

    config: TabletConfig


class AbortChangeRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask the leader to cancel a change that is not appended yet. The answer is empty."""

    tablet_id: TabletId
    committed_config_id: OpId | None = None
