"""Keeps what all replicas of a node hold in memory within ``[maintenance] memory_bytes``.

Above it the fullest replicas are flushed, one after the other as soon as each can be begun. Above one and a half of it
writers are pushed back, of all replicas, until enough is flushed: rows that come faster than they can be written out
have to wait where they are, or the node would be ended by the operating system. A single replica has a bound of its own
besides (``replica_memory_bytes_max``), which the kernel holds."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from stelae.host.node import Node
from stelae.host.ports import Timer
from stelae.host.replica import Replica, ReplicaState

log = logging.getLogger(__name__)

CALM_US = 1_000_000
"""How often memory is looked at while less than half of it is used,"""

SHORT_US = 100_000
"""and how often above that."""

WORTH = 8
"""A replica that holds less than this part of what the fullest holds is not flushed for the sake of the others: small
files, and a disk that is busy with them, help nobody."""

WORKING = (ReplicaState.CONFIGURING, ReplicaState.RUNNING)


class MemoryLimit:
    """Watches the memory of one node. A ``Service`` (``stelae.spi.hooks``)."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._limit = node.config.maintenance.memory_bytes
        self._timer: Timer | None = None
        self._full = False

    def start(self) -> None:
        """Begin to look."""
        self._wait(CALM_US)

    def stop(self) -> None:
        """Look no more."""
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
        """Do what is needed; return how long it may be until the next look."""
        working = [replica for replica in self._node.replicas.values() if replica.state in WORKING]
        held = [replica.applier.store.memory_bytes() for replica in working]
        total = sum(held)
        self._push_back(working, total)
        if total > self._limit:
            large = [found for found in zip(held, working, strict=True) if found[0] * WORTH >= max(held)]
            self._flush([replica for _, replica in sorted(large, key=_amount)])
        return SHORT_US if 2 * total > self._limit else CALM_US

    def _push_back(self, replicas: Sequence[Replica], total: int) -> None:
        full = 2 * total > 3 * self._limit
        if full != self._full:
            log.warning("memory is %s bytes=%d limit=%d", "full: writes wait" if full else "enough", total, self._limit)
        self._full = full
        for replica in replicas:
            replica.flusher.node_full = full

    def _flush(self, fullest_last: list[Replica]) -> None:
        """Begin the flush of the fullest replica that can begin one: the others are being flushed."""
        while fullest_last and not fullest_last[-1].flusher.flush():
            fullest_last.pop()
        if fullest_last:
            log.info("memory is short, flushing tablet=%s", fullest_last[-1].tablet_id)


def _amount(found: tuple[int, Replica]) -> int:
    return found[0]
