"""While a leader answers reads without asking a majority, no later leader exists."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from stelae.sim.invariants.base import Invariant
from stelae.sim.world import ObservedNode, World
from stelae.spi.consensus import HardState, LogView, Ready, Role, Status


class LeaseExclusive(Invariant):
    """A read that is answered in the turn that brought it was answered by a lease.

    If a later leader has not committed anything yet, the read is not wrong. A moment later it would be."""

    name: ClassVar[str] = "lease_exclusive"
    source: ClassVar[str] = "Raft thesis 6.4.1; durability.md rule 13"

    def __init__(self, world: World, report: Callable[[str, str], None]) -> None:
        super().__init__(world, report)
        self._last_led_term = 0
        self._asked_us: dict[tuple[int, int], int] = {}

    def on_restart(self, node: ObservedNode, hard_state: HardState, log: LogView, commit: int) -> None:
        """Drop the requests of the previous process. Its tokens may be used again."""
        self._asked_us = {read: at for read, at in self._asked_us.items() if read[0] != node.position}

    def on_status(self, node: ObservedNode, before: Status | None, status: Status) -> None:
        """Record the latest term that has a leader."""
        if status.role is Role.LEADER:
            self._last_led_term = max(self._last_led_term, status.term)

    def on_read(self, node: ObservedNode, token: int) -> None:
        """Record when a read is requested."""
        self._asked_us[node.position, token] = self.world.now_us()

    def on_ready(self, node: ObservedNode, ready: Ready) -> None:
        """Check the reads that are answered at once."""
        term, now_us = (ready.hard_state or node.hard_state).term, self.world.now_us()
        for read in ready.reads_ready:
            asked_us = self._asked_us.pop((node.position, read.token), -1)
            if asked_us == now_us and self._last_led_term > term:
                later = self._last_led_term
                self.fail(f"node {node.position} reads by a lease of term {term}, but term {later} has a leader")
        for rejection in ready.rejections:
            self._asked_us.pop((node.position, rejection.token), None)
