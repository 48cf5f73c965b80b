"""Collects periodic statistics of a node's replicas: their sizes, and the unhealthy followers of their leaders.

Measuring a size reads a store's directory. The files change only when the superblock changes, so a replica is measured
when its superblock is a new one. At most ``MEASURING_MAX`` measurements are under way at a time."""

from __future__ import annotations

import logging
from functools import partial

from stelae.host.node import Node
from stelae.host.ports import Timer
from stelae.host.replica import Replica
from stelae.host.superblock import Superblock
from stelae.lifecycle.directory_size import bytes_below
from stelae.server.tserver.follower_health import FollowerHealth
from stelae.server.tserver.settings import TabletServerSettings
from stelae.server.tserver.stopped_replicas import leads
from stelae.spi.ids import NodeId, TabletId

log = logging.getLogger(__name__)

LOOK_US = 500_000
"""How often followers are checked."""

SIZE_LOOKS = 4
"""Sizes are checked once in this many checks of followers, because nothing needs them at once."""

MEASURING_MAX = 8
"""The most measurements under way at a time. After a start, scans must not wait behind the measurements of all
replicas."""

STEP_BYTES_MIN = 64 << 10
STEP_PARTS = 8
"""A size changes only if it differs by more than an eighth and by more than 64 KiB. Otherwise each write would cause a
report to the masters."""


class ReplicaStats:
    """Sizes and unhealthy followers of the replicas of one node. Used on the node's event loop."""

    def __init__(self, node: Node) -> None:
        self._node = node
        settings = node.config.extra.get("tserver") or TabletServerSettings()
        self._followers = FollowerHealth(settings.follower_unhealthy_ms)
        self._timer: Timer | None = None
        self._looks = 0
        self._measured: dict[TabletId, Superblock] = {}
        self._measuring: set[TabletId] = set()
        self._unknown: set[TabletId] = set()  #: Those whose last measurement failed.
        self._file_bytes: dict[TabletId, int] = {}
        self.size_bytes: dict[TabletId, int] = {}
        """Bytes of each replica's store, in its files and in memory, as of the last change that is worth a report."""
        self._changed: set[TabletId] = set()
        self.unhealthy: dict[TabletId, tuple[NodeId, ...]] = {}
        """The unhealthy followers of each tablet that this node leads and that has any."""

    def start(self) -> None:
        """Start the timer."""
        self._timer = self._node.turns.call_at(self._node.turns.now_us(), self._look)

    def stop(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def take_changed(self) -> set[TabletId]:
        """Return the tablets whose size or unhealthy followers have changed since the last call."""
        taken, self._changed = self._changed, set()
        return taken

    def _look(self) -> None:
        turns, replicas = self._node.turns, self._node.replicas
        self._timer = turns.call_at(turns.now_us() + LOOK_US, self._look)
        leading = {tablet_id: replica for tablet_id, replica in replicas.items() if leads(replica)}
        self._followers.keep(leading)
        found = {tablet_id: self._unhealthy(replica) for tablet_id, replica in leading.items()}
        before, self.unhealthy = self.unhealthy, {tablet_id: nodes for tablet_id, nodes in found.items() if nodes}
        self._changed |= {tablet_id for tablet_id, _ in before.items() ^ self.unhealthy.items()}
        if self._looks % SIZE_LOOKS == 0:
            for gone in self.size_bytes.keys() - replicas.keys():
                del self.size_bytes[gone]
                self._measured.pop(gone, None)
                self._file_bytes.pop(gone, None)
                self._unknown.discard(gone)
            # Those whose measurement failed come last, so that they do not keep the others from being measured.
            for replica in sorted(replicas.values(), key=lambda one: one.tablet_id in self._unknown):
                self._update_size(replica)
        self._looks += 1

    def _unhealthy(self, replica: Replica) -> tuple[NodeId, ...]:
        status, tablet_id = replica.status, replica.tablet_id
        others = [member.node_id for member in status.config.members if member.node_id != status.node_id]
        # A member that needs entries which the log does not have any more answers heartbeats, and cannot go on.
        stuck = {peer.node_id for peer in status.peers if peer.state == "COPY"}
        heard = self._node.peers.heartbeats.peers_alive(tablet_id, status.term)
        alive = [one for one in heard if one.peer not in stuck]
        return self._followers.leads(tablet_id, status.term, others, alive, self._node.turns.now_us())

    # -- sizes -----------------------------------------------------------------------------------

    def _update_size(self, replica: Replica) -> None:
        tablet_id, block = replica.tablet_id, replica.flusher.superblock
        stale = self._measured.get(tablet_id) is not block
        if stale and tablet_id not in self._measuring and len(self._measuring) < MEASURING_MAX:
            self._measure(tablet_id, block)
        found = self._file_bytes.get(tablet_id, 0) + replica.applier.store.memory_bytes()
        before = self.size_bytes.get(tablet_id)
        if before is None or abs(found - before) > max(STEP_BYTES_MIN, before // STEP_PARTS):
            self.size_bytes[tablet_id] = found
            self._changed.add(tablet_id)

    def _measure(self, tablet_id: TabletId, block: Superblock) -> None:
        files, directory = self._node.files, self._node.layout.data_of(tablet_id)
        self._measuring.add(tablet_id)
        work = partial(bytes_below, files, directory)
        self._node.scans.run(f"size/{tablet_id}", work, partial(self._take_size, tablet_id, block))

    def _take_size(self, tablet_id: TabletId, block: Superblock, found: int | Exception) -> None:
        self._measuring.discard(tablet_id)
        if tablet_id not in self._node.replicas:
            return
        if isinstance(found, Exception):  # It is measured again, and logged once.
            level = logging.DEBUG if tablet_id in self._unknown else logging.WARNING
            log.log(level, "size unknown tablet=%s reason=%s", tablet_id, found)
            self._unknown.add(tablet_id)
        else:
            self._unknown.discard(tablet_id)
            self._measured[tablet_id], self._file_bytes[tablet_id] = block, found
