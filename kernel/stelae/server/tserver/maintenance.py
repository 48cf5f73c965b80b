"""Flushes, collects and compacts the replicas of a node by time.

``stelae.host.flush_and_collect`` has the steps themselves, and flushes a replica when its memory is full. This module
does what needs a clock and a view of all replicas. Every ``TICK_US`` it does three things for each replica:

- It flushes a replica whose rows have waited for ``flush_interval_ms``, so that a restart replays a short log. A
  replica without rows is flushed in the same way, so that its log can be collected.
- It collects the log again, because the slowest peer may have caught up since the last flush.
- It raises the history floor to ``history_retention_s`` before now, and compaction removes the row versions below the
  floor. The floor never rises above the timestamp that the replica has applied, because reads of the replica's present
  happen at that timestamp (``durability.md`` rule 32). Nor does it rise above one that was the present until
  ``history_retention_s`` before now (``entry_times``)."""

from __future__ import annotations

from dataclasses import dataclass

from stelae.host.hybrid_clock import LOGICAL_BITS
from stelae.host.node import Node
from stelae.host.ports import Timer
from stelae.host.replica import Replica
from stelae.host.settings import MaintenanceSettings
from stelae.server.tserver.entry_times import EntryTimes
from stelae.server.tserver.memory_limit import WORKING

TICK_US = 1_000_000
"""How often replicas are checked."""

FLOOR_STEPS = 64
"""The floor rises in this many steps per retention time. Each step may start a compaction, so steps are not small."""


@dataclass(slots=True)
class _ReplicaMarks:
    """What the last ticks found out about one replica."""

    times: EntryTimes
    dirty_since_us: int | None = None  #: Monotonic time since which rows wait for a flush; ``None``: none wait.
    floor: int = 0  #: History floor of the last compaction, as a hybrid timestamp.


class Maintenance:
    """Runs the maintenance of a node's replicas. A ``Service`` (``stelae.spi.hooks``)."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._settings: MaintenanceSettings = node.config.maintenance
        self._retention = self._settings.history_retention_s * 1_000_000 << LOGICAL_BITS
        self._marks: dict[Replica, _ReplicaMarks] = {}
        self._timer: Timer | None = None

    def start(self) -> None:
        """Start the timer."""
        self._wait()

    def stop(self) -> None:
        """Stop the timer. A flush or compaction that is under way runs to its end."""
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self) -> None:
        turns = self._node.turns
        self._timer = turns.call_at(turns.now_us() + TICK_US, self._tick)

    def _tick(self) -> None:
        self._wait()
        now_us, present = self._node.turns.now_us(), self._node.time.last
        replicas = list(self._node.replicas.values())
        # The marks of a replica go with it: one that replaces it, after a copy, has another store.
        self._marks = {replica: self._marks.get(replica) or self._new_marks() for replica in replicas}
        for replica, marks in self._marks.items():
            if replica.state in WORKING:
                self._maintain(replica, marks, now_us, present)

    def _new_marks(self) -> _ReplicaMarks:
        return _ReplicaMarks(EntryTimes(self._retention // FLOOR_STEPS))

    def _maintain(self, replica: Replica, marks: _ReplicaMarks, now_us: int, present: int) -> None:
        """Collect, compact and flush one replica where its time has come. ``present``: hybrid timestamp of now."""
        flusher = replica.flusher
        flusher.collect()
        applied = replica.applier.timestamp
        marks.times.note(applied)
        floor = marks.times.floor(min(present - self._retention, applied))
        if floor - marks.floor > self._retention // FLOOR_STEPS and flusher.compact(floor):
            marks.floor = floor
        if not flusher.unflushed_bytes:
            marks.dirty_since_us = None
        elif marks.dirty_since_us is None:
            marks.dirty_since_us = now_us
        elif now_us - marks.dirty_since_us >= self._settings.flush_interval_ms * 1000 and flusher.flush():
            marks.dirty_since_us = None
