"""What a failed read says of a replica: damage fails it at once, a disk that keeps failing fails it after some tries.

A read that failed once says nothing about the bytes (ADR 38): it is repeated, here or at another replica. Bytes that
were read back and are wrong are damage: this replica would serve errors for ever, while others have the rows."""

from collections.abc import Callable
from dataclasses import dataclass

from stelae.host.ports import LogReader
from stelae.spi.errors import ClockError, Compacted, Corrupt, Full, StelaeError, StorageError
from stelae.spi.ids import LogId
from stelae.spi.log import Entry

READ_ERRORS_MAX = 8
"""So many reads of one replica that fail in a row, of its log or its store, are a disk that is to be replaced."""

_PASSING = (Corrupt, Full, Compacted, ClockError)
"""Storage errors that are no failure of the disk: bytes of no file, no handles or memory, a collected entry, and the
clock."""


@dataclass(eq=False, slots=True)
class ReadFaults:
    """Judges the reads of one replica, on the event loop. ``condemn`` gets the reason for which it has failed."""

    condemn: Callable[[str], None]
    _in_a_row: int = 0

    def note(self, result: object) -> None:
        """Take the result of a read: an error, or anything else for success."""
        if isinstance(result, Corrupt) and result.path:
            self.condemn(f"damage found: {result}; replace this replica")
        elif isinstance(result, StorageError) and not isinstance(result, _PASSING):
            self._in_a_row += 1
            if self._in_a_row >= READ_ERRORS_MAX:
                self.condemn(f"the disk failed {self._in_a_row} reads in a row, the last one: {result}")
        elif not isinstance(result, StelaeError):
            self._in_a_row = 0


@dataclass(frozen=True, slots=True, eq=False)
class NotedReader:
    """A ``LogReader`` whose results are noted before they are handed on."""

    reader: LogReader
    faults: ReadFaults

    def read(
        self, log: LogId, first: int, end: int, bytes_max: int, done: Callable[[list[Entry] | StelaeError], None]
    ) -> None:
        """As ``LogReader.read``."""

        def arrived(result: list[Entry] | StelaeError) -> None:
            self.faults.note(result)
            done(result)

        self.reader.read(log, first, end, bytes_max, arrived)
