"""Warns of rows that were handed to a session and not written, because the session was never closed or flushed.

The warning comes when the client is closed, when the session is garbage-collected, or when the program ends. No call is
under way then that could raise an error."""

from __future__ import annotations

import atexit
import os
import sys
import warnings
import weakref
from collections.abc import Callable
from typing import NamedTuple

_CLIENT = __name__.rpartition(".")[0] + "."


class UnwrittenRows(UserWarning):
    """Rows were handed to a session and are not written, or were refused, and the program did not find out."""


class OpeningLine(NamedTuple):
    """The line of a program that opened a session."""

    file: str
    line: int


class UnreportedRows:
    """Counts the rows of a session that are not written and that its user does not know of.

    It outlives the session, which may be garbage-collected while it buffers rows.

    Args:
        table: name of the table.
        opened: where the session was opened. The warning points there.
        buffered: returns how many rows were handed in and have no answer yet.
    """

    def __init__(self, table: str, opened: OpeningLine, buffered: Callable[[], int]) -> None:
        self._table = table
        self._buffered = buffered
        self._process = os.getpid()
        self.opened = opened
        self.given_up = 0  #: Rows whose sending ended with an error.
        self.error = ""  #: That error.
        self.failed = 0  #: Rows that were refused since the user last took the failures.
        self.seen = 0  #: How many of the failed rows the user has read.
        self.reason = ""  #: Why the first of the failed rows was refused.
        self.is_closed = False  #: Whether the user has ended the session, or was warned.
        _all.add(self)

    @property
    def is_pending(self) -> bool:
        """Whether there are rows to warn of."""
        return not self.is_closed and bool(self._buffered() or self.given_up or self.failed > self.seen)

    def warn(self) -> None:
        """Warn of the rows that are not written, at most once. A forked process does not warn of its parent's rows."""
        if self._process == os.getpid() and self.is_pending:
            facts, unwritten = [], self._buffered() + self.given_up
            if unwritten:
                why = f" ({self.error})" if self.error else ""
                facts.append(f"rows that were handed in and are not written, or not known to be: {unwritten}{why}")
            if self.failed > self.seen:
                facts.append(f"rows that were refused: {self.failed}, the first is {self.reason}")
            fact = f"a session on table {self._table!r} was left open; {'; '.join(facts)}"
            step = "open it as 'with table.session() as session:', or call close(), which raises the errors"
            warnings.warn_explicit(f"{fact}; {step}", UnwrittenRows, *self.opened)
        self.is_closed = True


_all: weakref.WeakSet[UnreportedRows] = weakref.WeakSet()


@atexit.register
def _warn_all() -> None:
    for unreported in list(_all):
        unreported.warn()


def opening_line() -> OpeningLine:
    """Return the line outside of the client from which the client was called."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_CLIENT):
        frame = frame.f_back
    return OpeningLine(frame.f_code.co_filename, frame.f_lineno)
