"""The seeds to try first: one that shows each planted bug, and those that meet every floor between them.

They are no more than an order in which to look. A seed that shows its bug no longer costs time, and fails no test: the
search goes on as it did before. `make first-seeds` draws them anew once changes have moved the runs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec

from tests.sim.planted_bug import Mutant

PATH = Path(__file__).with_suffix(".json")


class FirstSeeds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the file holds.

    Attributes:
        floors: seeds that meet all floors of ``tests.sim.floors`` between them.
        masters_floors: seeds that meet all floors of ``tests.sim.masters.floors`` between them.
        mutants: by the name of a planted bug, a seed whose run shows it.
    """

    floors: tuple[int, ...] = ()
    masters_floors: tuple[int, ...] = ()
    mutants: dict[str, int] = {}


@cache
def first_seeds() -> FirstSeeds:
    """Read the file."""
    return msgspec.json.decode(PATH.read_bytes(), type=FirstSeeds)


def seeds_of(mutant: Mutant) -> Iterator[int]:
    """The seeds of a search for a run that shows a planted bug."""
    first = first_seeds().mutants.get(mutant.name)
    if first is not None:
        yield first
    yield from (seed for seed in range(mutant.seed, mutant.seed + mutant.seeds_max) if seed != first)


__all__ = ["PATH", "FirstSeeds", "first_seeds", "seeds_of"]
