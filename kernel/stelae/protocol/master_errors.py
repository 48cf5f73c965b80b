"""Errors of the masters. After a retryable one the change had no effect, or its identity says later which it had."""

from __future__ import annotations

from collections.abc import Iterable

from stelae.protocol.nearest_names import listed
from stelae.spi.errors import CallerError, RetryableError


class TableExists(CallerError, code="TABLE_EXISTS"):
    """The name is taken."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is a table {name[:80]!r} already; choose another name, or rename that one first")


class NoTable(CallerError, code="NO_TABLE"):
    """No table of that name or id."""

    def __init__(self, table: str, known: Iterable[str]) -> None:
        super().__init__(f"no table {table[:80]!r}; there are: {listed(known, table)}")


class BadChange(CallerError, code="BAD_CHANGE"):
    """A change that the table cannot take as it is."""


class StaleChange(CallerError, code="STALE_CHANGE"):
    """The answer to this sequence has been forgotten: not carried out now, and whether it once was is not known."""


class TooFewServers(CallerError, code="TOO_FEW_SERVERS"):
    """Fewer live tablet servers than replicas asked for."""


class TableBusy(RetryableError, code="TABLE_BUSY"):
    """Another change of the same table, name or request is under way; this one had no effect."""


class NotReplicated(RetryableError, code="NOT_REPLICATED"):
    """The change could not be replicated and certainly had no effect."""


class OutcomeUnknown(RetryableError, code="OUTCOME_UNKNOWN"):
    """Whether the change is committed is not known yet; asked again under its identity, a leader will say."""


class TooStale(RetryableError, code="TOO_STALE"):
    """This master's catalog is older than the question allows; ask the leader."""
