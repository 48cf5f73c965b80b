"""Draws the seeds to try first, after changes that moved the runs: ``python -m tests.sim.draw_first_seeds [PART...]``.

Parts are the fields of the file; without any, all are drawn. A planted bug keeps its seed while the seed shows it,
unless ``--anew`` is given. Otherwise it gets the cheapest of the next ``WIDTH`` seeds that show it. A greedy choice by
cost finds the seeds for the floors."""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import msgspec

from stelae.cli.seeds import over_processes
from stelae.sim.invariants.base import Violation
from stelae.sim.masters.run import run_seed as run_masters_seed
from stelae.sim.profile import ProfileKind
from stelae.sim.run import run_seed
from tests.sim import floors, test_copy_floors, test_member_floors
from tests.sim.first_seeds import PATH, FirstSeeds, first_seeds, seeds_of, seeds_of_masters
from tests.sim.masters import floors as masters_floors
from tests.sim.masters.mutants import MUTANTS as OF_MASTERS
from tests.sim.planted_bug import Mutant
from tests.sim.planting import planted
from tests.sim.test_mutants import ALL

WIDTH = 4
"""Number of seeds that show a bug from which the cheapest is chosen."""

CHEAP_S = 0.5
"""A seed that shows its bug in less CPU time, in seconds, is chosen at once."""

Shown = tuple[int, float, frozenset[str]]
"""A seed, its cost in seconds of CPU time, and the floors that it meets."""


def _cheapest(
    mutant: Mutant, seeds: Iterable[int], kept: int | None, run: Callable[[int], Violation | None]
) -> int | None:
    """Return the seed to try first; ``None`` if no seed shows the bug. ``kept`` is chosen if it does."""
    logging.disable(logging.CRITICAL)
    found = []
    with planted(mutant):
        for seed in seeds:
            started = time.process_time()
            violation = run(seed)
            cost_s = time.process_time() - started
            if violation is not None and violation.invariant == mutant.invariant:
                found.append((cost_s, seed))
                if len(found) == WIDTH or cost_s < CHEAP_S or seed == kept:
                    break
    return min(found)[1] if found else None


def seed_of_mutant(number: int, *, anew: bool) -> int | None:
    """Return the seed to try first for the planted bug of tablets with that number."""
    mutant = ALL[number]
    kept = None if anew else first_seeds().mutants.get(mutant.name)
    return _cheapest(mutant, seeds_of(mutant), kept, lambda seed: run_seed(seed, kind=mutant.kind).violation)


def seed_of_masters_mutant(number: int, *, anew: bool) -> int | None:
    """Return the seed to try first for the planted bug of the masters with that number."""
    mutant = OF_MASTERS[number]
    kept = None if anew else first_seeds().masters_mutants.get(mutant.name)
    return _cheapest(mutant, seeds_of_masters(mutant), kept, lambda seed: run_masters_seed(seed).violation)


def what_a_seed_shows(seed: int, *, kind: ProfileKind, wanted: frozenset[str]) -> Shown:
    """Run a seed of the tablets' simulator. Return which of the wanted floors it meets."""
    logging.disable(logging.CRITICAL)
    started = time.process_time()
    _, names = floors.run_counted(seed, kind)
    return seed, time.process_time() - started, names & wanted


def what_a_seed_of_masters_shows(seed: int) -> Shown:
    """Run a seed of the masters' simulator. Return which floors it meets."""
    logging.disable(logging.CRITICAL)
    started = time.process_time()
    names = masters_floors.names_of(run_masters_seed(seed))
    return seed, time.process_time() - started, names & masters_floors.FLOORS


def chosen(runs: Sequence[Shown]) -> tuple[int, ...]:
    """Choose seeds that meet every floor that any run meets, each time the one with most new floors for its cost."""
    missing, found = frozenset[str]().union(*(names for _, _, names in runs)), []
    while missing:
        seed, _, names = max(runs, key=lambda run: len(run[2] & missing) / run[1])
        found.append(seed)
        missing -= names
    return tuple(found)


def floors_of(kind: ProfileKind, wanted: Iterable[str], seeds: range) -> tuple[int, ...]:
    """Return seeds of a profile that together meet the wanted floors."""
    work = partial(what_a_seed_shows, kind=kind, wanted=frozenset(wanted))
    return chosen(list(over_processes(work, seeds, 0)))


def mutants_of(mutants: Sequence[Mutant], work: Callable[[int], int | None], written: dict[str, int]) -> dict[str, int]:
    """Return a seed for each planted bug that any seed shows, and say which bugs moved or are shown by none."""
    seeds = list(over_processes(work, range(len(mutants)), 0))
    found = {mutant.name: seed for mutant, seed in zip(mutants, seeds, strict=True) if seed is not None}
    for mutant in mutants:
        if found.get(mutant.name) != written.get(mutant.name):
            print(f"{mutant.name}: {written.get(mutant.name)} -> {found.get(mutant.name, 'no seed shows it')}")
    return dict(sorted(found.items()))


def parts(*, anew: bool) -> dict[str, Callable[[], object]]:
    """Return what draws each part of the file."""
    of_members, of_copies = test_member_floors, test_copy_floors
    written = first_seeds()
    return {
        "floors": lambda: floors_of(ProfileKind.STANDARD, floors.FLOORS, floors.SEEDS),
        "members_floors": lambda: floors_of(ProfileKind.MEMBERSHIP, of_members.OFTEN, of_members.SEEDS),
        "copies_floors": lambda: floors_of(ProfileKind.COPIES, of_copies.OFTEN, of_copies.SEEDS),
        "masters_floors": lambda: chosen(list(over_processes(what_a_seed_of_masters_shows, masters_floors.SEEDS, 0))),
        "mutants": lambda: mutants_of(ALL, partial(seed_of_mutant, anew=anew), written.mutants),
        "masters_mutants": lambda: mutants_of(
            OF_MASTERS, partial(seed_of_masters_mutant, anew=anew), written.masters_mutants
        ),
    }


def main() -> None:
    """Draw the parts that are named, or all, and write the file after each."""
    draw = argparse.ArgumentParser(prog="python -m tests.sim.draw_first_seeds", description=__doc__)
    names = FirstSeeds.__struct_fields__
    draw.add_argument("parts", nargs="*", metavar="PART", help=", ".join(names))
    draw.add_argument("--anew", action="store_true", help="look for cheaper seeds of planted bugs, too")
    asked = draw.parse_args()
    unknown = sorted(set(asked.parts) - set(names))
    if unknown:
        draw.error(f"there is no part {', '.join(unknown)}; the parts are {', '.join(names)}")
    for name in asked.parts or names:
        drawn = parts(anew=asked.anew)[name]()
        found = msgspec.structs.replace(msgspec.json.decode(PATH.read_bytes(), type=FirstSeeds), **{name: drawn})
        PATH.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
        print(f"{name}: {len(drawn)} drawn", flush=True)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
