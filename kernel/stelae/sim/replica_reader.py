"""A client that scans snapshots on any replica, with all kinds of requested times.

It asks for the time of an earlier scan, a time near the present, a time just above an acknowledged write, any time at
or above its writer's last timestamp, and a linearizable scan. ``stelae.server.tserver.scan_time`` decides which replica
may serve each of them and when. The invariants check the rows."""

from __future__ import annotations

import random
from typing import Final

from stelae.host.hybrid_clock import timestamp
from stelae.protocol.tablet_messages import ScanRequest
from stelae.sim.client_gateway import ClientGateway
from stelae.sim.clock import EPOCH_US
from stelae.sim.draw import below, between, chance, pick, skewed
from stelae.sim.node_start import TABLET
from stelae.sim.workload import WorkloadContext
from stelae.sim.writer_client import WriterClient
from stelae.spi.errors import NotLeader, StelaeError
from stelae.spi.ids import NodeId
from stelae.spi.scan import Order, ScanSpec

FIRST_NUMBER: Final = 70
"""Position of the first reader on the network, above the writers."""

PAUSE_US: Final = (20_000, 900_000)
TIMES_MAX: Final = 8
"""Number of times of earlier scans that are kept, to be scanned again."""

AHEAD_US: Final = 20_000
"""How far ahead of true time the requested time of most scans may be. The clocks of nodes have larger errors."""

FAR_AHEAD: Final = 0.3
"""Share of the scans near the present that may ask for a time up to ``FAR_AHEAD_US`` ahead of true time."""

FAR_AHEAD_US: Final = 3_000_000
"""A node refuses scans so far ahead, unless it gets them late: a node that was paused may serve them afterwards."""

PROBED_AGAIN_US: Final = (100_000, 500_000)
BEHIND_US: Final = 200_000


class ReplicaReader:
    """One reader.

    Args:
        writer: client whose acknowledged writes the reader's scans with ``at_least`` must see.
    """

    def __init__(
        self, context: WorkloadContext, gateway: ClientGateway, writer: WriterClient, number: int, rng: random.Random
    ) -> None:
        self._context = context
        self._gateway = gateway
        self._writer = writer
        self._position = FIRST_NUMBER + number
        self._name = f"reader-{number}"
        self._rng = rng
        self._target = below(rng, context.profile.nodes)
        self._times: list[int] = []
        self.stopping = False

    @property
    def idle(self) -> bool:
        """Always true: reads have no effect and may be abandoned."""
        return True

    def start(self) -> None:
        """Begin to scan at random times until ``stopping``."""
        self._context.scheduler.after(skewed(self._rng, *PAUSE_US), f"{self._name}.act", self._act)

    def leader_serves(self, position: int) -> None:
        """Scan at a time near the present on a new leader, and perhaps on the other nodes."""
        if not self.stopping:
            at = self._about_now()
            for node in range(self._context.profile.nodes):
                if node == position or chance(self._rng, 0.5):
                    self._scan(node, at=at)

    def probe(self, node: int, at: int) -> None:
        """Scan as of a time on a node that believes that it leads: now, and again when its clock may have passed it."""
        self._scan(node, at=at)
        label = f"{self._name}.probe"
        self._context.scheduler.after(between(self._rng, *PROBED_AGAIN_US), label, lambda: self._scan(node, at=at))

    def _act(self) -> None:
        if self.stopping:
            return
        if chance(self._rng, 0.4):
            self._target = below(self._rng, self._context.profile.nodes)
        share = self._rng.random()
        if share < 0.2 and self._times:
            self._scan(self._target, at=pick(self._rng, self._times))
        elif share < 0.55:
            self._scan(self._target, at=self._about_now())
        elif share < 0.8:
            self._scan(self._target, at_least=self._writer.timestamp)
        elif share < 0.9:
            self._scan(self._target, at=self._context.history.timestamp_max + 1)
        else:
            self._scan(self._target)
        self.start()

    def _scan(self, node: int, *, at: int | None = None, at_least: int | None = None) -> None:
        spec = ScanSpec(order=pick(self._rng, (Order.KEY, Order.KEY_DESCENDING)))
        request = ScanRequest(TABLET, spec, at, at_least=at_least)
        # A linearizable scan sees every write that was acknowledged before it began.
        must_see = at_least or 0 if at is not None or at_least is not None else self._context.history.timestamp_max

        def answered(result: int | StelaeError) -> None:
            if isinstance(result, int):
                self._times = [*self._times, result][-TIMES_MAX:]
            elif isinstance(result, NotLeader) and result.leader is not None:
                self._target = self._gateway.node_ids.index(NodeId(result.leader))

        self._gateway.scan(self._position, node, request, must_see, answered)

    def _about_now(self) -> int:
        now_us = EPOCH_US + self._context.scheduler.now_us
        ahead_us = FAR_AHEAD_US if chance(self._rng, FAR_AHEAD) else AHEAD_US
        return timestamp(now_us + between(self._rng, -BEHIND_US, ahead_us))
