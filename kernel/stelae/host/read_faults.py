"""Decides when failed reads fail a replica: damage at once, read errors of the disk after several in a row.

One failed read says nothing about the bytes on disk (ADR 38): the read is repeated, here or at another replica. Bytes
that were read and are wrong are damage. A replica with damage would return errors for ever, while other replicas have
the rows."""

from collections.abc import Callable
from dataclasses import dataclass, field

from stelae.host.ports import LogReader
from stelae.spi.errors import ClockError, Compacted, Corrupt, Full, StelaeError, StorageError
from stelae.spi.ids import LogId
from stelae.spi.log import Entry

READ_ERRORS_MAX = 8
"""After this many failed reads in a row, of its log or its store, a replica fails: its disk must be replaced."""

_PASSING = (Corrupt, Full, Compacted, ClockError)
"""Storage errors that do not mean that the disk fails: corrupt bytes that are not from a file, missing handles or
memory, a collected entry, and the clock."""


@dataclass(eq=False, slots=True)
class ReadFaults:
    """Counts the failed reads of one replica, on the event loop."""

    #: Called with the reason if the replica must fail. A leader hands over first: its log is sound.
    fail: Callable[[str], None]
    #: Called with the reason if the replica must fail at once.
    fail_at_once: Callable[[str], None]
    _in_a_row: int = 0
    _damage: set[str] = field(default_factory=set)  # Reasons to fail that are damage in the rows.

    def explain(self, failure: str) -> bool:
        """Return whether a replica has failed because its rows are damaged, and for no other reason.

        Its log is sound then, so a copy can replace the replica in its place."""
        return failure in self._damage

    def store_failed(self, reason: str, error: object) -> None:
        """Fail the replica because of an error of its store, which could not apply, flush or merge.

        If that is damage, a leader hands over first, and a copy can replace the replica in its place."""
        if self._is_damage(error):
            self._damage.add(reason)
            self.fail(reason)
        else:
            self.fail_at_once(reason)

    def note(self, result: object, *, of_log: bool = False) -> None:
        """Note the result of a read: an error, or anything else for success. ``of_log``: the log was read, not rows."""
        if self._is_damage(result):
            reason = f"damage found: {result}"
            if not of_log:
                self._damage.add(reason)
            self.fail(reason)
        elif isinstance(result, StorageError) and not isinstance(result, _PASSING):
            self._in_a_row += 1
            if self._in_a_row >= READ_ERRORS_MAX:
                self.fail(f"the disk failed {self._in_a_row} reads in a row, the last one: {result}")
        elif not isinstance(result, StelaeError):
            self._in_a_row = 0

    @staticmethod
    def _is_damage(result: object) -> bool:
        return isinstance(result, Corrupt) and bool(result.path)


@dataclass(frozen=True, slots=True, eq=False)
class NotedReader:
    """A ``LogReader`` that notes every result in ``faults`` before it passes it on."""

    reader: LogReader
    faults: ReadFaults

    def read(
        self, log: LogId, first: int, end: int, bytes_max: int, done: Callable[[list[Entry] | StelaeError], None]
    ) -> None:
        """As ``LogReader.read``."""

        def arrived(result: list[Entry] | StelaeError) -> None:
            self.faults.note(result, of_log=True)
            done(result)

        self.reader.read(log, first, end, bytes_max, arrived)
