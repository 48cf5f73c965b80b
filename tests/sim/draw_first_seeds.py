"""Draws the seeds to try first, after changes that moved the runs: ``python -m tests.sim.draw_first_seeds``.

A planted bug keeps its seed while the seed shows it. Otherwise it gets the cheapest of the next ``WIDTH`` seeds that
show it. A greedy choice by cost finds the seeds for the floors."""

from __future__ import annotations

import logging
import time

import msgspec

from stelae.cli.seeds import over_processes
from stelae.sim.masters.run import run_seed as run_masters_seed
from stelae.sim.run import run_seed
from tests.sim.first_seeds import PATH, FirstSeeds, first_seeds, seeds_of
from tests.sim.floors import FLOORS, SEEDS, run_counted
from tests.sim.masters import floors as masters_floors
from tests.sim.planting import planted
from tests.sim.test_mutants import ALL

WIDTH = 4
"""Number of seeds that show a bug from which the cheapest is chosen."""

CHEAP_S = 0.5
"""A seed that shows its bug in less CPU time, in seconds, is chosen at once."""


def seed_of_mutant(number: int) -> int | None:
    """Return the seed to try first for the planted bug with that number; ``None`` if no seed shows it."""
    logging.disable(logging.CRITICAL)
    mutant, found = ALL[number], []
    with planted(mutant):
        for seed in seeds_of(mutant):
            started = time.process_time()
            violation = run_seed(seed, kind=mutant.kind).violation
            cost_s = time.process_time() - started
            if violation is not None and violation.invariant == mutant.invariant:
                found.append((cost_s, seed))
                if len(found) == WIDTH or cost_s < CHEAP_S or seed == first_seeds().mutants.get(mutant.name):
                    break
    return min(found)[1] if found else None


def what_a_seed_shows(seed: int) -> tuple[int, float, frozenset[str]]:
    """Run a seed. Return the seed, its cost in seconds of CPU time, and the floors that it meets."""
    logging.disable(logging.CRITICAL)
    started = time.process_time()
    _, names = run_counted(seed)
    return seed, time.process_time() - started, names & FLOORS


def what_a_seed_of_masters_shows(seed: int) -> tuple[int, float, frozenset[str]]:
    """Run a seed of the masters' simulator. Return the same as :func:`what_a_seed_shows`."""
    logging.disable(logging.CRITICAL)
    started = time.process_time()
    result = run_masters_seed(seed)
    return seed, time.process_time() - started, masters_floors.names_of(result) & masters_floors.FLOORS


def chosen(runs: list[tuple[int, float, frozenset[str]]]) -> tuple[int, ...]:
    """Choose seeds that meet every floor that any run meets, each time the one with most new floors for its cost."""
    missing, found = frozenset[str]().union(*(names for _, _, names in runs)), []
    while missing:
        seed, _, names = max(runs, key=lambda run: len(run[2] & missing) / run[1])
        found.append(seed)
        missing -= names
    return tuple(found)


def main() -> None:
    """Draw all seeds and write the file."""
    floors = chosen(list(over_processes(what_a_seed_shows, SEEDS, 0)))
    of_masters = chosen(list(over_processes(what_a_seed_of_masters_shows, masters_floors.SEEDS, 0)))
    seeds = over_processes(seed_of_mutant, range(len(ALL)), 0)
    mutants = {mutant.name: seed for mutant, seed in zip(ALL, seeds, strict=True) if seed is not None}
    found = FirstSeeds(floors, of_masters, dict(sorted(mutants.items())))
    PATH.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
    print(f"{len(floors)} seeds meet the floors of the tablets' simulator, {len(of_masters)} those of the masters'")
    print(f"{len(ALL) - len(mutants)} planted bugs are shown by no seed")


if __name__ == "__main__":
    main()
