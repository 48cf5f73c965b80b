"""Latency and availability of the operations of a run, for the report and for the picture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from stelae_chaos.operations import ChaosOperation, ChaosOutcome

SLOT_US: Final = 500_000
"""Length of a slot of the picture."""


class TimelineSlot(msgspec.Struct, frozen=True, kw_only=True):
    """The operations that ended within one slot. Latencies are ``None`` if no operation has an answer."""

    answered: int
    unanswered: int
    p50_ms: float | None
    p99_ms: float | None


def slots(operations: Iterable[ChaosOperation], end_us: int) -> list[TimelineSlot]:
    """Return the slots of a run, from its start to ``end_us``. Operations outside are not counted."""
    count = max(1, -(-end_us // SLOT_US))
    latencies: list[list[int]] = [[] for _ in range(count)]
    unanswered = [0] * count
    for one in operations:
        number = one.ended_us // SLOT_US
        if not 0 <= number < count:
            continue
        if one.outcome is ChaosOutcome.UNKNOWN:
            unanswered[number] += 1
        else:
            latencies[number].append(one.ended_us - one.begun_us)
    return [
        TimelineSlot(
            answered=len(found),
            unanswered=unanswered[number],
            p50_ms=percentile_ms(found, 0.5),
            p99_ms=percentile_ms(found, 0.99),
        )
        for number, found in enumerate(latencies)
    ]


def percentile_ms(latencies_us: Sequence[int], share: float) -> float | None:
    """Return a percentile in milliseconds; ``None``: there are no latencies."""
    if not latencies_us:
        return None
    ordered = sorted(latencies_us)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] / 1000


def longest_gap_ms(operations: Iterable[ChaosOperation], begin_us: int, end_us: int) -> int:
    """Return the longest time between two times in which no operation was answered."""
    ends = (one.ended_us for one in operations if one.outcome is ChaosOutcome.DONE)
    within = sorted(at_us for at_us in ends if begin_us < at_us < end_us)
    return max(after - before for before, after in pairwise([begin_us, *within, end_us])) // 1000
