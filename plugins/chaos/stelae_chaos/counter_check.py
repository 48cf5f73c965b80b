"""Checks reads of counters that only grow. Each increment is the insert of one row, so a counter is a number of rows.

A read must count every increment that was acknowledged before the read began, and none that began after the read
ended. A read that began after another read ended must not count less. The last read of a run follows the same rules:
its count is between the acknowledged increments, and these together with those of unknown outcome."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final

from stelae_chaos.operations import ChaosFinding, ChaosOutcome, CounterRead, Increment, shown

CHECK: Final = "counters"


def check_counters(increments: Iterable[Increment], reads: Iterable[CounterRead]) -> list[ChaosFinding]:
    """Return a finding for every read with an impossible count, and for every increment that took effect twice."""
    by_counter: dict[int, list[Increment]] = {}
    found = []
    for one in increments:
        by_counter.setdefault(one.counter, []).append(one)
        if one.error == "ALREADY_PRESENT":
            fact = "an increment was refused because its row exists: the increment took effect twice"
            found.append(ChaosFinding(check=CHECK, key=_name(one.counter), fact=fact, operations=shown([one])))
    answered: dict[int, list[CounterRead]] = {}
    for read in reads:
        if read.took_effect:
            answered.setdefault(read.counter, []).append(read)
    for counter, seen in sorted(answered.items()):
        found += _outside(counter, by_counter.get(counter, []), seen)
        found += _backwards(counter, seen)
    return found


def _outside(counter: int, increments: Sequence[Increment], reads: Sequence[CounterRead]) -> list[ChaosFinding]:
    """Return the reads that miss an acknowledged increment, or that count one which was not sent or was refused."""
    acked = sorted(one.ended_us for one in increments if one.took_effect)
    sent = sorted(one.begun_us for one in increments if one.outcome is not ChaosOutcome.REFUSED)
    found = []
    for read in reads:
        least, most = bisect_left(acked, read.begun_us), bisect_left(sent, read.ended_us + 1)
        if not least <= read.count <= most:
            fact = f"a read counted {read.count}; {least} were acknowledged before it, and at most {most} were possible"
            found.append(ChaosFinding(check=CHECK, key=_name(counter), fact=fact, operations=shown([read])))
    return found


def _backwards(counter: int, reads: Sequence[CounterRead]) -> list[ChaosFinding]:
    """Return the reads that count less than a read that ended before they began."""
    ended = sorted(reads, key=lambda read: read.ended_us)
    times = [read.ended_us for read in ended]
    highest = list(accumulate(ended, _higher))
    found = []
    for read in reads:
        before = bisect_left(times, read.begun_us)
        if before and highest[before - 1].count > read.count:
            earlier = highest[before - 1]
            fact = f"the counter went back from {earlier.count} to {read.count}"
            found.append(ChaosFinding(check=CHECK, key=_name(counter), fact=fact, operations=shown([earlier, read])))
    return found


def _higher(first: CounterRead, second: CounterRead) -> CounterRead:
    return first if first.count >= second.count else second


def _name(counter: int) -> str:
    return f"counter {counter}"
