"""Conformance checks for stores: readers of other threads, and exports that are open while the store changes."""

from __future__ import annotations

import threading
from collections.abc import Callable

from stelae.rows.found_rows import plain_rows
from stelae.rows.keys import encode_key
from stelae.testing.conformance.store_harness import SCHEMA, HarnessReplica, StoreHarness, delete, upsert

ENTRIES = 30
KEYS = 12
PAUSE_S = 0.001
"""Between two reads of a thread, so that the entries get their share of the interpreter."""

JOIN_TIMEOUT_S = 60.0


class ReaderChecks:
    """Checks of reads while entries are applied, flushed and merged."""

    def test_other_threads_read_whole_entries_while_others_are_applied_and_flushed(self, harness: StoreHarness) -> None:
        replica = harness.replica()
        replica.write(upsert(*((n, "a", 1) for n in range(KEYS))))
        with Readers([scanned(replica), looked_up(replica)]) as readers:
            for turn in range(2, ENTRIES):
                replica.write(upsert(*((n, "a", turn) for n in range(KEYS))))
                if turn % 5 == 0:
                    replica.flush()
                if turn % 7 == 0:
                    replica.store.set_history_floor(10 * (turn - 3))
                    replica.compact(2)
        assert not readers.problems, readers.problems[0]

    def test_an_export_returns_the_rows_of_the_time_when_it_was_opened(self, harness: StoreHarness) -> None:
        replica, other = harness.replica(), harness.replica()
        for start in range(3):  # A batch has rows or deletions, so there are several.
            replica.write(upsert(*((n, f"n{n}", n) for n in range(start, 40, 3))))
            replica.write(delete((start,)))
        rows, applied = replica.rows(), replica.store.applied
        export = replica.store.export()
        first = next(export)
        replica.write(upsert(*((n, "late", 0) for n in range(20, 60))), delete(*((n,) for n in range(10))))
        replica.flush()
        replica.store.set_history_floor(10 * len(replica.log))
        replica.compact()
        other.store.import_(iter([first, *export]), applied)
        assert other.rows() == rows


def scanned(replica: HarnessReplica) -> Callable[[], list[int]]:
    """Return a read that scans all rows, and checks that they are those of one entry."""

    def read() -> list[int]:
        counts = [row[2] for row in replica.rows()]
        assert len(counts) == KEYS and len(set(counts)) == 1, f"a scan returned rows of several entries: {counts}"
        return counts

    return read


def looked_up(replica: HarnessReplica) -> Callable[[], list[int]]:
    """Return a read that looks up all keys. Each row is as some entry left it that was the last one meanwhile."""
    keys = [encode_key(SCHEMA, (n,)) for n in range(KEYS)]

    def read() -> list[int]:
        rows = plain_rows(replica.store.lookup(keys))
        assert None not in rows, f"a lookup did not find all keys: {rows}"
        return [row[2] for row in rows if row is not None]

    return read


class Readers:
    """Threads that repeat reads while the context is entered. No read may return less than the one before it.

    Attributes:
        problems: what was wrong, and the errors of the reads.
    """

    def __init__(self, reads: list[Callable[[], list[int]]]) -> None:
        self.problems: list[str] = []
        self._done = threading.Event()
        self._threads = [threading.Thread(target=self._repeat, args=(read,), daemon=True) for read in reads]

    def __enter__(self) -> Readers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join(JOIN_TIMEOUT_S)
            if thread.is_alive():
                self.problems.append("a read does not end")

    def _repeat(self, read: Callable[[], list[int]]) -> None:
        before = 0
        finished = False
        while not finished and not self.problems:
            finished = self._done.wait(PAUSE_S)
            try:
                found = read()
            except Exception as error:  # A reader must get rows, whatever the store does meanwhile.
                self.problems.append(f"a read on another thread failed: {error!r}")
                return
            if min(found) < before:
                self.problems.append(f"a later read returned an earlier state: {found} after {before}")
            before = min(found)
