"""The messages in which a node describes itself, for ``stelae check`` and for commands that inspect a cluster.

The constants are message kinds. A node of an older release does not know them."""

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
    """Another node that a node communicates with."""

    node_id: NodeId
    address: str
    connected: bool  #: The node has a connection to it now.


class ReplicaFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a node knows of one of its replicas, in addition to its ``ReplicaReport``."""

    tablet_id: TabletId
    table_id: str  #: The table of the tablet; empty if no master created it.
    size_bytes: int  #: The files of the store and the rows in memory, without the log.
    schema_version: int
    config: OpId  #: The op id of the newest config in its log.
    members: tuple[NodeId, ...]  #: The members of that config.
    learners: tuple[NodeId, ...] = ()  #: Those of the members that have no vote.
    witnesses: tuple[NodeId, ...] = ()  #: Those that have a vote, and no rows yet.
    pinned: tuple[NodeId, ...] = ()  #: Those that an operator has added.
    moves: tuple[tuple[NodeId, NodeId], ...] = ()  #: Members that replace others, each with the other one.
    change_pending: bool = False  #: That config is not known to be committed.
    unhealthy: tuple[NodeId, ...] = ()  #: Leaders only: the members that have not answered for too long.
    #: Leaders only: the members that lack entries which were collected from the log.
    copies_needed: tuple[NodeId, ...] = ()
    log_base: OpId | None = None  #: The op id of the last entry that was collected from its log.


class FailedReplica(msgspec.Struct, frozen=True, kw_only=True):
    """A replica that could not be recovered."""

    tablet_id: TabletId
    reason: str
    op_id_lost: bool = False  #: Its last op id is UNKNOWN, so it never votes again (``durability.md`` rule 19).


class NodeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a node by itself."""

    node_id: NodeId
    incarnation: IncarnationId
    role: str  #: ``"master"`` or ``"tserver"``.
    version: str
    cluster_id: ClusterId
    address: str
    location: str
    uptime_ms: int
    wall_us: int  #: Its wall clock when it answered.
    free_bytes: int
    masters: tuple[tuple[NodeId, str], ...]  #: The masters that it knows.
    #: Those in ``[masters]`` of its ``node.toml`` when it started. They are for the first contact.
    listed_masters: tuple[tuple[NodeId, str], ...] = ()
    peers: tuple[PeerContact, ...]
    replicas: tuple[ReplicaFacts, ...]
    failed: tuple[FailedReplica, ...]
    settings: dict[str, SettingValue]  #: By ``section.name``, without paths and addresses.


class QuarantineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The contents and the limits of a node's quarantine."""

    count: int
    size_bytes: int
    unreadable: int  #: The number of directories without a readable date.
    oldest_s: int | None  #: The age of the oldest directory; ``None`` if there is none.
    bytes_max: int
    age_s_max: int
    free_bytes_min: int
    free_bytes: int
