"""The seeds to try first: one seed for each planted bug, and the seeds that together meet every floor.

They only determine the order of the search. If a seed does not show its bug any more, the test takes longer but does
not fail: the search continues with the other seeds. `make first-seeds` draws them again after changes that moved the
runs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

import msgspec

from tests.sim.planted_bug import Mutant

PATH = Path(__file__).with_suffix(".json")

MASTERS_SEEDS_MAX = 12
"""Number of seeds that are tried for a planted bug of the masters."""


class FirstSeeds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of the file.

    Attributes:
        floors: seeds that together meet all floors of ``tests.sim.floors``.
        members_floors: the same for the floors of runs in which members change.
        copies_floors: the same for the floors of runs with copies.
        masters_floors: the same for the floors of the masters' simulator.
        mutants: a seed whose run shows a planted bug, by the name of the bug.
        masters_mutants: the same for the planted bugs of the masters.
    """

    floors: tuple[int, ...] = ()
    members_floors: tuple[int, ...] = ()
    copies_floors: tuple[int, ...] = ()
    masters_floors: tuple[int, ...] = ()
    mutants: dict[str, int] = {}
    masters_mutants: dict[str, int] = {}


@cache
def first_seeds() -> FirstSeeds:
    """Read the file."""
    return msgspec.json.decode(PATH.read_bytes(), type=FirstSeeds)


def in_order(first: Iterable[int], seeds: range) -> list[int]:
    """Return all seeds, those of ``first`` before the others; a seed that is in ``first`` alone counts, too."""
    before = list(first)
    return [*before, *(seed for seed in seeds if seed not in before)]


def seeds_of(mutant: Mutant) -> list[int]:
    """Return the seeds to try for a run that shows a planted bug of tablets."""
    first = first_seeds().mutants.get(mutant.name)
    return in_order([] if first is None else [first], range(mutant.seed, mutant.seed + mutant.seeds_max))


def seeds_of_masters(mutant: Mutant) -> list[int]:
    """Return the seeds to try for a run that shows a planted bug of the masters."""
    first = first_seeds().masters_mutants.get(mutant.name)
    return in_order([] if first is None else [first], range(mutant.seed, mutant.seed + MASTERS_SEEDS_MAX))


__all__ = ["PATH", "FirstSeeds", "first_seeds", "in_order", "seeds_of", "seeds_of_masters"]
