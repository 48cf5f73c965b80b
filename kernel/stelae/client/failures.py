"""Rows that were not taken, and what a write as a whole has come to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from stelae.spi.errors import CallerError
from stelae.spi.write import OpKind, RowCode

FAILURES_MAX = 1000
"""Most failed rows that are kept with their values and reasons; more are counted."""

SHOWN_MAX = 5
"""Most failed rows that the text of an error spells out."""

UNKNOWN_OUTCOME = "UNKNOWN_OUTCOME"
"""Code of rows that nobody answered in time: they may still be written, once. Read them, or write them again with a
kind that may be repeated, such as upsert."""

_REASONS = {
    RowCode.ALREADY_PRESENT: "a row with this key exists",
    RowCode.NOT_FOUND: "there is no row with this key",
    RowCode.BAD_VALUE: "a value does not fit its column",
    RowCode.OUTSIDE_PARTITION: "the key lies outside the partition of the tablet that the row was sent to",
}


class RowFailure(msgspec.Struct, frozen=True, kw_only=True):
    """One row that was not taken; the others of its call stand."""

    table: str
    kind: str  #: ``insert``, ``upsert``, ...
    row: int  #: Position in what was handed in, from 0; in a session since it began.
    #: ``ALREADY_PRESENT``, ``NOT_FOUND``, ``BAD_VALUE``, ``NO_PARTITION``, ``OUTSIDE_PARTITION``, ``UNKNOWN_OUTCOME``,
    #: or a refusal.
    code: str
    reason: str  #: For ``BAD_VALUE``: the column, what it expected, and type and value of what came.
    values: Mapping[str, Any] | None = None  #: The row by column, as far as it could be read.

    def __str__(self) -> str:
        return f"row {self.row}: {self.code}: {self.reason}"


class WriteResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a write has come to."""

    rows: int  #: Rows that were handed in.
    failed: int  #: Rows that were not taken, or of which it is not known.
    failures: tuple[RowFailure, ...]  #: The first ``FAILURES_MAX`` of them.
    timestamp: (
        int  #: Hybrid timestamp of the last of it: ``scan(at=timestamp)`` sees all of it. 0: nothing was written.
    )

    @property
    def written(self) -> int:
        """Rows that were taken: durable on a majority."""
        return self.rows - self.failed


class RowsFailed(CallerError, code="ROWS_FAILED"):
    """Some rows of a write were not taken; all others are written. ``result`` has the list."""

    def __init__(self, result: WriteResult) -> None:
        self.result = result
        shown = [str(failure) for failure in result.failures[:SHOWN_MAX]]
        if result.failed > len(shown):
            shown.append(f"and {result.failed - len(shown)} more: see .failures")
        fact = f"{result.failed} of {result.rows} rows were not taken, the other {result.written} are written"
        if any(failure.code == UNKNOWN_OUTCOME for failure in result.failures):
            fact += f"; of those that say {UNKNOWN_OUTCOME} it is not known, they may be written too"
        super().__init__("\n  ".join([fact, *shown]))

    @property
    def failures(self) -> tuple[RowFailure, ...]:
        """The rows that were not taken, with their reasons."""
        return self.result.failures


class FailureTally:
    """Counts rows and collects failures, as many as are kept."""

    def __init__(self, table: str, kind: OpKind) -> None:
        self._table = table
        self._kind = kind_name(kind)
        self.rows = 0
        self.failed = 0
        self.failures: list[RowFailure] = []
        self.timestamp = 0

    def fail(self, row: int, code: str, reason: str, values: Mapping[str, Any] | None = None) -> None:
        """Note that a row was not taken."""
        self.failed += 1
        if len(self.failures) < FAILURES_MAX:
            given = {"table": self._table, "kind": self._kind, "row": row, "code": code, "reason": reason}
            self.failures.append(RowFailure(values=values, **given))  # type: ignore[arg-type]

    @property
    def keeps(self) -> bool:
        """Whether one more failure would be kept with its values."""
        return len(self.failures) < FAILURES_MAX

    def result(self) -> WriteResult:
        """Return what has been counted, failures in order of their rows."""
        failures = tuple(sorted(self.failures, key=lambda failure: failure.row))
        return WriteResult(rows=self.rows, failed=self.failed, failures=failures, timestamp=self.timestamp)


def kind_name(kind: OpKind) -> str:
    """The name under which users call a kind of write."""
    return kind.name.lower()


def reason_of(code: RowCode, detail: str) -> str:
    """Say in words why a store did not take a row."""
    return detail or _REASONS[code]


def joined(before: WriteResult, after: WriteResult) -> WriteResult:
    """Add the result of the rows that come next; ``failures`` are the first ones, numbered through."""
    room = FAILURES_MAX - len(before.failures)
    later = [msgspec.structs.replace(failure, row=before.rows + failure.row) for failure in after.failures[:room]]
    return WriteResult(
        rows=before.rows + after.rows,
        failed=before.failed + after.failed,
        failures=(*before.failures, *later),
        timestamp=max(before.timestamp, after.timestamp),
    )
