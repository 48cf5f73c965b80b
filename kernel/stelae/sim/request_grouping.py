"""Draws which writes of a client share a request, and so which sequence ranges it has.

A retry may be grouped differently from the first attempt: one sequence range may hold operations that were answered
before, operations that are still open, and new ones. A replica knows such a range only in part and must split it. These
groups test that each operation still has exactly one effect and keeps its first answer."""

from __future__ import annotations

import random
from collections.abc import Mapping

from stelae.sim.draw import between
from stelae.sim.history import ClientOperation

REACH_MAX = 4
"""Largest number of neighbours on either side that are sent with a repeated operation."""


def neighbours(
    known: Mapping[int, ClientOperation], operation: ClientOperation, rng: random.Random
) -> list[ClientOperation]:
    """Return ``operation`` with a drawn number of its neighbours in ``known``, before and after it.

    The operations are in order of sequence number, without a gap."""
    first = last = operation.sequence
    lowest, highest = first - between(rng, 0, REACH_MAX), last + between(rng, 0, REACH_MAX)
    while first > lowest and first - 1 in known:
        first -= 1
    while last < highest and last + 1 in known:
        last += 1
    before = [known[sequence] for sequence in range(first, operation.sequence)]
    behind = [known[sequence] for sequence in range(operation.sequence + 1, last + 1)]
    return [*before, operation, *behind]
