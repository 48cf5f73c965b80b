"""What a node says of itself when it is asked: for ``stelae check`` and for the commands that look into a cluster.

Kinds are the names under which the questions travel; a node of an older release does not know them."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from stelae.spi.ids import ClusterId, IncarnationId, NodeId, OpId, TabletId

NODE = "node.describe"
QUARANTINE = "node.quarantine"

SettingValue: TypeAlias = bool | int | float | str | None


class NodeRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask a node for its ``NodeInfo``."""


class QuarantineRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask a node for its ``QuarantineInfo``."""


class PeerContact(msgspec.Struct, frozen=True, kw_only=True):
    """How a node stands with another one that it has to talk to. ``connected``: it has a connection to it now."""

    node_id: NodeId
    address: str
    connected: bool


class ReplicaFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a node knows of one of its replicas besides its ``ReplicaReport``.

    ``size_bytes`` counts the files of the store and the rows in memory, not the log; ``unhealthy``: of a leader, the
    members that it has not heard for too long; ``copies_needed``: of a leader, those that its log cannot catch up."""

    tablet_id: TabletId
    table_id: str  #: Of the table that it was made for; empty of those that no master made.
    size_bytes: int
    schema_version: int
    config: OpId  #: Of the newest config that it has.
    members: tuple[NodeId, ...]  #: Of that config.
    change_pending: bool = False  #: That config is not committed, as far as it knows.
    unhealthy: tuple[NodeId, ...] = ()
    copies_needed: tuple[NodeId, ...] = ()
    log_base: OpId | None = None  #: Of the last entry that was collected from its log.


class FailedReplica(msgspec.Struct, frozen=True, kw_only=True):
    """A replica that did not come up. ``op_id_lost``: it will never vote again (``durability.md`` rule 19)."""

    tablet_id: TabletId
    reason: str
    op_id_lost: bool = False


class NodeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A node, as it sees itself. ``wall_us`` is its own clock, when it answered; ``settings`` are all that it runs
    with, by ``section.name``, those of paths and addresses left out."""

    node_id: NodeId
    incarnation: IncarnationId
    role: str  #: ``"master"`` or ``"tserver"``.
    version: str
    cluster_id: ClusterId
    address: str
    location: str
    uptime_ms: int
    wall_us: int
    free_bytes: int
    masters: tuple[tuple[NodeId, str], ...]  #: Those that its node.toml lists.
    peers: tuple[PeerContact, ...]
    replicas: tuple[ReplicaFacts, ...]
    failed: tuple[FailedReplica, ...]
    settings: dict[str, SettingValue]


class QuarantineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What is set aside on a node, and its limits. ``oldest_s``: the age of the oldest; ``None``: there is nothing."""

    count: int
    size_bytes: int
    unreadable: int  #: Directories that do not say of when they are.
    oldest_s: int | None
    bytes_max: int
    age_s_max: int
    free_bytes_min: int
    free_bytes: int
