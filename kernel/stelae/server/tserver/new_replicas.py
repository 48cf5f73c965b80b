"""Creates the empty replicas that leaders ask for when they add this node to a tablet (``host.new_replica``)."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from stelae.host.new_replica import NEW_REPLICA, LogStart, NewReplica
from stelae.host.node import Node
from stelae.host.settings import TabletSettings
from stelae.lifecycle.tablet_manager import TabletManager
from stelae.lifecycle.witness_over_tombstone import WitnessOverTombstone
from stelae.partition.tablet_partition import TabletPartition
from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.spi.errors import PeerError, StelaeError
from stelae.spi.ids import ZERO, NodeId, TabletId, tablet_id
from stelae.spi.recovery_epoch import is_too_far_ahead
from stelae.spi.schema import Schema
from stelae.spi.services import Buffer

log = logging.getLogger(__name__)

REASONS_MAX = 1024
"""The most tablets whose last reason is kept."""


class NewReplicas:
    """Creates replicas on one node.

    A replica that is created has no vote. It has no config and gets its members with the log, or it has no rows and a
    config in which it is a ``PRE_WITNESS``. So a message that comes late, from a leader that has removed this node
    again, leaves a replica that does nothing."""

    def __init__(self, node: Node, manager: TabletManager, over_tombstones: WitnessOverTombstone) -> None:
        self._node = node
        self._manager = manager
        self._over_tombstones = over_tombstones
        self._decoder = msgspec.msgpack.Decoder(NewReplica)
        self._refused: dict[TabletId, str] = {}

    def start(self) -> None:
        """Register the handler."""
        self._node.messenger.on_message(NEW_REPLICA, lambda message: self._create(message.body))

    def _create(self, frames: Sequence[Buffer]) -> None:
        """Create a replica as a message says.

        Raises:
            PeerError: the message is malformed, or no leader sends it. Nothing was done.
        """
        try:
            new = self._decoder.decode(frames[0])
            settings = self._settings(new)
        except (IndexError, ValueError, RecursionError, StelaeError) as error:
            raise PeerError(f"malformed {NEW_REPLICA}: {error}") from error
        if new.tablet_id in self._node.replicas:
            return

        def done(error: StelaeError | None) -> None:
            self._ended(new, error)

        if new.log_only is not None:
            self._manager.create_log_only(
                settings, new.log_only, done, lambda found: self._over_tombstones.steps(settings, new, found)
            )
        else:
            self._manager.create(settings, done)

    def _settings(self, new: NewReplica) -> TabletSettings:
        configured = self._node.config.tablet
        is_master = configured is not None and configured.id == SYSTEM_TABLET
        if is_master and new.tablet_id != SYSTEM_TABLET:
            raise PeerError("this node is a master, and masters host no replicas of tables")
        chosen = self._node.config.consensus.name
        if new.consensus != chosen:
            raise PeerError(f"the tablet has consensus engine {new.consensus[:80]!r}, this node has {chosen!r}")
        if new.tablet_id == SYSTEM_TABLET and not is_master:
            raise PeerError("only masters host the system tablet")
        if is_master and new.log_only is not None:
            raise PeerError("a master needs the rows of the catalog, so none is a witness")
        if new.log_only is not None and not _is_sound(new.log_only, self._node.node_id):
            raise PeerError(f"the log would begin at {new.log_only.base}, with a config that does not fit")
        schema = Schema.from_bytes(new.schema)
        if new.partition.scheme:
            TabletPartition(schema, new.partition.scheme, new.partition.hash_buckets)
        return TabletSettings(
            id=tablet_id(new.tablet_id), schema=schema, members=(), table_name=new.table_name, partition=new.partition
        )

    def _ended(self, new: NewReplica, error: StelaeError | None) -> None:
        """Log the outcome. The leader asks again and again, so each reason is logged once."""
        if error is None:
            self._refused.pop(new.tablet_id, None)
            log.info("empty replica created tablet=%s config=%s", new.tablet_id, new.config)
            return
        if self._refused.get(new.tablet_id) != str(error):
            log.warning("empty replica not created tablet=%s reason=%s", new.tablet_id, error)
        if len(self._refused) >= REASONS_MAX:
            self._refused.clear()
        self._refused[new.tablet_id] = str(error)


def _is_sound(start: LogStart, node_id: NodeId) -> bool:
    """Return whether a log can begin there: the config is not newer than the base, and gives this node no vote."""
    config = start.committed
    known = bool(config.members) == (config.op_id > ZERO)
    ordered = ZERO <= config.op_id <= start.base and start.base.term <= start.term
    ordered = ordered and not is_too_far_ahead(start.term, start.base.term)
    return known and ordered and node_id not in config.voters()
