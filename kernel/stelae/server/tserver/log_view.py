"""The view of a log that a copy takes: the engine's snapshot, or entries that are read in several steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stelae.spi.errors import CallerError, Unavailable
from stelae.spi.ids import LogId, OpId
from stelae.spi.log import Entry
from stelae.spi.wal import SnapshotUnit, WalEngine, WalSnapshot

READ_BYTES = 4 << 20
"""The most bytes of one read, unless it is a single entry."""


def view_of(wal: WalEngine, log: LogId, first: int) -> WalSnapshot:
    """Return a view of the durable entries from ``first`` to the current last one.

    The log must not be collected at or above ``first`` until the view was read."""
    return wal.snapshot(log, first) if "snapshot" in wal.capabilities else EntriesRead(wal, log, first)


class EntriesRead(WalSnapshot):
    """A view for an engine that makes no snapshots. It is read once, and soon.

    Between two reads, a suffix of the log may be replaced. The entries of both reads are of one log only if the last
    entry of the first read is still in the log after the second: an op id identifies one entry, and terms never
    decrease."""

    def __init__(self, wal: WalEngine, log: LogId, first: int) -> None:
        self._wal = wal
        self._log = log
        self._first = first
        self._end = wal.logs()[log].last.index + 1

    @property
    def units(self) -> Sequence[SnapshotUnit]:
        """Empty: the view does not consist of files."""
        return ()

    def entries(self) -> Iterator[Entry]:
        """Return every entry in index order. Raises ``Unavailable`` if a part of them was replaced meanwhile."""
        first, before = self._first, None
        while first < self._end:
            found = self._read(first, before)
            yield from found
            before = found[-1].op_id
            first = before.index + 1

    def release(self) -> None:
        """Do nothing: the view holds nothing."""

    def _read(self, first: int, before: OpId | None) -> list[Entry]:
        try:
            found = self._wal.read(self._log, first, self._end, READ_BYTES)
            replaced = before is not None and self._wal.op_id_at(self._log, before.index) != before
        except CallerError as error:  # The log ends before: a suffix was removed.
            raise Unavailable(f"log {self._log} was changed while it was read: {error}; ask again") from error
        if replaced:
            raise Unavailable(f"a suffix of log {self._log} was replaced while it was read; ask again")
        return found
