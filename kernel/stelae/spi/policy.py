"""Contract of a master policy (contract version 1): a pure function that decides which changes a cluster needs.

Ordering and durability
    A policy only decides. ``plan`` is total and pure: the same snapshot and random numbers give the same actions. It
    keeps no state between calls, reads no clock, starts no thread, and raises no exception, whatever the snapshot. Its
    actions are proposals. The kernel checks each of them again (majority, one change at a time, compare-and-set id) and
    carries out those that are still valid, in the order given. So an action is not durable by itself, and dropping any
    is safe.

What the kernel carries out
    1. One action for each tablet of a plan: the first one. Further ones are dropped, except ``PLACE``.
    2. A new tablet gets as many ``PLACE`` actions as its replication factor, all in one plan, or it waits.
    3. A change needs a leader, no pending change, and a majority of healthy voters before and after it.
    4. A replica is added only on a ``LIVE`` node that is neither a member nor barred.
    5. While a member has the log only (``WITNESS``, ``PRE_WITNESS``), a ``VOTER`` is removed only if a majority of the
       voters that stay is healthy and has the rows.

    Nothing else is checked. It is up to the policy whether a replica fits on a disk, how many copies run at a time, and
    that a voter is evicted only once its replacement votes. The conformance suite checks the first and the last.

Scope: master. ``plan`` is called on a thread of the leading master, so it may take seconds for a large cluster. Its
time grows about as the number of tablets. A master plans nothing else meanwhile, and its process does not end before
``plan`` returns. Two calls may overlap."""

import random
from abc import abstractmethod
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar

import msgspec

from stelae.spi.consensus import Role
from stelae.spi.ids import NodeId, OpId, TabletId
from stelae.spi.members import MemberType
from stelae.spi.settings import Engine

POLICY_CONTRACT_VERSION = 1


class NodeHealth(StrEnum):
    """The state of a node as the masters see it."""

    LIVE = "LIVE"
    DEAD = "DEAD"
    RETIRING = "RETIRING"  #: It still serves, gets no new replicas, and its replicas are to be moved away.
    MAINTENANCE = "MAINTENANCE"  #: It is down on purpose: its replicas are not replaced meanwhile.


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """One tablet server as the policy sees it."""

    node_id: NodeId
    health: NodeHealth
    location: str = ""  #: ``/dc/rack/host``, or empty.
    free_bytes: int = 0  #: What replicas may still take. A replica goes only where all of its bytes fit.
    load_ops_per_s: float = 0.0


class ReplicaView(msgspec.Struct, frozen=True, kw_only=True):
    """One member of a tablet's committed config, as last reported."""

    node_id: NodeId
    member_type: MemberType
    role: Role
    healthy: bool
    size_bytes: int = 0
    #: It is being created or copied, and makes progress: it will be healthy, and is not to be replaced meanwhile.
    copying: bool = False
    #: An operator added it (``Member.pinned``): the tablet is to have one member more than its replication factor.
    pinned: bool = False
    #: The member whose place it takes (``Member.replaces``). Until it is a healthy ``VOTER``, it counts as pinned.
    #: After that, the other one is to leave as if its node retired. Without effect if the other one is not a member.
    replaces: NodeId | None = None


class TabletView(msgspec.Struct, frozen=True, kw_only=True):
    """One tablet as the policy sees it."""

    tablet_id: TabletId
    replication_factor: int
    config_op_id: OpId  #: Op id of its committed config: the ``cas`` of actions.
    replicas: tuple[ReplicaView, ...]
    change_pending: bool = False
    #: Nodes that are never to be members again: they have lost what their replica had acknowledged.
    barred: tuple[NodeId, ...] = ()
    #: Nodes on which a copy of it failed or was cancelled a short time ago: better choose others, if there are any.
    avoided: tuple[NodeId, ...] = ()


class PolicySnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a plan may depend on."""

    now_us: int  #: Hybrid time of the leading master.
    nodes: Mapping[NodeId, NodeView]
    tablets: Mapping[TabletId, TabletView]


class ActionKind(StrEnum):
    """The kinds of changes that a policy may propose."""

    #: Make the node an initial voter of a tablet without replicas. The first action of a tablet names the node that
    #: should lead it. The kernel does not follow that yet: a hash of the tablet's id chooses the first leader.
    PLACE = "PLACE"
    ADD = "ADD"  #: Add the node as PRE_VOTER.
    REMOVE = "REMOVE"
    CHANGE_ROLE = "CHANGE_ROLE"
    TRANSFER = "TRANSFER"  #: Hand over leadership to the node.


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """One proposed change."""

    kind: ActionKind
    tablet_id: TabletId
    node_id: NodeId
    cas: OpId  #: Compare-and-set: the op id of the committed config on which the action is based.
    reason: str  #: A sentence that explains the action, with the figures from which it follows.
    member_type: MemberType | None = None  #: For ``ADD`` and ``CHANGE_ROLE`` only.


class MasterPolicy(Engine):
    """Decides on placement and repair. Subclasses are registered through the hook ``stelae_master_policies``."""

    contract_version: ClassVar[int] = POLICY_CONTRACT_VERSION

    @classmethod
    @abstractmethod
    def plan(cls, snapshot: PolicySnapshot, config: Any, rng: random.Random) -> tuple[Action, ...]:
        """Return the changes to make, the most urgent one first, or nothing if none is needed.

        It uses only ``rng.random()`` and ``rng.getrandbits()``, so that plans can be replayed."""
