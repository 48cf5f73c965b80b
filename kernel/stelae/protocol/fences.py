"""The tablet server's side of each action: whether it still may take effect, judged by the replica as it is now.

The driver judges under the tablet's lock, at the moment of the effect. ``DONE`` is an answer like success: the sender
may have repeated itself, or another master may have come first."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, assert_never

import msgspec

from stelae.protocol.actions import (
    AlterSchema,
    ChangeConfig,
    CreateReplica,
    DeleteReplica,
    Evicted,
    ServerAction,
    TransferLeadership,
)
from stelae.protocol.catalog_names import TabletState
from stelae.protocol.master_heartbeats import ReportedDataState
from stelae.spi.ids import OpId


class FenceVerdict(StrEnum):
    """What becomes of an action."""

    ACT = "ACT"
    DONE = "DONE"
    REFUSED = "REFUSED"


class Judgement(NamedTuple):
    """A verdict, and for people why."""

    verdict: FenceVerdict
    reason: str


TERMINAL = frozenset({TabletState.REPLACED, TabletState.REMOVED})
"""The states of a tablet in the catalog that no transition leaves."""


class LocalReplica(msgspec.Struct, frozen=True, kw_only=True):
    """A replica as the fences see it."""

    data_state: ReportedDataState
    committed_config: OpId
    newest_config: OpId  #: Of the newest config in its log, committed or not; never below the committed one.
    schema_version: int
    leads: bool  #: And has committed an entry in its term.
    change_pending: bool


def judge(action: ServerAction, local: LocalReplica | None) -> Judgement:
    """Return what to do; ``local`` is ``None`` where the tablet has never been."""
    match action:
        case CreateReplica():
            return _create(local)
        case DeleteReplica():
            return _delete(action, local)
        case AlterSchema():
            return _alter(action, local)
        case ChangeConfig() | TransferLeadership():
            return _change(action.cas, local)
        case _:
            assert_never(action)


def _create(local: LocalReplica | None) -> Judgement:
    if local is None:
        return Judgement(FenceVerdict.ACT, "the tablet has never been here")
    if local.data_state is ReportedDataState.READY:
        return Judgement(FenceVerdict.DONE, "the replica is here")
    return _refused(f"the replica is {local.data_state}; what has been here comes back by a copy only")


def _delete(action: DeleteReplica, local: LocalReplica | None) -> Judgement:
    if local is None or local.data_state is ReportedDataState.DELETED:
        return Judgement(FenceVerdict.DONE, "there is no data here")
    if not isinstance(action.fence, Evicted):
        if action.fence.state not in TERMINAL:
            return _refused(f"tablet state {action.fence.state} is not terminal; only a removed tablet is deleted")
        return Judgement(FenceVerdict.ACT, f"the catalog says {action.fence.state}, for ever")
    if local.data_state is ReportedDataState.COPYING:
        return _refused("the replica is being copied: a leader wants it")
    if local.committed_config != action.fence.seen:
        return _refused(f"its committed config is {local.committed_config}, and {action.fence.seen} was seen")
    if local.newest_config >= action.fence.config_op_id:
        return _refused(f"it knows config {local.newest_config}, and was evicted by {action.fence.config_op_id}")
    return Judgement(FenceVerdict.ACT, f"config {action.fence.config_op_id} does not have it")


def _alter(action: AlterSchema, local: LocalReplica | None) -> Judgement:
    if local is None or not local.leads:
        return _refused("the replica does not lead")
    if local.schema_version >= action.version:
        return Judgement(FenceVerdict.DONE, f"the schema is of version {local.schema_version}")
    if local.schema_version + 1 < action.version:
        return _refused(f"version {action.version} does not follow {local.schema_version}, the one applied here")
    return Judgement(FenceVerdict.ACT, f"version {action.version} follows {local.schema_version}")


def _change(cas: OpId, local: LocalReplica | None) -> Judgement:
    if local is None or not local.leads:
        return _refused("the replica does not lead")
    if local.committed_config != cas:
        return _refused(f"the committed config is {local.committed_config}, not {cas}")
    if local.change_pending:
        return _refused(f"another change is pending after config {local.committed_config}")
    return Judgement(FenceVerdict.ACT, f"the committed config is {cas}")


def _refused(reason: str) -> Judgement:
    return Judgement(FenceVerdict.REFUSED, reason)
