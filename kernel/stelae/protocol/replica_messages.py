"""Requests of those who place tablets: masters, and people in their stead. Answers are empty, or an error."""

from __future__ import annotations

import msgspec

from stelae.spi.ids import NodeId, OpId, TabletId

CREATE_TABLET = "tablet.create"
DELETE_TABLET = "tablet.delete"
TRANSFER_LEADERSHIP = "tablet.transfer_leadership"


class CreateTablet(msgspec.Struct, frozen=True, array_like=True):
    """Create one replica of a new tablet, on a node that is one of its members. May be repeated.

    The first member is the hinted leader of a tablet that never had one."""

    tablet_id: TabletId
    table_name: str
    schema: bytes  #: ``Schema.to_bytes`` of the first schema.
    members: tuple[tuple[NodeId, str], ...]  #: Node and address of each; an odd number.
    hash_buckets: tuple[int, ...] = ()
    key_low: bytes = b""
    key_high: bytes | None = None


class DeleteTablet(msgspec.Struct, frozen=True, array_like=True):
    """Delete one replica: a tombstone stays that votes, its data are set aside. May be repeated.

    The fence is the op id of the committed config that the caller has ``seen``, or that the ``table_is_gone`` for good:
    exactly one of both."""

    tablet_id: TabletId
    reason: str
    seen: OpId | None = None
    table_is_gone: bool = False


class TransferTabletLeadership(msgspec.Struct, frozen=True, array_like=True):
    """Ask a leader to hand over, to a voter or (``None``) to the best one. To itself it is done already."""

    tablet_id: TabletId
    to: NodeId | None = None
