"""Carries out the actions that masters send to a tablet server.

An action carries a fence: a condition on the replica. The server checks the fence against the replica's present state,
and has an effect only if the fence holds. Nothing else runs on the event loop between the check and the beginning of
the effect. An effect that takes longer keeps the tablet locked (``TabletManager``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

import mmh3

from stelae.host.node import Node
from stelae.host.replica import Replica
from stelae.host.settings import TabletSettings
from stelae.lifecycle.tablet_loader import TabletLoader
from stelae.lifecycle.tablet_manager import TabletManager
from stelae.protocol.actions import (
    ACTION,
    AlterSchema,
    ChangeConfig,
    ConfigChange,
    CreateReplica,
    DeleteReplica,
    Evicted,
    ServerAction,
    Terminal,
    TransferLeadership,
    Unreadable,
    decode_action,
)
from stelae.protocol.fences import FenceVerdict, LocalReplica, judge
from stelae.protocol.master_heartbeats import ReportedDataState
from stelae.server.frames import only_frame
from stelae.server.partition_bounds import stored_bounds
from stelae.server.tserver.copy_target import CopyTargetService
from stelae.server.tserver.member_service import check_change
from stelae.server.tserver.stopped_replicas import leads
from stelae.server.tserver.tablet_service import refuse_system_tablet
from stelae.spi.errors import CallerError, SchemaMismatch, StelaeError, Unsupported
from stelae.spi.ids import ZERO, OpId, TabletId, tablet_id
from stelae.spi.members import AddServer, ChangeRole, Member, MemberChange, RemoveServer, TabletConfig
from stelae.spi.schema import Schema
from stelae.spi.write import WriteReply
from stelae.wire.requests import Request

Done = Callable[[StelaeError | None], None]


class FenceRefused(CallerError, code="FENCE_REFUSED"):
    """The fence of an action did not hold: the replica is not in the state that the sender expected. Nothing was
    done."""


class ActionService:
    """Carries out actions on the replicas of one node.

    Args:
        manager: creates and deletes replicas; ``ReplicaLifecycle`` shares its own.
        copies: the copies to this node.
    """

    def __init__(self, node: Node, manager: TabletManager, copies: CopyTargetService) -> None:
        self._node = node
        self._manager = manager
        self._copies = copies

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
        """Check the fence of an action, and carry the action out if the fence holds.

        ``done`` gets ``None`` once the effect is complete, or was complete before. Otherwise it gets the error."""
        judgement = judge(action, self.local(action.tablet_id))
        if judgement.verdict is FenceVerdict.DONE:
            self._done_before(action, done)
        elif judgement.verdict is FenceVerdict.REFUSED:
            done(FenceRefused(f"{type(action).__name__} of tablet {action.tablet_id} refused: {judgement.reason}"))
        else:
            self._effect(action, judgement.reason, done)

    def _done_before(self, action: ServerAction, done: Done) -> None:
        """Answer an action whose effect is there already.

        A deletion that an error has interrupted is completed, and a tombstone of a dropped table learns of that."""
        if not isinstance(action, DeleteReplica):
            done(None)
            return
        self._copies.forget(action.tablet_id)
        self._manager.end_deletion(action.tablet_id, done, removed=isinstance(action.fence, Terminal))

    def local(self, tablet_id: TabletId) -> LocalReplica | None:
        """Return the state of a replica that fences are checked against; ``None``: the node runs no such replica.

        A tombstone counts as no replica here: its state is in its files, which the manager reads."""
        replica = self._node.replicas.get(tablet_id)
        if replica is not None:
            status = replica.core.status()
            return LocalReplica(
                data_state=ReportedDataState.FAILED if replica.failure else ReportedDataState.READY,
                committed_config=status.committed_config.op_id,
                newest_config=status.config.op_id,
                schema_version=replica.applier.store.schema.version,
                leads=leads(replica),
                change_pending=status.config.op_id != status.committed_config.op_id,
            )
        if tablet_id in self._copies.running:
            return _not_running(ReportedDataState.COPYING)
        if tablet_id in self._node.failed_tablets:
            return self._failed(tablet_id)
        return None

    def _failed(self, tablet_id: TabletId) -> LocalReplica:
        """Return the state of a replica that did not start, with its committed config if its metadata can be read."""
        source = self._node.tablets
        if not isinstance(source, TabletLoader):
            return _not_running(ReportedDataState.FAILED)
        config, lost = source.failed_configs.get(tablet_id), tablet_id in source.unknown_op_ids
        if config is None:
            return _not_running(ReportedDataState.FAILED, unreadable=lost)
        return _not_running(ReportedDataState.FAILED, config.op_id)

    def _effect(self, action: ServerAction, reason: str, done: Done) -> None:
        match action:
            case CreateReplica():
                self._create(action, done)
            case DeleteReplica():
                self._manager.delete(action.tablet_id, reason, done, seen=_seen(action.fence))
            case AlterSchema():
                self._replica(action).change_schema(Schema.from_bytes(action.schema), lambda r: done(_error_of(r)))
            case TransferLeadership():
                self._replica(action).transfer(action.to, done)
            case ChangeConfig():
                self._change_members(action, done)
            case _:
                assert_never(action)

    def _create(self, action: CreateReplica, done: Done) -> None:
        engine = self._node.config.consensus.name
        if action.consensus == engine:
            self._manager.create(_settings(action), done)
            return
        wanted = action.consensus
        fact = f"tablet {action.tablet_id} needs the consensus engine {wanted!r}, and this node has {engine!r}"
        done(Unsupported(f"{fact}; create the table on servers with [engines] consensus = {wanted!r}"))

    def _change_members(self, action: ChangeConfig, done: Done) -> None:
        def changed(result: TabletConfig | StelaeError) -> None:
            done(result if isinstance(result, StelaeError) else None)

        self._replica(action).change_members(_change_of(action), changed, committed_config_id=action.cas)

    def _replica(self, action: ServerAction) -> Replica:
        return self._node.replicas[action.tablet_id]


def _seen(fence: Terminal | Evicted | Unreadable) -> OpId | None:
    """Return the committed config that a deletion compares with; ``None`` if the table is deleted for good.

    ``Unreadable`` holds only without a config. ZERO refuses if one can be read after all."""
    match fence:
        case Evicted():
            return fence.seen
        case Unreadable():
            return ZERO
        case Terminal():
            return None
        case _:
            assert_never(fence)


def _not_running(
    data_state: ReportedDataState, committed: OpId | None = None, *, unreadable: bool = False
) -> LocalReplica:
    """Return the state of a replica that did not start, or is being copied.

    If its committed config is not known, the newest possible op id makes every fence on a config refuse; only a fence
    that needs no config, as when the table was dropped, can hold. If it is known, a later config in the log of a
    replica that does not start does not count: no leader has the replica as a member that it can use."""
    return LocalReplica(
        data_state=data_state,
        committed_config=ZERO if committed is None else committed,
        newest_config=OpId(1 << 62, 1 << 62) if committed is None else committed,
        schema_version=0,
        leads=False,
        change_pending=False,
        unreadable=unreadable,
    )


def _check(action: ServerAction) -> None:
    """Refuse an action that no master sends, before anything is looked up or created.

    Raises:
        CallerError: the action names the system tablet, creates a replica with impossible members, or changes a
            member in a way that no change can.
    """
    tablet_id(action.tablet_id)
    refuse_system_tablet(action.tablet_id)
    if isinstance(action, ChangeConfig):
        check_change(_change_of(action))
    if isinstance(action, CreateReplica):
        names = [member.node_id for member in action.config.members]
        if action.node_id not in names or len(set(names)) != len(names):
            fact = f"the members of a new replica must include its node {action.node_id} and list each node once"
            raise CallerError(f"{fact}, not {names}")
        if len(names) % 2 == 0:
            raise CallerError(f"a tablet has an odd number of members, not {len(names)}")


def _change_of(action: ChangeConfig) -> MemberChange:
    """Return the change of the config. ``CallerError``: the action does not say to which type."""
    if action.change is ConfigChange.REMOVE:
        return RemoveServer(node_id=action.member)
    if action.member_type is None:
        raise CallerError(f"{action.change} of node {action.member} does not say as what; give a member type")
    if action.change is ConfigChange.ADD:
        return AddServer(node_id=action.member, address=action.address, member_type=action.member_type)
    return ChangeRole(node_id=action.member, member_type=action.member_type)


def _settings(action: CreateReplica) -> TabletSettings:
    """Return the settings of the tablet to create.

    The first of ``members`` is the first leader. A hash of the tablet's id chooses it, so all members agree without
    a message, and the leaders of many tablets spread over the nodes."""
    members: tuple[Member, ...] = action.config.members
    first = mmh3.hash(action.tablet_id, signed=False) % len(members)
    schema = Schema.from_bytes(action.schema)
    return TabletSettings(
        id=action.tablet_id,
        schema=schema,
        members=members[first:] + members[:first],
        table_name=action.table_id,
        partition=stored_bounds(schema, action.partition, action.scheme),
    )


def _error_of(result: WriteReply | StelaeError) -> StelaeError | None:
    if isinstance(result, StelaeError):
        return result
    (answer,) = result.answers
    return SchemaMismatch(answer.result.detail) if answer.result.refusal else None
