"""The state of one log in memory: its entries, and the segments that have them.

A log is a list of *extents*. An extent is a range of consecutive indexes whose entries are in one segment. The extents
are in index order and have no gap from the base to the last entry. Appending, voiding, moving and collecting are
operations on this list. They are the same while the engine runs and when recovery replays a segment.

Everything here changes only under the engine's lock."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from stelae.spi.errors import Corrupt, Full
from stelae.spi.ids import LogId, OpId
from stelae.spi.log import Entry
from stelae.spi.wal import Damage, Failed, LogState
from stelae_shared.log_files.term_runs import TermRuns
from stelae_wal_shared.segment import SharedSegment


class Extent:
    """Entries ``first <= index < end`` of a log, all in one segment."""

    __slots__ = ("end", "first", "segment")

    def __init__(self, first: int, end: int, segment: SharedSegment) -> None:
        self.first = first
        self.end = end
        self.segment = segment


class SharedTabletLog:
    """A log that was recovered or created.

    Attributes:
        name: tablet and generation.
        number: identifies the log in its records; never used for another log.
        base: op id of the last collected entry, or the starting point.
        last: op id of the last entry that readers see.
        durable: op id of the last entry that is known to be durable.
        commit_hint: the highest commit index that was ever passed.
        order: number of records of this log that were written.
        runs: terms of the entries.
        extents: segments of the entries.
        failed: why the log takes no appends until ``repair``; ``None`` if it does.
        damage: why the log is corrupt; ``None`` if it is not.
    """

    __slots__ = (
        "base", "commit_hint", "damage", "durable", "extents", "failed", "last", "name", "number", "order", "runs",
    )  # fmt: skip

    def __init__(self, name: LogId, number: int, base: OpId) -> None:
        self.name = name
        self.number = number
        self.base = self.last = self.durable = base
        self.commit_hint = 0
        self.order = 0
        self.runs = TermRuns()
        self.extents: list[Extent] = []
        self.failed: Failed | None = None
        self.damage: Damage | None = None

    def state(self) -> LogState:
        """Return the state that ``logs`` reports."""
        hint = min(self.commit_hint, self.last.index)
        return LogState(base=self.base, last=self.last, commit_hint=hint, damage=self.damage)

    def corrupt(self) -> Corrupt | None:
        """Return the error of a damaged log; ``None`` if it is not damaged."""
        damage = self.damage
        return None if damage is None else Corrupt(damage.detail, path=damage.path, offset=damage.offset)

    @property
    def ended(self) -> bool:
        """Whether the log is damaged, or a write or sync of it has failed. It takes no entries any more."""
        return self.damage is not None or (self.failed is not None and not isinstance(self.failed.error, Full))

    def op_id_at(self, index: int) -> OpId:
        """Return the op id of an index between the base and the last entry, both included."""
        return self.base if index == self.base.index else OpId(self.runs.term_at(index), index)

    def extent_of(self, index: int) -> Extent:
        """Return the extent of an index that the log holds."""
        return self.extents[bisect_right(self.extents, index, key=_first) - 1]

    # -- changes ---------------------------------------------------------------------------------

    def append(self, op_id: OpId, segment: SharedSegment) -> None:
        """Add the entry that follows the last one."""
        term, index = op_id
        extents = self.extents
        if extents and (tail := extents[-1]).segment is segment:
            tail.end = index + 1
            if term != self.last[0]:
                self.runs.add(index, term)
        else:
            extents.append(Extent(index, index + 1, segment))
            self.runs.add(index, term)
        segment.live += 1
        self.last = op_id

    def extend(self, entries: Sequence[Entry], segment: SharedSegment) -> None:
        """Add the entries, at least one, that follow the last one."""
        first, last = entries[0].op_id, entries[-1].op_id
        self.append(first, segment)
        if len(entries) == 1:
            return
        if first.term != last.term:
            for entry in entries:
                self.runs.add(entry.op_id.index, entry.op_id.term)
        self.extents[-1].end = last.index + 1
        segment.live += len(entries) - 1
        self.last = last

    def void(self, first: int) -> None:
        """Forget every entry from ``first`` on, which is above the base."""
        extents = self.extents
        while extents and extents[-1].end > first:
            tail = extents[-1]
            kept = max(tail.first, first)
            tail.segment.live -= tail.end - kept
            tail.end = kept
            if tail.first == tail.end:
                extents.pop()
        self.runs.cut(first)
        if first <= self.last.index:
            self.last = self.op_id_at(first - 1)
        if first <= self.durable.index:
            self.durable = self.last

    def collect(self, base: OpId) -> None:
        """Forget every entry up to the base."""
        gone = 0
        for extent in self.extents:
            kept = max(extent.first, min(extent.end, base.index + 1))
            extent.segment.live -= kept - extent.first
            extent.first = kept
            gone += extent.first == extent.end
        del self.extents[:gone]
        self.runs.forget_below(base.index + 1)
        self.base = base
        if self.durable.index < base.index:
            self.durable = base

    def move(self, first: int, end: int, segment: SharedSegment) -> None:
        """Record that entries of the log are now in another segment."""
        moved: list[Extent] = []
        for extent in self.extents:
            low, high = max(extent.first, first), min(extent.end, end)
            if low >= high:
                moved.append(extent)
                continue
            extent.segment.live -= high - low
            segment.live += high - low
            pieces = ((extent.first, low, extent.segment), (low, high, segment), (high, extent.end, extent.segment))
            moved.extend(Extent(*piece) for piece in pieces if piece[0] < piece[1])
        self.extents = _joined(moved)

    def release(self) -> None:
        """Give up all entries. A reader that still has the log finds none."""
        self.void(self.base.index + 1)

    def fail_at_durable(self, failed: Failed) -> None:
        """Take no more appends, and show only what is durable."""
        self.void(self.durable.index + 1)
        self.failed = Failed(failed.error, self.durable)

    def note_damage(self, path: str, offset: int, detail: str, last_good: OpId) -> None:
        """Record damage behind ``last_good``, unless earlier damage is known."""
        if self.damage is None or last_good.index < self.damage.last_good.index:
            self.void(last_good.index + 1)
            self.damage = Damage(path=path, offset=offset, last_good=self.last, detail=detail)


def _first(extent: Extent) -> int:
    return extent.first


def _joined(extents: list[Extent]) -> list[Extent]:
    """Join adjacent extents in the same segment."""
    found: list[Extent] = []
    for extent in extents:
        if found and found[-1].segment is extent.segment and found[-1].end == extent.first:
            found[-1].end = extent.end
        else:
            found.append(extent)
    return found
