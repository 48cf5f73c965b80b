"""The seeds to try first: one seed for each planted bug, and the seeds that together meet every floor.

They only determine the order of the search. If a seed does not show its bug any more, the test takes longer but does
not fail: the search continues with the other seeds. `make first-seeds` draws them again after changes that moved the
runs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec

from tests.sim.planted_bug import Mutant

PATH = Path(__file__).with_suffix(".json")


class FirstSeeds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of the file.

    Attributes:
        floors: seeds that together meet all floors of ``tests.sim.floors``.
        masters_floors: seeds that together meet all floors of ``tests.sim.masters.floors``.
        mutants: a seed whose run shows a planted bug, by the name of the bug.
    """

    floors: tuple[int, ...] = ()
    masters_floors: tuple[int, ...] = ()
    mutants: dict[str, int] = {}


@cache
def first_seeds() -> FirstSeeds:
    """Read the file."""
    return msgspec.json.decode(PATH.read_bytes(), type=FirstSeeds)


def seeds_of(mutant: Mutant) -> Iterator[int]:
    """Yield the seeds to try for a run that shows a planted bug."""
    first = first_seeds().mutants.get(mutant.name)
    if first is not None:
        yield first
    yield from (seed for seed in range(mutant.seed, mutant.seed + mutant.seeds_max) if seed != first)


__all__ = ["PATH", "FirstSeeds", "first_seeds", "seeds_of"]
