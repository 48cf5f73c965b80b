"""Which writes of a client travel together: where the runs of its requests begin and end.

A retry need not be grouped as the first attempt was: it may bring what was answered before, what is still open, and
what is new, in one run. Such a run is known in part to who takes it, and has to be taken apart there; that each
operation keeps its one effect and its first answer is what these groups are drawn for."""

from __future__ import annotations

import random
from collections.abc import Mapping

from stelae.sim.draw import between
from stelae.sim.history import ClientOperation

REACH_MAX = 4
"""Most neighbours on either side that travel with a repeated operation."""


def neighbours(
    known: Mapping[int, ClientOperation], operation: ClientOperation, rng: random.Random
) -> list[ClientOperation]:
    """Return ``operation`` amid a drawn number of those in ``known`` that were numbered just before and behind it.

    In order of sequence, without a gap."""
    first = last = operation.sequence
    lowest, highest = first - between(rng, 0, REACH_MAX), last + between(rng, 0, REACH_MAX)
    while first > lowest and first - 1 in known:
        first -= 1
    while last < highest and last + 1 in known:
        last += 1
    before = [known[sequence] for sequence in range(first, operation.sequence)]
    behind = [known[sequence] for sequence in range(operation.sequence + 1, last + 1)]
    return [*before, operation, *behind]
