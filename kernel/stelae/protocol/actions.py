"""What the leading master asks of tablet servers. Each is idempotent, and carries the fence that makes it safe.

A master sends these on its own word, and may have been deposed without knowing it. So nothing here is safe because of
who sends it: each is judged by the replica, against its fence, at the moment it would take effect
(``stelae.protocol.fences``). ``docs/reference/fencing.md`` is the audit."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import msgspec

from stelae.partition.schema import Partition
from stelae.protocol.catalog_names import TableId, TabletState
from stelae.spi.consensus import MemberType, TabletConfig
from stelae.spi.errors import CallerError
from stelae.spi.ids import NodeId, OpId, TabletId
from stelae.spi.services import Buffer


class CreateReplica(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Bring an initial member into being. Fence: where the tablet has ever been, nothing is created."""

    node_id: NodeId
    tablet_id: TabletId
    table_id: TableId
    config: TabletConfig
    schema: bytes
    partition: Partition
    consensus: str
    scheme: bytes = (
        b""  #: What the tablet needs of the table's partition schema (``stelae.partition.tablet_partition``).
    )


class Terminal(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Fence: the catalog says that the tablet is gone, which cannot become untrue."""

    state: TabletState


class Evicted(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Fence: every config that the replica knows is older than this one, which is committed and does not have it.

    Known is what is in its log, committed or not. So a late copy of this finds no replica that was brought back by a
    copy, nor one whose leader has told it that it is being added again. Before it is told, the deletion costs a copy,
    and no vote: members join as PRE_VOTER. Besides, it is still the replica that was reported: its committed config is
    the one that the master has seen."""

    config_op_id: OpId
    seen: OpId


class DeleteReplica(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Leave a tombstone of a replica."""

    node_id: NodeId
    tablet_id: TabletId
    fence: Terminal | Evicted


class AlterSchema(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Tell a tablet's leader its newest schema. Fence: the version, which follows the one applied there."""

    node_id: NodeId
    tablet_id: TabletId
    version: int
    schema: bytes


class ConfigChange(StrEnum):
    """How a config is to change."""

    ADD = "ADD"
    REMOVE = "REMOVE"
    CHANGE_ROLE = "CHANGE_ROLE"


class ChangeConfig(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Ask a tablet's leader to change its config by one member. Fence: compare-and-set on the committed config."""

    node_id: NodeId
    tablet_id: TabletId
    change: ConfigChange
    member: NodeId
    address: str
    member_type: MemberType | None
    cas: OpId


class TransferLeadership(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Ask a tablet's leader to hand over to a member. Fence: compare-and-set on the committed config."""

    node_id: NodeId
    tablet_id: TabletId
    to: NodeId
    cas: OpId


ServerAction: TypeAlias = CreateReplica | DeleteReplica | AlterSchema | ChangeConfig | TransferLeadership

ACTION = "tserver.act"

_DECODER: msgspec.msgpack.Decoder[ServerAction] = msgspec.msgpack.Decoder(ServerAction)


def encode_action(action: ServerAction) -> bytes:
    """Return the body of a request."""
    return msgspec.msgpack.encode(action)


def decode_action(data: Buffer) -> ServerAction:
    """Read what :func:`encode_action` wrote; ``CallerError``: it is no action."""
    try:
        return _DECODER.decode(data)
    except (ValueError, RecursionError) as error:
        raise CallerError(f"malformed action: {error}") from error
