"""What those have in common that act on the nodes of a run as an operator does."""

from __future__ import annotations

from dataclasses import dataclass

from stelae.sim.coverage import Coverage
from stelae.sim.network import Network
from stelae.sim.node import SimNode
from stelae.sim.profile import Profile
from stelae.sim.scheduler import Scheduler
from stelae.sim.world import World


@dataclass(frozen=True, slots=True)
class RunParts:
    """The parts of one run."""

    scheduler: Scheduler
    network: Network
    nodes: list[SimNode]
    world: World
    profile: Profile
    coverage: Coverage
