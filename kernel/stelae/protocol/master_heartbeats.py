"""Heartbeats of tablet servers to masters, and what is in them.

A server heartbeats to **all** masters. A master that does not lead takes from it that the server lives, and no more. To
the leader goes a report besides: *full* once in each leadership, then *incremental*, and what an incremental report has
told is told again until the leader acknowledges it (source, *Send full heartbeats to newly elected leader masters*).

A server counts its changes: version ``upto`` of its replicas is everything up to that change. An incremental report
says from which version it counts, so a leader that lacks something notices, and asks for a full one."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from stelae.spi.consensus import Role, TabletConfig
from stelae.spi.ids import IncarnationId, NodeId, TabletId

HEARTBEAT = "master.heartbeat"


class ReportedDataState(StrEnum):
    """What a node has of a tablet (source "tablet copy"); what it never had, it does not report."""

    READY = "READY"
    COPYING = "COPYING"
    DELETED = "DELETED"  #: A tombstone.
    FAILED = "FAILED"


class ReplicaStatus(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One replica as its node sees it."""

    tablet_id: TabletId
    data_state: ReportedDataState
    role: Role = Role.NON_PARTICIPANT
    term: int = 0
    config: TabletConfig | None = None  #: The newest committed one that it knows.
    schema_version: int = 0
    size_bytes: int = 0
    change_pending: bool = False  #: Of a leader: a config that is not committed is in its log.
    unhealthy: tuple[NodeId, ...] = ()  #: Of a leader: members that it has not heard from for too long, or that failed.
    op_id_lost: bool = False  #: It does not know its last op id: it never votes again (``durability.md`` rule 19).
    endpoint: str = ""  #: Where it is served, if not at the server's address.


class ServerReport(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Replicas of a server. ``full``: all but tombstones, whatever came before; else those changed above ``since``."""

    full: bool
    since: int
    upto: int
    replicas: tuple[ReplicaStatus, ...]


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """From a server to one master. ``sequence`` rises with each to that master within one run of the process."""

    node_id: NodeId
    incarnation: IncarnationId
    sequence: int
    address: str
    location: str = ""
    free_bytes: int = 0
    load_ops_per_s: float = 0.0
    report: ServerReport | None = None


class HeartbeatReply(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """``term`` is that of the leadership, 0 from a master that does not lead. ``leader``: whom it takes for leader."""

    term: int
    leader: NodeId | None
    wants_full: bool = False
    acknowledged: int = 0  #: The version of the server's replicas that this leader has.
