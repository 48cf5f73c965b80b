"""For faults that strike a leader which others replace while it is cut off: it has entries that it must remove."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from stelae.sim.network import Network, NetworkLink
from stelae.sim.scheduler import Scheduler

CUT_OFF_US: Final = (400_000, 2_500_000)
"""For how long the leader is cut off: the others elect another one, or do not yet."""

STEP_US: Final = (5_000, 400_000)
"""Time between two changes of its disk."""

FULL_TIMES: Final = 8
"""How often its disk is full, with space in between."""

EARLY: Final = 1
"""How many changes of its disk come before it is reached again: appends of its own may be failing then."""


class NodeWithDisk(Protocol):
    """The node whose disk is full."""

    def refuse_log_writes(self, *, refused: bool) -> None:
        """Let all writes of logs find no space, or find it again."""
        ...


class DeposedLeader:
    """Brings about a deposed leader whose disk is full on and off around the time at which it is reached again.

    Its removal of entries fails then, and perhaps the next attempt, too, although the disk had space in between.

    Args:
        is_over: returns true once all faults are healed.
    """

    def __init__(self, scheduler: Scheduler, network: Network, is_over: Callable[[], bool]) -> None:
        self._scheduler = scheduler
        self._network = network
        self._is_over = is_over

    def begin(self, node: NodeWithDisk, links: Sequence[NetworkLink], amount: int) -> None:
        """Cut a leader off. ``amount``, from 0 to 10^6, decides for how long, and how fast its disk changes then."""
        self._network.cut(links)
        step_us = _between(STEP_US, amount % 1_000, 1_000)

        def mend() -> None:
            if not self._is_over():
                self._network.mend(links)

        cut_off_us = _between(CUT_OFF_US, amount, 1_000_000)
        first_us = cut_off_us - EARLY * step_us
        self._scheduler.after(first_us, "fault.full", lambda: self._change_disk(node, 2 * FULL_TIMES - 1, step_us))
        self._scheduler.after(cut_off_us, "fault.deposed", mend)

    def _change_disk(self, node: NodeWithDisk, left: int, step_us: int) -> None:
        if self._is_over():
            return
        node.refuse_log_writes(refused=left % 2 == 1)
        if left:
            self._scheduler.after(step_us, "fault.full", lambda: self._change_disk(node, left - 1, step_us))


def _between(limits: tuple[int, int], share: int, whole: int) -> int:
    low, high = limits
    return low + (high - low) * share // whole
