"""Which disk operations a process is killed at."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from stelae.sim.coverage import Coverage
from stelae.sim.draw import stream
from stelae.sim.fault_plan import Fault, FaultKind
from stelae.sim.faults import FaultDriver
from stelae.sim.network import Network
from stelae.sim.profile import draw_profile
from stelae.sim.scheduler import Scheduler


class Victim:
    """A node that records its kills."""

    def __init__(self) -> None:
        self.up = True
        self.kills: list[tuple[int, str]] = []

    def kill_after(self, operations: int, counted: str) -> None:
        self.kills.append((operations, counted))

    def start(self) -> None:
        """It has started by itself."""


@pytest.mark.parametrize(
    ("amount", "kill"),
    [(6, (6, "")), (1, (0, "sync_directory")), (5, (0, "sync_directory")), (11, (1, "sync_directory"))],
)
def test_half_of_the_kills_come_at_any_operation_and_half_before_a_directory_is_synced(
    amount: int, kill: tuple[int, str]
) -> None:
    scheduler, victim = Scheduler(), Victim()
    network = Network(scheduler, stream(1, "network"), draw_profile(1), Coverage())
    world = cast(Any, SimpleNamespace(leader=lambda: 0, witnesses=lambda: ()))
    driver = FaultDriver(scheduler, network, cast(Any, [victim]), world, Coverage())
    driver.schedule([Fault(number=0, kind=FaultKind.KILL_IN_COMMIT, at_us=5, victim=0, duration_us=10, amount=amount)])
    while scheduler.run_one():
        pass
    assert victim.kills == [kill]
