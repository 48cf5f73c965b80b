"""A client that looks up keys, and scans few rows at a time, as of past and present times on any replica.

The lookups of the latest rows are those of ``ModelClient`` and ``Prober``, whose answers must be linearizable. This
client names a time, so any replica may answer, and every answer for that time must be the same."""

from __future__ import annotations

import random
from itertools import cycle, islice
from typing import Final

from stelae.host.hybrid_clock import timestamp
from stelae.sim.client_gateway import ClientGateway
from stelae.sim.clock import EPOCH_US
from stelae.sim.draw import below, between, chance, pick, skewed
from stelae.sim.workload import WorkloadContext
from stelae.spi.scan import Order, ScanSpec

NUMBER: Final = 90
"""Position of the reader on the network, above the readers of snapshots."""

PAUSE_US: Final = (20_000, 700_000)

TIMES_MAX: Final = 8
"""Number of times of earlier lookups that are kept, to be asked for again."""

AGAIN: Final = 0.4
"""Share of the lookups that ask for an earlier time again."""

JUST_WRITTEN: Final = 0.4
"""Share of the other lookups that ask for the time of the latest acknowledged write."""

SCANS: Final = 0.4
"""Share of the lookups with which it also scans all rows as of that time, a few with each scan."""

MANY_EACH: Final = 3
"""One lookup in this number asks for many keys, most of them several times."""

MANY_KEYS: Final = 200
"""The number of keys of such a lookup: the columnar store returns those after the first step as a batch."""

AROUND_US: Final = (-400_000, 20_000)
"""How far from true time the time of the others may be."""


class LookupReader:
    """One client that looks up keys at times."""

    def __init__(
        self, context: WorkloadContext, gateway: ClientGateway, rng: random.Random, scan_rng: random.Random
    ) -> None:
        self._context = context
        self._gateway = gateway
        self._rng = rng
        self._scan_rng = scan_rng
        self._times: list[int] = []
        self._count = 0
        self.stopping = False

    @property
    def idle(self) -> bool:
        """Always true: lookups have no effect and may be abandoned."""
        return True

    def start(self) -> None:
        """Begin to look keys up at random times until ``stopping``."""
        self._context.scheduler.after(skewed(self._rng, *PAUSE_US), "lookups.act", self._act)

    def leader_serves(self, position: int) -> None:
        """Look up keys on a new leader as of the latest acknowledged write."""
        if not self.stopping and self._context.history.timestamp_max:
            self._read(position, self._context.history.timestamp_max)

    def _act(self) -> None:
        if self.stopping:
            return
        node = below(self._rng, self._context.profile.nodes)
        if self._times and chance(self._rng, AGAIN):
            self._read(node, pick(self._rng, self._times))
        elif self._context.history.timestamp_max and chance(self._rng, JUST_WRITTEN):
            self._read(node, self._context.history.timestamp_max)
        else:
            now_us = EPOCH_US + self._context.scheduler.now_us
            self._read(node, timestamp(max(0, now_us + between(self._rng, *AROUND_US))))
        self.start()

    def _read(self, node: int, at: int) -> None:
        keys_max = self._context.profile.keys
        self._times = [*self._times, at][-TIMES_MAX:]
        if chance(self._scan_rng, SCANS):
            order = pick(self._scan_rng, (Order.KEY, Order.KEY_DESCENDING))
            limit = between(self._scan_rng, 1, keys_max + 1)
            self._gateway.scan_shortly(NUMBER, node, ScanSpec(order=order, limit=limit), at)
        keys = [below(self._rng, keys_max + 1) for _ in range(between(self._rng, 1, 2 * keys_max))]
        self._count += 1
        if self._count % MANY_EACH == 0:  # Not drawn, so that all else in a run stays as it is.
            keys = [*islice(cycle(keys), MANY_KEYS)]
        self._gateway.look_up_at(NUMBER, node, keys, at)
