"""Checks reads of counters that only grow. Each increment is the insert of one row, so a counter is a number of rows.

A read must count every increment that was acknowledged before the read began, and none that began after the read
ended. A read that began after another read ended must not count less. The last read of a run follows the same rules:
its count is between the acknowledged increments, and these together with those of unknown outcome.

A count does not show a lost increment if one of unknown outcome took effect. So the rows are compared at the end, too:
every acknowledged one is there once, no refused one is."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from stelae_chaos.operations import ChaosFinding, ChaosOutcome, CounterRead, Increment, shown

CHECK: Final = "counters"


class CountedRow(NamedTuple):
    """A row of the table of counters at the end of a run."""

    counter: int
    client: int
    number: int


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


def check_counted(increments: Iterable[Increment], rows: Sequence[CountedRow]) -> list[ChaosFinding]:
    """Return a finding for every increment whose row is lost, doubled, or from nowhere.

    Args:
        increments: every increment of every client.
        rows: all rows of the table at the end.
    """
    counts = Counter(rows)
    found = []
    for one in increments:
        count, fact = counts.pop(CountedRow(one.counter, one.client, one.number), 0), ""
        if count > 1:
            fact = f"the row of increment {one.name} is there {count} times"
        elif one.took_effect and not count:
            fact = f"the acknowledged increment {one.name} is lost"
        elif one.outcome is ChaosOutcome.REFUSED and count:
            fact = f"the row of increment {one.name} is there although it was refused"
        if fact:
            found.append(ChaosFinding(check=CHECK, key=_name(one.counter), fact=fact, operations=shown([one])))
    for row in counts:
        fact = f"no client inserted the row {row.client}/{row.number}"
        found.append(ChaosFinding(check=CHECK, key=_name(row.counter), fact=fact))
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
