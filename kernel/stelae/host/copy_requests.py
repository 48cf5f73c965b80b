"""Carries out the ``CopyRequest`` effects of a leader: creates an empty replica, or starts a copy.

A core repeats its request until the peer answers appends. A peer that hosts no replica may be a new node, on which an
empty replica is enough, or have a tombstone, over which only a copy can go. The leader cannot tell them apart, so if
the log begins at its first entry, or the peer is to be a witness, it asks for a replica without entries and for a copy
in turn. The peer refuses what it must not do, and a witness refuses the copy that it does not need."""

import logging
from collections.abc import Callable

from stelae.host.new_replica import NewReplica, new_replica
from stelae.host.start_copy import StartCopy, start_copy
from stelae.host.superblock import Superblock
from stelae.spi.consensus import CopyRequest, Status
from stelae.spi.ids import NodeId, OpId
from stelae.spi.members import TabletConfig
from stelae.spi.services import Metrics

log = logging.getLogger(__name__)


class CopyRequests:
    """Carries out the ``CopyRequest`` effects of one leader.

    Args:
        create: sends the message for an empty replica to a peer.
        start: sends the message that starts a copy to a peer.
        metrics: counts the peers that need a copy.
    """

    def __init__(
        self, create: Callable[[NodeId, NewReplica], None], start: Callable[[NodeId, StartCopy], None], metrics: Metrics
    ) -> None:
        self._create = create
        self._start = start
        self._metrics = metrics
        self._asked_empty: set[NodeId] = set()  # Peers that were last asked for an empty replica.
        self._reasons: dict[NodeId, str] = {}  # Why each peer was last asked for a copy.

    def config_changed(self, config: TabletConfig) -> None:
        """Forget the peers that were removed. One that is added again is asked as a new one.

        Their copies end at the sources, which end the sessions of nodes that are no members any more."""
        self._asked_empty = {peer for peer in self._asked_empty if config.member(peer) is not None}
        self._reasons = {peer: reason for peer, reason in self._reasons.items() if config.member(peer) is not None}

    def handle(self, request: CopyRequest, block: Superblock, status: Status, log_base: OpId) -> None:
        """Carry out one request. The first copy for each reason is logged."""
        peer, reason = request.peer, f"the log no longer has entry {request.first_index}"
        if request.damaged:
            reason = "its replica is damaged"
        if not request.hosted:
            new = new_replica(block, status, log_base, peer)
            if isinstance(new, NewReplica) and peer not in self._asked_empty:
                self._asked_empty.add(peer)
                self._create(peer, new)
                return
            reason = new if isinstance(new, str) else "the member did not get an empty replica"
        self._asked_empty.discard(peer)
        asked = start_copy(request, block, status, log_base)
        if asked is None:
            return
        if self._reasons.get(peer) != reason:
            self._reasons[peer] = reason
            self._metrics.count("copies_needed")
            log.info("copy requested tablet=%s peer=%s reason=%s", block.tablet_id, peer, reason)
        self._start(peer, asked)
