"""Checks the fence of an action on the tablet server: whether the action may take effect on the replica as it is now.

The driver checks it under the tablet's lock, at the moment of the effect. ``DONE`` counts as success: the action was
repeated, or another master sent it first."""

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
    Unreadable,
)
from stelae.protocol.catalog_names import TabletState
from stelae.protocol.master_heartbeats import ReportedDataState
from stelae.spi.ids import OpId


class FenceVerdict(StrEnum):
    """Whether an action takes effect."""

    ACT = "ACT"
    DONE = "DONE"
    REFUSED = "REFUSED"


class Judgement(NamedTuple):
    """A verdict and its reason."""

    verdict: FenceVerdict
    reason: str


TERMINAL = frozenset({TabletState.REPLACED, TabletState.REMOVED})
"""The states of a tablet in the catalog that no transition leaves."""


class LocalReplica(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a replica that fences depend on."""

    data_state: ReportedDataState
    committed_config: OpId
    newest_config: OpId  #: Of the newest config in its log, committed or not. Never below ``committed_config``.
    schema_version: int
    leads: bool  #: It is leader and has committed an entry in its term.
    change_pending: bool
    unreadable: bool = False  #: It did not start: its last op id is UNKNOWN, and its config cannot be read.


def judge(action: ServerAction, local: LocalReplica | None) -> Judgement:
    """Check an action against its fence. ``local`` is ``None`` on a node that never had the tablet."""
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
        return Judgement(FenceVerdict.ACT, "the tablet was never on this node")
    if local.data_state is ReportedDataState.READY:
        return Judgement(FenceVerdict.DONE, "the replica exists")
    return _refused(f"the replica is {local.data_state}; a replica that was deleted can only be restored by a copy")


def _delete(action: DeleteReplica, local: LocalReplica | None) -> Judgement:
    if local is None or local.data_state is ReportedDataState.DELETED:
        return Judgement(FenceVerdict.DONE, "the replica has no data")
    if isinstance(action.fence, Unreadable):
        if not local.unreadable:
            return _refused(f"its committed config is known, or it is {ReportedDataState.COPYING}")
        return Judgement(
            FenceVerdict.ACT, f"config {action.fence.config_op_id} does not contain the unreadable replica"
        )
    if not isinstance(action.fence, Evicted):
        if action.fence.state not in TERMINAL:
            return _refused(f"tablet state {action.fence.state} is not terminal; only a removed tablet is deleted")
        return Judgement(FenceVerdict.ACT, f"the tablet is {action.fence.state}, which is terminal")
    if local.data_state is ReportedDataState.COPYING:
        return _refused("the replica is being copied for a leader")
    if local.committed_config != action.fence.seen:
        return _refused(
            f"its committed config is {local.committed_config}, but the master has seen {action.fence.seen}"
        )
    if local.newest_config >= action.fence.config_op_id:
        return _refused(f"it knows config {local.newest_config}, which is not older than {action.fence.config_op_id}")
    return Judgement(FenceVerdict.ACT, f"config {action.fence.config_op_id} does not contain the replica")


def _alter(action: AlterSchema, local: LocalReplica | None) -> Judgement:
    if local is None or not local.leads:
        return _refused("the replica is not the leader")
    if local.schema_version >= action.version:
        return Judgement(FenceVerdict.DONE, f"the schema has version {local.schema_version}")
    if local.schema_version + 1 < action.version:
        return _refused(f"version {action.version} does not follow {local.schema_version}, the one applied here")
    return Judgement(FenceVerdict.ACT, f"version {action.version} follows {local.schema_version}")


def _change(cas: OpId, local: LocalReplica | None) -> Judgement:
    if local is None or not local.leads:
        return _refused("the replica is not the leader")
    if local.committed_config != cas:
        return _refused(f"the committed config is {local.committed_config}, not {cas}")
    if local.change_pending:
        return _refused(f"another change is pending after config {local.committed_config}")
    return Judgement(FenceVerdict.ACT, f"the committed config is {cas}")


def _refused(reason: str) -> Judgement:
    return Judgement(FenceVerdict.REFUSED, reason)
