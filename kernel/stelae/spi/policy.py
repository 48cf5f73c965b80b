"""Contract of a master policy (contract version 1): what to change, as a pure function.

Ordering and durability
    A policy decides and does nothing. ``plan`` is total and pure: the same snapshot and random source give the same
    actions, it keeps no state between calls, reads no clock, and raises for no snapshot. Its actions are proposals: the
    kernel checks each again (majority, one change at a time, the compare-and-set id) and carries out those that still
    hold, in the order given. So none is durable by itself, and dropping any of them is safe.

Scope and threads: one per master, on the leader's event loop; it answers in milliseconds for thousands of tablets."""

import random
from abc import abstractmethod
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar

import msgspec

from stelae.spi.consensus import MemberType, Role
from stelae.spi.ids import NodeId, OpId, TabletId
from stelae.spi.settings import Engine

POLICY_CONTRACT_VERSION = 1


class NodeHealth(StrEnum):
    """How the masters see a node."""

    LIVE = "LIVE"
    DEAD = "DEAD"
    RETIRING = "RETIRING"  #: Serves on, takes nothing new, and is to be emptied.
    MAINTENANCE = "MAINTENANCE"  #: Down on purpose: nothing of it is re-replicated meanwhile.


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """One tablet server as the policy sees it. ``location`` is ``/dc/rack/host`` or empty."""

    node_id: NodeId
    health: NodeHealth
    location: str = ""
    free_bytes: int = 0
    load_ops_per_s: float = 0.0


class ReplicaView(msgspec.Struct, frozen=True, kw_only=True):
    """One member of a tablet's committed config, with what was last reported of it."""

    node_id: NodeId
    member_type: MemberType
    role: Role
    healthy: bool
    size_bytes: int = 0


class TabletView(msgspec.Struct, frozen=True, kw_only=True):
    """One tablet. ``config_op_id`` is the compare-and-set id that actions must carry."""

    tablet_id: TabletId
    replication_factor: int
    config_op_id: OpId
    replicas: tuple[ReplicaView, ...]
    change_pending: bool = False


class PolicySnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a plan may depend on. ``now_us`` is hybrid time of the leading master."""

    now_us: int
    nodes: Mapping[NodeId, NodeView]
    tablets: Mapping[TabletId, TabletView]


class ActionKind(StrEnum):
    """The closed set of what a policy may propose."""

    PLACE = "PLACE"  #: An initial voter of a tablet without replicas: all of them in a row, the first is to lead.
    ADD = "ADD"  #: Add a member as PRE_VOTER.
    REMOVE = "REMOVE"
    CHANGE_ROLE = "CHANGE_ROLE"
    TRANSFER = "TRANSFER"  #: Hand leadership to the node.


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """One proposed change."""

    kind: ActionKind
    tablet_id: TabletId
    node_id: NodeId
    cas: OpId  #: Of the config that it is based on.
    reason: str  #: A sentence for people.
    member_type: MemberType | None = None  #: For ``ADD`` and ``CHANGE_ROLE`` only.


class MasterPolicy(Engine):
    """Decides placement and repair. Subclasses register through ``stelae_master_policies``."""

    contract_version: ClassVar[int] = POLICY_CONTRACT_VERSION

    @classmethod
    @abstractmethod
    def plan(cls, snapshot: PolicySnapshot, config: Any, rng: random.Random) -> tuple[Action, ...]:
        """Return what to change, most urgent first; empty when all is well. Only ``rng.random()`` and
        ``rng.getrandbits()`` are used, so plans can be replayed."""
