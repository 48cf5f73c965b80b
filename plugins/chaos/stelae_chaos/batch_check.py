"""Checks snapshots of accounts whose sum is constant.

All accounts of a group are written in one call. They are in one tablet, so the call is one operation and takes effect
at one timestamp. A snapshot as of a time must therefore show all rows of one batch: the acknowledged batch with the
highest timestamp up to that time, or one of unknown outcome. Two snapshots as of one time must be equal.

A batch of unknown outcome took effect at one time, too, which the snapshots narrow down. So in the order of their
times, snapshots and acknowledged batches must never show a batch, then another one, and then the first one again.
Batches of several calls may be in one log entry. They have one time then, and the last one in the entry is shown."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

from stelae_chaos.operations import (
    BatchWrite,
    ChaosFinding,
    ChaosOperation,
    ChaosOutcome,
    SnapshotRead,
    SnapshotRow,
    shown,
)

CHECK: Final = "snapshot sums"
ACCOUNTS: Final = 8
"""The accounts of a group."""

SUM: Final = 1_000 * ACCOUNTS
"""The sum of the balances of a group, in every batch."""


def check_batches(writes: Iterable[BatchWrite], reads: Iterable[SnapshotRead]) -> list[ChaosFinding]:
    """Return a finding for every snapshot that is torn, stale, from the future, or different from an equal read."""
    groups: dict[int, list[BatchWrite]] = {}
    for write in writes:
        groups.setdefault(write.group, []).append(write)
    histories = {group: _GroupHistory(found) for group, found in groups.items()}
    first: dict[tuple[int, int], SnapshotRead] = {}
    whole: dict[int, list[SnapshotRead]] = {}
    found = []
    for read in reads:
        if not read.took_effect:
            continue
        history = histories.get(read.group) or _GroupHistory(())
        same = first.setdefault((read.group, read.at), read)
        if same.rows != read.rows:
            found.append(_finding(read, "two snapshots as of one time differ", same))
        elif fact := history.problem(read):
            found.append(_finding(read, fact, *history.named(read.rows)))
        else:
            whole.setdefault(read.group, []).append(read)
    for group, good in whole.items():
        found += histories.get(group, _GroupHistory(())).returned(good)
    return found


class _GroupHistory:
    """The batches of one group."""

    def __init__(self, writes: Sequence[BatchWrite]) -> None:
        self._by_name = {write.name: write for write in writes}
        self._acked = sorted((w for w in writes if w.took_effect), key=lambda write: write.timestamp)
        self._times = [write.timestamp for write in self._acked]

    def named(self, rows: Sequence[SnapshotRow]) -> list[BatchWrite]:
        """Return the batches of rows."""
        return [self._by_name[name] for name in sorted({row.batch for row in rows}) if name in self._by_name]

    def problem(self, read: SnapshotRead) -> str:
        """Return what is wrong with a snapshot; empty: nothing."""
        before = bisect_right(self._times, read.at)
        newest = self._acked[before - 1] if before else None
        if not read.rows:
            return f"the snapshot is empty, and batch {newest.name} was acknowledged before its time" if newest else ""
        names = {row.batch for row in read.rows}
        if len(names) > 1 or [row.account for row in read.rows] != list(range(ACCOUNTS)):
            return (
                f"the snapshot is torn: {len(read.rows)} of {ACCOUNTS} rows, of the batches {', '.join(sorted(names))}"
            )
        if (total := sum(row.balance for row in read.rows)) != SUM:
            return f"the sum is {total}, and every batch has the sum {SUM}"
        return self._wrong_batch(self._by_name.get(read.rows[0].batch), read.at, newest)

    def returned(self, reads: Sequence[SnapshotRead]) -> list[ChaosFinding]:
        """Return a finding for every snapshot that shows what had been replaced before its time.

        Args:
            reads: snapshots in which nothing is wrong by themselves.
        """
        seen: list[tuple[int, str, SnapshotRead | None]] = [(one.timestamp, one.name, None) for one in self._acked]
        seen += [(read.at, read.rows[0].batch if read.rows else "", read) for read in reads]
        newest, since, found = {""}, -1, []  # Batches of one log entry have one time: each may be the last of them.
        replaced = dict[str, tuple[int, str]]()
        # A batch that took effect at the time of a snapshot is in it.
        for time, name, read in sorted(seen, key=lambda one: (one[0], one[2] is not None)):
            if read is not None and name in replaced:
                at, other = replaced[name]
                shown_as = f"batch {name}" if name else "no batch"
                fact = f"the snapshot shows {shown_as}, which batch {other} had replaced by the time {at}"
                found.append(_finding(read, fact, *(self._by_name[one] for one in (name, other) if one)))
            elif read is None and time == since:
                newest.add(name)
            else:
                replaced |= {one: (time, name) for one in newest if one != name}
                newest, since = {name}, time if read is None else -1
        return found

    def _wrong_batch(self, batch: BatchWrite | None, at: int, newest: BatchWrite | None) -> str:
        """Return why a whole batch must not be in a snapshot."""
        if batch is None or batch.outcome is ChaosOutcome.REFUSED:
            return "the batch was refused, or no client has sent it"
        if not batch.took_effect:
            return ""  # It may have taken effect at any time, also together with another one.
        if batch.timestamp > at:
            return f"batch {batch.name} took effect at {batch.timestamp}, after the time of the snapshot"
        if newest is not None and newest.timestamp > batch.timestamp:
            return f"the snapshot shows batch {batch.name}, and batch {newest.name} is newer and not after its time"
        return ""


def _finding(read: SnapshotRead, fact: str, *others: ChaosOperation) -> ChaosFinding:
    return ChaosFinding(check=CHECK, key=f"group {read.group}", fact=fact, operations=shown([read, *others]))
