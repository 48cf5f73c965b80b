"""Creating and deleting tablets at the request of whoever places them; tombstones that vote."""

from __future__ import annotations

from collections.abc import Callable

from stelae.host.node import Node
from stelae.host.settings import TabletSettings
from stelae.host.superblock import PartitionBounds
from stelae.lifecycle.tablet_loader import TabletLoader
from stelae.lifecycle.tablet_manager import TabletManager
from stelae.lifecycle.tombstones import Tombstones
from stelae.protocol.codec import decode
from stelae.protocol.replica_messages import CREATE_TABLET, DELETE_TABLET, CreateTablet, DeleteTablet
from stelae.server.frames import only_frame
from stelae.server.tserver.actions import ActionService
from stelae.server.tserver.quarantine import QuarantineKeeper
from stelae.server.tserver.service import not_of_masters
from stelae.spi.consensus import Member
from stelae.spi.errors import CallerError, Corrupt, StelaeError
from stelae.spi.ids import node_id, tablet_id
from stelae.spi.schema import Schema
from stelae.wire.requests import Request


class ReplicaLifecycle:
    """Serves the life of the tablets of one node. A ``Service`` (``stelae.spi.hooks``)."""

    def __init__(self, node: Node) -> None:
        self._node = node
        assert isinstance(node.tablets, TabletLoader)
        self.manager = TabletManager(node, node.tablets)
        self._tombstones = Tombstones(node)
        self._actions = ActionService(node, self.manager)
        self._quarantine = QuarantineKeeper(node, self.manager)

    def start(self) -> None:
        """Register the handlers."""
        self._node.messenger.serve(CREATE_TABLET, self._create)
        self._node.messenger.serve(DELETE_TABLET, self._delete)
        self._actions.start()
        self._tombstones.start()
        self._quarantine.start()

    def stop(self) -> None:
        """Nothing is held; what is under way ends, or is ended at the next start."""
        self._quarantine.stop()

    def _create(self, request: Request) -> None:
        asked = decode(only_frame(request), CreateTablet)
        not_of_masters(asked.tablet_id)
        if len(asked.members) % 2 == 0:
            raise CallerError(f"a tablet has an odd number of members, not {len(asked.members)}")
        try:
            schema = Schema.from_bytes(asked.schema)
        except Corrupt as error:
            raise CallerError(str(error)) from error
        members = tuple(Member(node_id=node_id(node), address=address) for node, address in asked.members)
        if self._node.node_id not in [member.node_id for member in members]:
            raise CallerError("this node is no member of the tablet that it is to create")
        new = TabletSettings(
            id=tablet_id(asked.tablet_id),
            schema=schema,
            members=members,
            table_name=asked.table_name,
            partition=PartitionBounds(hash_buckets=asked.hash_buckets, key_low=asked.key_low, key_high=asked.key_high),
        )
        self.manager.create(new, _answer(request))

    def _delete(self, request: Request) -> None:
        asked = decode(only_frame(request), DeleteTablet)
        not_of_masters(asked.tablet_id)
        if (asked.seen is None) != asked.table_is_gone:
            raise CallerError("a deletion says which config it has seen, or that the table is gone: one of both")
        self.manager.delete(tablet_id(asked.tablet_id), asked.reason, _answer(request), seen=asked.seen)


def _answer(request: Request) -> Callable[[StelaeError | None], None]:
    def done(error: StelaeError | None) -> None:
        if error is None:
            request.reply()
        else:
            request.refuse(error)

    return done
