"""A plan of recovery: for each tablet without a majority, which survivor to recover, and what is lost. Pure data.

A plan is a JSON file. ``stelae recover plan`` writes it, an operator reads it, and ``stelae recover apply`` carries it
out. Each tablet has the facts that the plan rests on, so that it has no effect on a replica that has changed since."""

from __future__ import annotations

import msgspec

from stelae.spi.errors import CallerError
from stelae.spi.ids import NodeId, OpId, TabletId

PLAN_VERSION = 1


class PlannedNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that hosts a replica."""

    node_id: NodeId
    address: str


class LostMember(msgspec.Struct, frozen=True, kw_only=True):
    """A member that cannot vote."""

    node_id: NodeId
    address: str
    why: str
    silent_ms: int | None = None  #: Time since its last heartbeat to the masters; ``None``: not known.


class RankedReplica(msgspec.Struct, frozen=True, kw_only=True):
    """A replica that answers. The ranking begins with the one that holds most."""

    node_id: NodeId
    address: str
    last: OpId
    commit: int
    applied_us: int = 0  #: When the newest entry that it has applied was written: microseconds since 1970; 0: never.
    unusable: str = ""  #: Why it cannot be recovered; empty if it can.


class TabletPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The recovery of one tablet."""

    tablet_id: TabletId
    table: str  #: The name of its table; empty without masters.
    voters: int  #: Members that had a vote.
    replicas_wanted: int  #: How many replicas the masters make of it; 0 without masters.
    term: int  #: The first term of the recovery epoch. It also tells this plan from others.
    survivor: PlannedNode  #: The replica that becomes the only voter.
    last: OpId  #: The last entry of its log.
    config_id: OpId  #: The op id of its config.
    others: tuple[PlannedNode, ...]  #: The other survivors: they stand down.
    lost: tuple[LostMember, ...]
    ranking: tuple[RankedReplica, ...]
    loss: tuple[str, ...]  #: What is lost, and what is not, in sentences.


class NotPlanned(msgspec.Struct, frozen=True, kw_only=True):
    """A tablet that the plan leaves alone."""

    tablet_id: TabletId
    table: str
    why: str
    has_majority: bool  #: False: it has no majority, and no survivor either.


class RecoveryPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan for a cluster."""

    version: int = PLAN_VERSION
    made_us: int  #: When it was made: microseconds since 1970.
    tablets: tuple[TabletPlan, ...]
    unrecoverable: tuple[NotPlanned, ...] = ()


class BadPlan(CallerError, code="BAD_RECOVERY_PLAN"):
    """A file is not a plan of recovery that this release understands."""


def encode_plan(plan: RecoveryPlan) -> bytes:
    """Return the JSON text of a plan."""
    return msgspec.json.format(msgspec.json.encode(plan), indent=2) + b"\n"


def decode_plan(text: bytes) -> RecoveryPlan:
    """Read a plan. Raises ``BadPlan`` if the text is not one, or of another version."""
    again = "make one with `stelae recover plan --out FILE`"
    try:
        version = msgspec.json.decode(text, type=_Version).version
        if version != PLAN_VERSION:
            raise BadPlan(f"the plan has version {version}, and this release reads version {PLAN_VERSION}; {again}")
        return msgspec.json.decode(text, type=RecoveryPlan)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadPlan(f"not a plan of recovery: {error}; {again}") from error


class _Version(msgspec.Struct, frozen=True):
    version: int
