"""Limits the memory that the stores of all replicas of a node use to ``[maintenance] memory_bytes``.

Above the limit, the node flushes the fullest replicas one after the other. Above one and a half times the limit, all
replicas refuse writes with an error that clients retry, until enough is flushed: if rows arrived faster than they can
be flushed, the operating system would kill the process. A single replica has its own limit
(``replica_memory_bytes_max``), which the host enforces."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from stelae.host.node import Node
from stelae.host.ports import Timer
from stelae.host.replica import Replica
from stelae.host.replica_state import ReplicaState

log = logging.getLogger(__name__)

CALM_US = 1_000_000
"""How often memory is measured while at most half of the limit is used."""

SHORT_US = 100_000
"""How often memory is measured while more than half of the limit is used."""

FLUSH_RATIO_MAX = 8
"""A replica is flushed for the node's limit only if the fullest replica uses at most this many times its memory.
Flushing small replicas would make small files and occupy the disk without freeing much memory."""

WORKING = (ReplicaState.CONFIGURING, ReplicaState.RUNNING)
"""The states in which a replica can be flushed."""


class MemoryLimit:
    """Enforces the memory limit of one node. A ``Service`` (``stelae.spi.hooks``)."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._limit = node.config.maintenance.memory_bytes
        self._timer: Timer | None = None
        self._full = False

    def start(self) -> None:
        """Start the timer."""
        self._wait(CALM_US)

    def stop(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self, delay_us: int) -> None:
        turns = self._node.turns
        self._timer = turns.call_at(turns.now_us() + delay_us, self._look)

    def _look(self) -> None:
        delay_us = SHORT_US
        try:
            delay_us = self._relieve()
        finally:
            self._wait(delay_us)

    def _relieve(self) -> int:
        """Refuse writes and flush as the limit demands; return the microseconds until the next measurement."""
        working = [replica for replica in self._node.replicas.values() if replica.state in WORKING]
        used = [replica.applier.store.memory_bytes() for replica in working]
        total = sum(used)
        self._push_back(working, total)
        if total > self._limit:
            large = [pair for pair in zip(used, working, strict=True) if pair[0] * FLUSH_RATIO_MAX >= max(used)]
            self._flush([replica for _, replica in sorted(large, key=_memory_bytes)])
        return SHORT_US if 2 * total > self._limit else CALM_US

    def _push_back(self, replicas: Sequence[Replica], total: int) -> None:
        """Make the replicas refuse writes while the node's memory is full."""
        full = 2 * total > 3 * self._limit
        if full != self._full:
            log.warning("memory is %s bytes=%d limit=%d", "full: writes wait" if full else "enough", total, self._limit)
        self._full = full
        for replica in replicas:
            replica.flusher.node_full = full

    def _flush(self, fullest_last: list[Replica]) -> None:
        """Begin the flush of the fullest replica that is not being flushed yet."""
        while fullest_last and not fullest_last[-1].flusher.flush():
            fullest_last.pop()
        if fullest_last:
            log.info("memory is short, flushing tablet=%s", fullest_last[-1].tablet_id)


def _memory_bytes(pair: tuple[int, Replica]) -> int:
    return pair[0]
