"""The result of a write: how many rows were written, and which rows failed and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from stelae.spi.errors import CallerError, StelaeError
from stelae.spi.write import OpKind, RowCode

FAILURES_MAX = 1000
"""The most failed rows that are kept with their values and reasons, by default. Further ones are only counted."""

SHOWN_MAX = 5
"""The most failed rows in the text of an error."""

UNKNOWN_OUTCOME = "UNKNOWN_OUTCOME"
"""Code of rows whose write got no answer in time. They may still be written, once. Read them, or write them again with
a kind of write that may be repeated, such as upsert."""

_REASONS = {
    RowCode.ALREADY_PRESENT: "a row with this key exists",
    RowCode.NOT_FOUND: "there is no row with this key",
    RowCode.BAD_VALUE: "a value does not fit its column",
    RowCode.OUTSIDE_PARTITION: "the key lies outside the partition of the tablet that the row was sent to",
}


class RowFailure(msgspec.Struct, frozen=True, kw_only=True):
    """One row that was not written. It does not affect the other rows of its call."""

    table: str  #: Name of the table.
    kind: str  #: Kind of the write: ``insert``, ``upsert``, ...
    row: int  #: Position in the call's rows, from 0. In a session, the position since the session began.
    #: ``ALREADY_PRESENT``, ``NOT_FOUND``, ``BAD_VALUE``, ``NO_PARTITION``, ``OUTSIDE_PARTITION``, ``TOO_LARGE``,
    #: ``UNKNOWN_OUTCOME``, or the code of the error with which the whole operation was refused, with which the lookup
    #: of the row's partition failed, or, in an epoch, the read of the row that an insert has met.
    code: str
    reason: str  #: For ``BAD_VALUE``: the column, the expected type, and type and value of the input.
    values: Mapping[str, Any] | None = None  #: The row by column name, as far as it could be read.

    def __str__(self) -> str:
        return f"row {self.row}: {self.code}: {self.reason}"


class WriteResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a write."""

    rows: int  #: Number of rows of the call.
    failed: int  #: Number of rows that were not written, or whose outcome is unknown.
    failures: tuple[RowFailure, ...]  #: The first failed rows, at most ``failures_max`` of the call.
    #: Number of failed rows by the code of their failure, of all of them.
    counts: Mapping[str, int] = {}
    #: Highest hybrid timestamp of the write: ``scan(at=timestamp)`` sees all of its rows. 0: no row was written.
    timestamp: int

    @property
    def written(self) -> int:
        """Number of rows that were written. They are durable on a majority."""
        return self.rows - self.failed


class RowsFailed(CallerError, code="ROWS_FAILED"):
    """Some rows of a write were not written; all others are. ``result`` has the list of failures."""

    def __init__(self, result: WriteResult) -> None:
        self.result = result
        fact = f"{result.failed} of {result.rows} rows were not written, the other {result.written} are written"
        super().__init__(_with_failures(fact, result, "see .failures"))

    @property
    def failures(self) -> tuple[RowFailure, ...]:
        """The rows that were not written, with their reasons."""
        return self.result.failures


def _with_failures(fact: str, result: WriteResult, where: str) -> str:
    """Return a text about the failures of a write, with the first ones and where the others are."""
    shown = [str(failure) for failure in result.failures[:SHOWN_MAX]]
    if result.failed > len(shown):
        shown.append(f"and {result.failed - len(shown)} more: {where}")
    if any(failure.code == UNKNOWN_OUTCOME for failure in result.failures):
        fact += f"; rows with {UNKNOWN_OUTCOME} may be written too: read them, or write them again with upsert"
    return "\n  ".join([fact, *shown])


def tell_result(error: Exception, before: WriteResult, failures_max: int = FAILURES_MAX) -> None:
    """Add to an error of a write's input the result of the rows before the ones at fault.

    The error gets it as ``result``, behind the ``result`` that it has already of a part of the call. If rows failed,
    its text names them, as ``RowsFailed`` does. An error that is not of this package gets a note instead."""
    given, text = vars(error), str(error)
    if isinstance(part := given.get("result"), WriteResult):
        text = text.removesuffix(_result_text(part))
        before = combined(before, part, failures_max)
    given["result"] = before
    if isinstance(error, StelaeError):
        error.args = (text + _result_text(before),)
    elif before.failed:
        error.add_note(_result_text(before).strip())


def _result_text(result: WriteResult) -> str:
    if not result.failed:
        return ""
    fact = f"{result.failed} of the {result.rows} rows before were not written, the other {result.written} are written"
    return "\n" + _with_failures(fact, result, "see .result.failures")


class FailureTally:
    """Counts the rows of a write and collects the first ``failures_max`` failures."""

    def __init__(self, table: str, kind: OpKind, failures_max: int = FAILURES_MAX) -> None:
        self._failures_max = failures_max
        self._table = table
        self._kind = kind_name(kind)
        self.rows = 0
        self.failed = 0
        self.failures: list[RowFailure] = []
        self.counts: Counter[str] = Counter()
        self.timestamp = 0

    def fail(self, row: int, code: str, reason: str, values: Mapping[str, Any] | None = None) -> None:
        """Record that a row was not written."""
        self.failed += 1
        self.counts[code] += 1
        if self.has_room:
            given = {"table": self._table, "kind": self._kind, "row": row, "code": code, "reason": reason}
            self.failures.append(RowFailure(values=values, **given))  # type: ignore[arg-type]

    @property
    def has_room(self) -> bool:
        """Whether another failure would be kept with its values."""
        return len(self.failures) < self._failures_max

    def result(self) -> WriteResult:
        """Return the counts, and the failures in the order of their rows."""
        failures = tuple(sorted(self.failures, key=lambda failure: failure.row))
        return WriteResult(
            rows=self.rows, failed=self.failed, failures=failures, counts=dict(self.counts), timestamp=self.timestamp
        )


def kind_name(kind: OpKind) -> str:
    """Return the name of a kind of write, as in the methods of a table."""
    return kind.name.lower()


def reason_of(code: RowCode, detail: str) -> str:
    """Return the reason why a store refused a row, for people."""
    return detail or _REASONS[code]


def combined(before: WriteResult, after: WriteResult, failures_max: int = FAILURES_MAX) -> WriteResult:
    """Return the result of two writes as one. The positions of ``after`` continue behind the rows of ``before``."""
    room = failures_max - len(before.failures)
    later = [msgspec.structs.replace(failure, row=before.rows + failure.row) for failure in after.failures[:room]]
    return WriteResult(
        rows=before.rows + after.rows,
        failed=before.failed + after.failed,
        failures=(*before.failures, *later),
        counts=dict(Counter(before.counts) + Counter(after.counts)),
        timestamp=max(before.timestamp, after.timestamp),
    )
