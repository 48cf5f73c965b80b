"""When the replicas of a node are flushed and compacted, and up to when their past can be read.

How is the business of ``stelae.host.flush_and_collect``, which also flushes a replica once it holds enough. Here is
what needs a clock and a view of all replicas. Once in ``TICK_US`` every replica is looked at:

- One whose rows have waited for a flush for ``flush_interval_ms`` is flushed, so that little has to be replayed.
- Its log is collected as far as its slowest peer has come since the last flush.
- Its history floor follows the clock at a distance of ``history_retention_s``; versions below it are let go by
  compaction. It never passes what the replica has applied, the time at which its present can be read (rule 32)."""

from __future__ import annotations

from dataclasses import dataclass

from stelae.host.hybrid_clock import LOGICAL_BITS
from stelae.host.node import Node
from stelae.host.ports import Timer
from stelae.host.replica import Replica
from stelae.host.settings import MaintenanceSettings
from stelae.server.tserver.memory_limit import WORKING
from stelae.spi.ids import TabletId

TICK_US = 1_000_000
"""How often replicas are looked at."""

FLOOR_STEPS = 64
"""The floor follows in so many steps per retention: each may make a compaction worth while."""


@dataclass(slots=True)
class _Seen:
    """What is remembered of one replica."""

    dirty_since_us: int | None = None  #: Monotonic time since which rows wait for a flush.
    floor: int = 0


class Maintenance:
    """Keeps the stores of a node's replicas in shape. A ``Service`` (``stelae.spi.hooks``)."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._settings: MaintenanceSettings = node.config.maintenance
        self._retention = self._settings.history_retention_s * 1_000_000 << LOGICAL_BITS
        self._seen: dict[TabletId, _Seen] = {}
        self._timer: Timer | None = None

    def start(self) -> None:
        """Begin to look."""
        self._wait()

    def stop(self) -> None:
        """Look no more; what is under way ends."""
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self) -> None:
        turns = self._node.turns
        self._timer = turns.call_at(turns.now_us() + TICK_US, self._tick)

    def _tick(self) -> None:
        self._wait()
        now_us, present = self._node.turns.now_us(), self._node.time.last
        for tablet_id, replica in self._node.replicas.items():
            if replica.state in WORKING:
                self._look(replica, self._seen.setdefault(tablet_id, _Seen()), now_us, present)

    def _look(self, replica: Replica, seen: _Seen, now_us: int, present: int) -> None:
        """Do what one replica needs by itself."""
        flusher = replica.flusher
        flusher.collect()
        floor = min(present - self._retention, replica.applier.timestamp)
        if floor - seen.floor > self._retention // FLOOR_STEPS and flusher.compact(floor):
            seen.floor = floor
        if not replica.applier.store.memory_bytes():
            seen.dirty_since_us = None
        elif seen.dirty_since_us is None:
            seen.dirty_since_us = now_us
        elif now_us - seen.dirty_since_us >= self._settings.flush_interval_ms * 1000 and flusher.flush():
            seen.dirty_since_us = None
