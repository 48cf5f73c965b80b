"""The errors of the masters.

After a retryable error the change had no effect, or a retry with the same identity returns its outcome."""

from __future__ import annotations

from collections.abc import Iterable

from stelae.protocol.nearest_names import listed
from stelae.spi.errors import CallerError, RetryableError


class TableExists(CallerError, code="TABLE_EXISTS"):
    """A table with this name exists."""

    def __init__(self, name: str) -> None:
        super().__init__(f"table {name[:80]!r} already exists; choose another name, or rename that table first")


class NoTable(CallerError, code="NO_TABLE"):
    """There is no table with this name or id."""

    def __init__(self, table: str, known: Iterable[str]) -> None:
        super().__init__(f"no table {table[:80]!r}; there are: {listed(known, table)}")


class BadChange(CallerError, code="BAD_CHANGE"):
    """The change is not possible for this table."""


class ChangeFailed(CallerError, code="CHANGE_FAILED"):
    """An unexpected error occurred in the master that planned the change. It had no effect; the master's log has the
    traceback."""

    def __init__(self, change: str, error: Exception) -> None:
        fact = f"{change} had no effect: planning it raised {type(error).__name__}: {str(error)[:400]}"
        super().__init__(f"{fact}. This is a defect of Stelae; the log of the leading master has the traceback")


class StaleChange(CallerError, code="STALE_CHANGE"):
    """The answer to this sequence number has expired. The change is not made now; whether it was made is not known."""


class TooFewServers(CallerError, code="TOO_FEW_SERVERS"):
    """There are fewer live tablet servers than requested replicas."""


class TableBusy(RetryableError, code="TABLE_BUSY"):
    """Another change of the same table, name or request is in progress. This change had no effect."""


class NotReplicated(RetryableError, code="NOT_REPLICATED"):
    """The change could not be replicated. It had no effect."""


class OutcomeUnknown(RetryableError, code="OUTCOME_UNKNOWN"):
    """It is not known yet whether the change is committed. A retry with the same identity returns its outcome."""


class TooStale(RetryableError, code="TOO_STALE"):
    """This master's catalog is older than the request allows. Ask the leader."""
