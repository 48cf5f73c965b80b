"""Injects the faults of a plan into a target, one after the other, until it is asked to stop."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator

from stelae.spi.errors import StelaeError
from stelae_chaos.fault_kinds import KINDS
from stelae_chaos.fault_target import FaultTarget
from stelae_chaos.plan import PlannedFault
from stelae_chaos.spans import FaultSpan

RECOVER_S_MAX = 20.0
"""The longest wait for leaders. A machine that is busy takes seconds to start a process."""

LOOK_S = 0.2


class NodeDied(StelaeError, code="NODE_DIED"):
    """A node has ended although no fault has killed it."""


class Nemesis:
    """Breaks a target.

    Args:
        target: what to break.
        plan: the faults, without end.
        now_us: returns the microseconds since the start of the run.
        on_fault: called with each fault when it has begun.
        every_s: the time from the beginning of a fault to that of the next one, in seconds, unless it and the recovery
            take longer; ``None``: as the plan says.

    Attributes:
        spans: the faults so far.
    """

    def __init__(
        self,
        target: FaultTarget,
        plan: Iterator[PlannedFault],
        now_us: Callable[[], int],
        on_fault: Callable[[FaultSpan], None] = lambda span: None,
        *,
        every_s: float | None = None,
    ) -> None:
        self._every_s = every_s
        self._target = target
        self._plan = plan
        self._now_us = now_us
        self._on_fault = on_fault
        self._stopping = asyncio.Event()
        self.spans: list[FaultSpan] = []

    @property
    def done(self) -> Counter[str]:
        """How many faults of each kind were injected."""
        return Counter(span.kind for span in self.spans)

    def stop(self) -> None:
        """Let :meth:`run` heal everything and return."""
        self._stopping.set()

    async def run(self) -> None:
        """Inject faults until :meth:`stop`. However it ends, everything is healed.

        Raises:
            NodeDied: a node has ended by itself.
            StelaeError: a node cannot be killed.
        """
        try:
            for fault in self._plan:
                begun_us = self._now_us()
                await self._inject(fault)
                if fault.recovers:
                    await self._recover()
                await self._pause(self._calm_s(fault, begun_us))
                self._check()
                if self._stopping.is_set():
                    return
        finally:
            self._target.heal()

    def _calm_s(self, fault: PlannedFault, begun_us: int) -> float:
        """Return how long nothing is broken now, after a fault that began at a time."""
        if self._every_s is None:
            return fault.calm_s
        return max(0.0, self._every_s - (self._now_us() - begun_us) / 1e6)

    async def _inject(self, fault: PlannedFault) -> None:
        begun_us = self._now_us()
        detail = await KINDS[fault.kind].inflict(self._target, fault.rng)
        span = FaultSpan(kind=fault.kind, detail=detail, begun_us=begun_us)
        self.spans.append(span)
        self._on_fault(span)
        try:
            await self._pause(fault.fault_s)
        finally:
            self._target.heal()
            span.ended_us = self._now_us()

    async def _recover(self) -> None:
        """Wait until every tablet has a leader, but not longer than ``RECOVER_S_MAX``."""
        until_us = self._now_us() + int(RECOVER_S_MAX * 1e6)
        while not self._stopping.is_set() and self._now_us() < until_us:
            self._check()
            if len(await self._target.leaders()) == self._target.led_count:
                return
            await self._pause(LOOK_S)

    async def _pause(self, seconds: float) -> None:
        """Wait, or return at once if the run stops."""
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return

    def _check(self) -> None:
        for node in self._target.exited():
            tail = node.log_tail()
            raise NodeDied(f"{node.name} has ended by itself; its log {node.log_path} ends with:\n{tail}")
