"""The heartbeats of tablet servers to masters.

A server sends heartbeats to **all** masters. A master that is not leader only learns that the server is alive. The
leader also gets a report about the server's replicas: a *full* one once in each leadership, then *incremental* ones. A
change is repeated in the incremental reports until the leader acknowledges it (source, *Send full heartbeats to newly
elected leader masters*).

A server counts the changes of its replicas. Version ``upto`` contains every change up to that number. An incremental
report says after which version its changes begin. So a leader that has missed a change notices it, and asks for a full
report."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from stelae.spi.consensus import Role
from stelae.spi.ids import IncarnationId, NodeId, OpId, TabletId
from stelae.spi.members import TabletConfig

HEARTBEAT = "master.heartbeat"


class ReportedDataState(StrEnum):
    """The data state of a replica in a report (source "tablet copy").

    A tablet that was never on a node is not reported."""

    READY = "READY"
    COPYING = "COPYING"
    DELETED = "DELETED"  #: A tombstone.
    FAILED = "FAILED"
    #: A leader takes the server for a voter of its first config, and nothing of the tablet is there. Either the replica
    #: has not begun yet, or it was lost: the masters know whether they have seen it.
    MISSING = "MISSING"


class CopyHold(StrEnum):
    """Why a copy gets no bytes at the moment, although nothing is wrong with it."""

    NONE = ""
    WAITS = "WAITS"  #: It has not begun, because all slots of the node are in use.
    PAUSED = "PAUSED"  #: An operator has paused it. A pause ends by itself within a day.


class ReplicaStatus(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The state of one replica."""

    tablet_id: TabletId
    data_state: ReportedDataState
    role: Role = Role.NON_PARTICIPANT
    term: int = 0
    config: TabletConfig | None = None  #: The newest committed config that it knows.
    schema_version: int = 0
    size_bytes: int = 0
    change_pending: bool = False  #: Leaders only: its log has a config that is not committed.
    #: Leaders only: the members that have failed, or have not answered for too long.
    unhealthy: tuple[NodeId, ...] = ()
    op_id_lost: bool = False  #: Its last op id is UNKNOWN, so it never votes again (``durability.md`` rule 19).
    endpoint: str = ""  #: The address of the replica, if it differs from the server's address.
    copied_bytes: int = 0  #: COPYING only: the bytes that have arrived.
    copy_bytes: int = 0  #: COPYING only: the bytes of the whole copy; 0 while they are not known.
    copy_hold: CopyHold = CopyHold.NONE  #: COPYING only.


class ServerReport(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The replicas of a server."""

    full: bool  #: The report has all replicas except tombstones. Otherwise it has the changes after version ``since``.
    since: int
    upto: int  #: The version of the server's replicas after this report.
    replicas: tuple[ReplicaStatus, ...]


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A heartbeat of a server to one master."""

    node_id: NodeId
    incarnation: IncarnationId
    sequence: int  #: Rises with each heartbeat to that master within one incarnation.
    address: str
    location: str = ""
    free_bytes: int = 0
    load_ops_per_s: float = 0.0
    report: ServerReport | None = None
    #: The op id of the newest committed config of the masters that the server knows; ``None``: it has only its file.
    masters: OpId | None = None
    cluster_created_us: int = 0  #: When the cluster of these masters was put on record; 0 without a config.


class HeartbeatReply(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The answer to a heartbeat."""

    term: int  #: The term of the master's leadership; 0 if it is not leader.
    leader: NodeId | None  #: The leader that this master knows.
    wants_full: bool = False
    acknowledged: int = 0  #: The version of the server's replicas that this leader has.
    masters: TabletConfig | None = None  #: The masters, if this master knows a newer config of them than the server.
    cluster_created_us: int = 0  #: When the cluster of ``masters`` was put on record.
