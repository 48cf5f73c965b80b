"""The fetching side: the slots and the limit that all copies to a node share."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock

from stelae.spi.copy import CopyControl, CopyNetwork, CopySink, CopyTarget
from stelae.spi.copy_plan import CopyOutcome, CopyPlan
from stelae.spi.errors import Overloaded
from stelae.spi.ids import TabletId
from stelae.spi.services import Clock, Metrics
from stelae_copy_streaming.config import StreamingConfig
from stelae_copy_streaming.copy_run import CopyRun
from stelae_copy_streaming.shared_limit import SharedLimit


class StreamingTarget(CopyTarget):
    """Fetches the copies to one node. All of them share the limit of bytes per second."""

    def __init__(self, config: StreamingConfig, clock: Clock, metrics: Metrics) -> None:
        self._config = config
        self._clock = clock
        self._metrics = metrics
        self._lock = Lock()
        self._slots: set[TabletId] = set()
        self._limit = SharedLimit(config.fetch_bytes_per_s_max, config.busy_bytes_per_s_max, clock)

    def reserve(self, tablet_id: TabletId) -> None:
        with self._lock:
            if tablet_id in self._slots:
                raise Overloaded(f"tablet {tablet_id} is being copied already")
            if len(self._slots) >= self._config.target_slots:
                used = self._config.target_slots
                raise Overloaded(f"all {used} slots for copies to this node are in use; ask again later")
            self._slots.add(tablet_id)

    def release(self, tablet_id: TabletId) -> None:
        with self._lock:
            self._slots.discard(tablet_id)

    def run(
        self, plan: CopyPlan, *, have: Mapping[str, str], sink: CopySink, network: CopyNetwork, control: CopyControl
    ) -> CopyOutcome:
        run = CopyRun(self._config, self._clock, plan, sink, network, control, self._limit.take)
        outcome = run.outcome(have)
        self._metrics.count("copy_bytes_fetched", run.bytes_fetched)
        return outcome

    def bytes_per_s_max(self) -> int | None:
        return self._limit.configured

    def set_bytes_per_s_max(self, bytes_per_s: int) -> None:
        self._limit.configure(bytes_per_s)

    def beside_clients(self, busy: bool) -> None:
        self._limit.set_busy(busy)
