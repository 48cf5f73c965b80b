"""What masters ask of a tablet server: judged against its fence as the replica is now, and then done.

Between the judgement and the beginning of the effect nothing else runs on the event loop, and an effect that takes
longer holds the tablet against others (``TabletManager``): that is the tablet's lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

import mmh3

from stelae.host.node import Node
from stelae.host.replica import Replica
from stelae.host.settings import TabletSettings
from stelae.lifecycle.tablet_manager import TabletManager
from stelae.protocol.actions import (
    ACTION,
    AlterSchema,
    ChangeConfig,
    CreateReplica,
    DeleteReplica,
    Evicted,
    ServerAction,
    TransferLeadership,
    decode_action,
)
from stelae.protocol.fences import FenceVerdict, LocalReplica, judge
from stelae.protocol.master_heartbeats import ReportedDataState
from stelae.server.bounds import kept
from stelae.server.frames import only_frame
from stelae.server.tserver.service import not_of_masters
from stelae.spi.consensus import Member, Role
from stelae.spi.errors import CallerError, SchemaMismatch, StelaeError, Unsupported
from stelae.spi.ids import ZERO, OpId, TabletId, tablet_id
from stelae.spi.schema import Schema
from stelae.spi.write import WriteReply
from stelae.wire.requests import Request

Done = Callable[[StelaeError | None], None]


class FenceRefused(CallerError, code="FENCE_REFUSED"):
    """The replica is not as the sender of the action believed; nothing was done."""


class ActionService:
    """Carries out actions on the replicas of one node. Made by ``ReplicaLifecycle``, whose manager it shares."""

    def __init__(self, node: Node, manager: TabletManager) -> None:
        self._node = node
        self._manager = manager

    def start(self) -> None:
        """Register the handler."""
        self._node.messenger.serve(ACTION, self._serve)

    def _serve(self, request: Request) -> None:
        action = decode_action(only_frame(request))
        if action.node_id != self._node.node_id:
            raise CallerError(f"the action is for node {action.node_id}")
        _check(action)

        def done(error: StelaeError | None) -> None:
            if error is None:
                request.reply()
            else:
                request.refuse(error)

        self.act(action, done)

    def act(self, action: ServerAction, done: Done) -> None:
        """Judge an action, and do it if its fence holds."""
        judgement = judge(action, self.local(action.tablet_id))
        if judgement.verdict is FenceVerdict.DONE:
            done(None)
        elif judgement.verdict is FenceVerdict.REFUSED:
            done(FenceRefused(f"{type(action).__name__} of tablet {action.tablet_id} refused: {judgement.reason}"))
        else:
            self._effect(action, judgement.reason, done)

    def local(self, tablet_id: TabletId) -> LocalReplica | None:
        """The replica as fences see it. What is known of one that is not up stands in its files: its manager looks."""
        replica = self._node.replicas.get(tablet_id)
        if replica is not None:
            status = replica.core.status()
            return LocalReplica(
                data_state=ReportedDataState.FAILED if replica.failure else ReportedDataState.READY,
                committed_config=status.committed_config.op_id,
                newest_config=status.config.op_id,
                schema_version=replica.applier.store.schema.version,
                leads=status.role is Role.LEADER and status.serving,
                change_pending=status.config.op_id != status.committed_config.op_id,
            )
        if tablet_id in self._node.failed_tablets:
            # Its table is gone, or nobody can say whether it may go: which configs it knows is not known.
            return LocalReplica(
                data_state=ReportedDataState.FAILED,
                committed_config=ZERO,
                newest_config=OpId(1 << 62, 1 << 62),
                schema_version=0,
                leads=False,
                change_pending=False,
            )
        return None

    def _effect(self, action: ServerAction, reason: str, done: Done) -> None:
        match action:
            case CreateReplica():
                self._manager.create(_settings(action), done)
            case DeleteReplica():
                seen = action.fence.seen if isinstance(action.fence, Evicted) else None
                self._manager.delete(action.tablet_id, reason, done, seen=seen)
            case AlterSchema():
                self._replica(action).change_schema(Schema.from_bytes(action.schema), lambda r: done(_error_of(r)))
            case TransferLeadership():
                self._replica(action).transfer(action.to, done)
            case ChangeConfig():
                done(Unsupported("this release cannot change the members of a tablet yet"))
            case _:
                assert_never(action)

    def _replica(self, action: ServerAction) -> Replica:
        return self._node.replicas[action.tablet_id]


def _check(action: ServerAction) -> None:
    """Refuse what no master asks for, before anything is looked up or made: ``CallerError``."""
    tablet_id(action.tablet_id)
    not_of_masters(action.tablet_id)
    if isinstance(action, CreateReplica):
        names = [member.node_id for member in action.config.members]
        if action.node_id not in names or len(set(names)) != len(names):
            raise CallerError(f"node {action.node_id} is to make a replica and is not once among the members {names}")
        if len(names) % 2 == 0:
            raise CallerError(f"a tablet has an odd number of members, not {len(names)}")


def _settings(action: CreateReplica) -> TabletSettings:
    """The tablet that is to be. All members agree, without a word, on who leads first; tablets spread over them."""
    members: tuple[Member, ...] = action.config.members
    first = mmh3.hash(action.tablet_id, signed=False) % len(members)
    schema = Schema.from_bytes(action.schema)
    return TabletSettings(
        id=action.tablet_id,
        schema=schema,
        members=members[first:] + members[:first],
        table_name=action.table_id,
        partition=kept(schema, action.partition, action.scheme),
    )


def _error_of(result: WriteReply | StelaeError) -> StelaeError | None:
    if isinstance(result, StelaeError):
        return result
    (answer,) = result.answers
    return SchemaMismatch(answer.result.detail) if answer.result.refusal else None
