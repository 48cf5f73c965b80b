"""Copies tablets to this node as their leaders ask (``lifecycle.tablet_copies``)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

import msgspec

from stelae.host.node import Node
from stelae.host.start_copy import CANCEL_COPY, START_COPY, CancelCopy, StartCopy
from stelae.lifecycle.copy_environment import CopyEnvironment
from stelae.lifecycle.copy_facts import CopyFacts
from stelae.lifecycle.copy_settings import StageSettings
from stelae.lifecycle.rows_copy import RowsCopy
from stelae.lifecycle.side_work import SideWork
from stelae.lifecycle.tablet_copies import TabletCopies
from stelae.lifecycle.tablet_copy import TabletCopy
from stelae.lifecycle.tablet_loader import TabletLoader
from stelae.lifecycle.tablet_manager import TabletManager
from stelae.lifecycle.tombstones import Tombstones
from stelae.lifecycle.waiting_copies import WaitingCopy
from stelae.partition.tablet_partition import TabletPartition
from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.server.tserver.background_work import BackgroundWork
from stelae.server.tserver.copy_sources import MessengerSources
from stelae.server.tserver.damage_reports import report_damage
from stelae.server.tserver.loop_calls import LoopCalls, ThreadCalls
from stelae.spi.copy import CopyTarget
from stelae.spi.errors import PeerError, StelaeError
from stelae.spi.ids import NodeId, TabletId, node_id, tablet_id
from stelae.spi.schema import Schema
from stelae.spi.services import Buffer
from stelae.wire.requests import OneWayMessage

SOURCES_MAX = 64
"""The most sources of one request. A tablet has fewer members."""


class CopyTargetService:
    """The receiving side of copies on one node.

    It refuses all requests if the node's settings choose no transport.

    Args:
        manager: locks tablets.
        tombstones: the voters that stay in service during a copy.
        calls: makes the way from the threads that fetch to the event loop.
        side_work: what a copy does beside its writes.
    """

    def __init__(
        self,
        node: Node,
        manager: TabletManager,
        tombstones: Tombstones,
        calls: Callable[[], ThreadCalls] = LoopCalls,
        side_work: Callable[[], SideWork] = BackgroundWork,
    ) -> None:
        self._node = node
        self._new_calls = calls
        self._side_work = side_work
        self._manager = manager
        self._tombstones = tombstones
        self._decoder = msgspec.msgpack.Decoder(StartCopy)
        self._cancels = msgspec.msgpack.Decoder(CancelCopy)
        self._copies: TabletCopies | None = None
        self.transport: CopyTarget | None = None  #: Set by ``start``, if the settings choose a transport.

    @property
    def running(self) -> Mapping[TabletId, TabletCopy | RowsCopy]:
        """The copies in progress. Tablets have no running replica meanwhile, but those whose rows are copied mostly do.

        One whose request is still being checked does not count: masters would take a first member that has not begun
        for one that has had a replica."""
        running = self._in_progress
        return {tablet: copy for tablet, copy in running.items() if isinstance(copy, RowsCopy) or copy.admitted}

    def lost_tablets(self) -> Mapping[TabletId, bool]:
        """Forget what is here again, and return the tablets of which nothing is here (``TabletCopies.lost``)."""
        if self._copies is None:
            return {}
        for tablet in [tablet for tablet in self._copies.lost if tablet in self._node.replicas]:
            del self._copies.lost[tablet]
        return self._copies.lost

    def forget(self, tablet: TabletId) -> None:
        """Note that a tablet was deleted for good."""
        if self._copies is not None:
            self._copies.forget(tablet)

    @property
    def waiting(self) -> Mapping[TabletId, WaitingCopy]:
        """The copies of new replicas that wait for a slot, or for the end of a pause."""
        return {} if self._copies is None else self._copies.waiting

    @property
    def copies(self) -> TabletCopies | None:
        """The copies to this node; ``None`` if its settings choose no transport."""
        return self._copies

    @property
    def stages_in_use(self) -> Collection[TabletId]:
        """The tablets whose stages a copy uses."""
        return self._in_progress.keys()

    @property
    def _in_progress(self) -> Mapping[TabletId, TabletCopy | RowsCopy]:
        return {} if self._copies is None else self._copies.running

    def start(self) -> None:
        """Make the transport's side, and register the handlers."""
        node, chosen = self._node, self._node.config.copy
        node.messenger.on_message(START_COPY, self._arrived)
        node.messenger.on_message(CANCEL_COPY, self._cancel_copy)
        if chosen is None:
            return
        assert isinstance(node.tablets, TabletLoader)
        self._sources = MessengerSources(node, self._new_calls)
        self.transport = chosen.engine.target(chosen.config, node.engines.services)
        self._copies = TabletCopies(
            CopyEnvironment(
                node=node,
                loader=node.tablets,
                manager=self._manager,
                tombstones=self._tombstones,
                sources=self._sources,
                transport=self.transport,
                settings=node.config.extra.get("stage") or StageSettings(),
                check_facts=check_facts,
                hosts=self._hosts,
                source_damaged=partial(report_damage, node),
                side_work=self._side_work,
            )
        )

    def stop(self) -> None:
        """Cancel all copies. What has arrived stays in their stages, for the next start."""
        if self._copies is not None:
            self._copies.stop()
            self._sources.stop()

    def _hosts(self, tablet: TabletId) -> bool:
        """Return whether this kind of node hosts a tablet: masters host the system tablet, and nothing else."""
        configured = self._node.config.tablet
        master = configured is not None and configured.id == SYSTEM_TABLET
        return master == (tablet == SYSTEM_TABLET)

    def _arrived(self, message: OneWayMessage) -> None:
        """Begin a copy as a message says.

        Raises:
            PeerError: the message is malformed, or no leader sends it. Nothing was done.
        """
        asked = self._decode(message.sender, message.body)
        if self._copies is None:
            raise PeerError(f"a copy of tablet {asked.tablet_id} was refused: [engines] copy is not set on this node")
        self._copies.start(asked)

    def _cancel_copy(self, message: OneWayMessage) -> None:
        """Cancel a copy as a leader says. Raises ``PeerError`` if the message is malformed."""
        try:
            cancelled = self._cancels.decode(message.body[0])
        except (IndexError, ValueError, RecursionError) as error:
            raise PeerError(f"malformed {CANCEL_COPY}: {error}") from error
        if self._copies is not None:
            self._copies.cancelled_by_leader(cancelled)

    def _decode(self, sender: NodeId, frames: Sequence[Buffer]) -> StartCopy:
        try:
            asked = self._decoder.decode(frames[0])
            tablet_id(asked.tablet_id)
            for source in asked.sources:
                node_id(source.node_id)
        except (IndexError, ValueError, RecursionError, StelaeError) as error:
            raise PeerError(f"malformed {START_COPY}: {error}") from error
        if asked.leader != sender or not 0 < len(asked.sources) <= SOURCES_MAX or asked.term < 0:
            fact = f"{len(asked.sources)} sources, leader {asked.leader[:32]!r}"
            raise PeerError(f"malformed {START_COPY} of {sender}: {fact}")
        return asked


def check_facts(facts: CopyFacts) -> None:
    """Check the schemas and the partition of a copied superblock. Raises ``StelaeError`` if they cannot be used."""
    schemas = [Schema.from_bytes(body) for body in facts.schemas]
    if facts.partition.scheme:
        TabletPartition(schemas[0], facts.partition.scheme, facts.partition.hash_buckets)
