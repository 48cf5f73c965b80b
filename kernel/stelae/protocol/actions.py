"""The actions that the leading master requests of tablet servers. Each is idempotent and has a fence that makes it
safe.

A master may send an action after it has lost its leadership without knowing it. So the sender never makes an action
safe: the replica checks it against its fence at the moment when it would take effect (``stelae.protocol.fences``).
``docs/reference/fencing.md`` lists all actions and their fences."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import msgspec

from stelae.partition.schema import Partition
from stelae.protocol.catalog_names import TableId, TabletState
from stelae.spi.errors import CallerError
from stelae.spi.ids import NodeId, OpId, TabletId
from stelae.spi.members import MemberType, TabletConfig
from stelae.spi.services import Buffer


class CreateReplica(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Create the replica of an initial member. Fence: it has no effect on a node that ever had the tablet."""

    node_id: NodeId
    tablet_id: TabletId
    table_id: TableId
    config: TabletConfig
    schema: bytes
    partition: Partition
    consensus: str
    #: The part of the table's partition schema that the tablet needs (``stelae.partition.tablet_partition``).
    scheme: bytes = b""


class Terminal(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Fence: the tablet is in a terminal state of the catalog, which can never change again."""

    state: TabletState


class Evicted(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Fence: a committed config without the replica is newer than every config that the replica knows.

    A replica knows the configs in its log, committed or not. So a delayed action has no effect on a replica that was
    restored by a copy, or that knows from its leader that it is being added again. If it does not know that yet, its
    deletion only costs another copy, and no vote, because members join as PRE_VOTER."""

    config_op_id: OpId  #: The op id of the config without the replica.
    seen: OpId  #: The committed config of the replica that the master has seen. The replica's must be the same.


class Unreadable(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Fence: a config without the node is committed, and of the replica neither config nor last op id can be read.

    The replica never votes again, and the masters have recorded that its node is never a member of the tablet again. So
    no later decision needs it. A replica whose config can be read refuses this fence: it needs ``Evicted``."""

    config_op_id: OpId  #: The op id of the config without the replica.


class DeleteReplica(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Delete a replica. Its tombstone stays."""

    node_id: NodeId
    tablet_id: TabletId
    fence: Terminal | Evicted | Unreadable


class AlterSchema(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Send the next schema of a tablet to its leader. Fence: the version, which must follow the one applied there."""

    node_id: NodeId
    tablet_id: TabletId
    version: int
    schema: bytes


class ConfigChange(StrEnum):
    """The kind of a config change."""

    ADD = "ADD"
    REMOVE = "REMOVE"
    CHANGE_ROLE = "CHANGE_ROLE"


class ChangeConfig(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Ask a tablet's leader to change one member of its config. Fence: compare-and-set on the committed config."""

    node_id: NodeId
    tablet_id: TabletId
    change: ConfigChange
    member: NodeId
    address: str
    member_type: MemberType | None
    cas: OpId


class TransferLeadership(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Ask a tablet's leader to hand over its leadership to a member. Fence: compare-and-set on the committed config."""

    node_id: NodeId
    tablet_id: TabletId
    to: NodeId
    cas: OpId


ServerAction: TypeAlias = CreateReplica | DeleteReplica | AlterSchema | ChangeConfig | TransferLeadership

ACTION = "tserver.act"

_DECODER: msgspec.msgpack.Decoder[ServerAction] = msgspec.msgpack.Decoder(ServerAction)


def encode_action(action: ServerAction) -> bytes:
    """Encode the body of a request."""
    return msgspec.msgpack.encode(action)


def decode_action(data: Buffer) -> ServerAction:
    """Decode the body of a request. Raises ``CallerError`` if it is malformed."""
    try:
        return _DECODER.decode(data)
    except (ValueError, RecursionError) as error:
        raise CallerError(f"malformed action: {error}") from error
