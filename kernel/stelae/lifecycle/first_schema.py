"""Finds the replica that was created with another first schema, or another partition, than the rest of its tablet.

Without masters each node creates its replica from its own ``node.toml``. Entries name columns by id, and ids follow the
order of the columns in that file. So replicas with different files would give one row different values (ADR 92).

Each consensus message carries a checksum of both, for the replica of its sender. Messages with another one are
refused, so the two replicas exchange no votes, entries or acknowledgements. The sender gets the first schema instead.
A replica without entries fails if it gets another one from a replica with entries: a majority with that first schema
has elected a leader. Until then it is not known which of them is wrong, and both nodes log a warning."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

from stelae.host.replica import Replica
from stelae.host.superblock import PartitionBounds, Superblock
from stelae.lifecycle.configured_tablet import schema_text
from stelae.spi.errors import PeerError, StelaeError
from stelae.spi.ids import ZERO, NodeId, OpId, TabletId
from stelae.spi.schema import Schema
from stelae.spi.services import Buffer

if TYPE_CHECKING:
    from stelae.host.node import Node

log = logging.getLogger(__name__)

FIRST_SCHEMA = "first_schema"


class FirstSchema(msgspec.Struct, frozen=True, kw_only=True):
    """With what a replica was created. Sent to a node whose replica seems to have been created with something else."""

    tablet_id: TabletId
    schema: bytes  #: The first version.
    partition: PartitionBounds
    last: OpId  #: The end of the sender's log. ``ZERO``: it never had an entry.


class FirstSchemaCheck:
    """Compares with what the replicas of one node and those of other nodes were created, on the event loop."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._decoder = msgspec.msgpack.Decoder(FirstSchema)
        self._warned: set[tuple[TabletId, NodeId]] = set()  # Members only, so it is bounded.

    def start(self) -> None:
        """Register the handlers."""
        self._node.peers.first_schema_sum = lambda replica: first_schema_sum(replica.flusher.superblock)
        self._node.peers.check_first_schema = self._check
        self._node.messenger.on_message(FIRST_SCHEMA, lambda message: self._arrived(message.sender, message.body))

    def _check(self, sender: NodeId, replica: Replica, first_schema: int) -> None:
        own = first_schema_sum(replica.flusher.superblock)
        if first_schema and own and first_schema != own:
            self._send(sender, replica)
            raise PeerError(f"node {sender} has another first schema or partition of tablet {replica.tablet_id}")

    def _send(self, to: NodeId, replica: Replica) -> None:
        block = replica.flusher.superblock
        own = FirstSchema(
            tablet_id=block.tablet_id, schema=block.schemas[0], partition=block.partition, last=replica.status.last
        )
        self._node.messenger.send(to, FIRST_SCHEMA, [msgspec.msgpack.encode(own)])

    def _arrived(self, sender: NodeId, frames: Sequence[Buffer]) -> None:
        """Compare what another node has sent with the replica here. Raises ``PeerError`` if it is malformed.

        A message of a node that is no member has no effect."""
        try:
            theirs = self._decoder.decode(frames[0])
            schema = Schema.from_bytes(theirs.schema)
        except (IndexError, ValueError, RecursionError, StelaeError) as error:
            raise PeerError(f"malformed {FIRST_SCHEMA}: {error}") from error
        replica = self._node.replicas.get(theirs.tablet_id)
        if replica is None or replica.failure or (member := replica.status.config.member(sender)) is None:
            return
        block = replica.flusher.superblock
        own, other = first_schema_sum(block), _checksum(theirs.schema, theirs.partition)
        if not own or not other or own == other:
            return
        found = _difference(block, schema, f"node {sender} ({member.address})")
        if replica.status.last > ZERO and theirs.last == ZERO:
            self._send(sender, replica)  # Only then does that node know that it is the wrong one.
        if replica.status.last == ZERO and theirs.last > ZERO:
            replica.fail(f"{found}. {_REPAIR}")
        elif (theirs.tablet_id, sender) not in self._warned:
            self._warned.add((theirs.tablet_id, sender))
            log.warning("replicas refuse each other's messages tablet=%s: %s", theirs.tablet_id, found)


_REPAIR = (
    "A majority has its schema, and this replica has no entries: stop this node, correct [tablet] in its node.toml, "
    "remove the node's directory, and format it again with the same uuid (stelae fs format --uuid)"
)


def first_schema_sum(block: Superblock) -> int:
    """Return a checksum of the first schema and the partition of a replica.

    0 if its first schema is not known to be that of the tablet: that of a witness is the one at the base of its log."""
    return 0 if not block.schemas else _checksum(block.schemas[0], block.partition)


def _checksum(first: bytes, bounds: PartitionBounds) -> int:
    """Return the checksum. It does not depend on the release: the schema is as stored, and the fields are listed."""
    if Schema.from_bytes(first).version != 1:
        return 0
    fields = (first, bounds.hash_buckets, bounds.key_low, bounds.key_high, bounds.scheme)
    return crc32(msgspec.msgpack.encode(fields)) or 1


def _difference(block: Superblock, theirs: Schema, other: str) -> str:
    """Return both sides in words."""
    own, text = schema_text(Schema.from_bytes(block.schemas[0])), schema_text(theirs)
    if own == text:
        return f"this replica was created with another partition, or with other column ids, than that of {other}: {own}"
    return f"this replica was created with the columns {own}; that of {other} with {text}"
