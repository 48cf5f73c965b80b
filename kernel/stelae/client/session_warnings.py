"""Rows that a session held when nobody was left to send them: they are lost, and that is said, loudly.

Whoever opens a session and neither closes nor flushes it hears of it: when the client is closed, when the session is
dropped, or at the end of the program. A warning is all that is left then: there is no caller for an error."""

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
    """Rows were handed to a session and are not written, or were refused, and the program did not ask."""


class OpeningLine(NamedTuple):
    """A line of somebody's program."""

    file: str
    line: int


class Account:
    """What a session owes its user. It outlives the session, which may be dropped while it holds rows.

    Args:
        table: its name.
        opened: where the session was opened: the warning points there.
        held: returns how many rows have been handed in and not been answered.
    """

    def __init__(self, table: str, opened: OpeningLine, held: Callable[[], int]) -> None:
        self._table = table
        self._held = held
        self._process = os.getpid()
        self.opened = opened
        self.given_up = 0  #: Rows that were sent, or were to be, and that nobody answered.
        self.error = ""  #: Why those were given up, as far as it is known.
        self.failed = 0  #: Rows that were not taken, of which nobody has been told.
        self.looked_at = 0  #: Of those, how many somebody has looked at since.
        self.reason = ""  #: Why, of the first of them.
        self.is_settled = False  #: Whether the session was ended by whoever opened it.
        _accounts.add(self)

    @property
    def is_owing(self) -> bool:
        """Whether there is anything that nobody has been told."""
        return not self.is_settled and bool(self._held() or self.given_up or self.failed > self.looked_at)

    def tell(self) -> None:
        """Say what is not written, once. A fork owes nothing: the rows are its parent's."""
        if self._process == os.getpid() and self.is_owing:
            parts, held = [], self._held() + self.given_up
            if held:
                why = f" ({self.error})" if self.error else ""
                parts.append(f"rows that were handed in and are not written, or not known to be: {held}{why}")
            if self.failed > self.looked_at:
                parts.append(f"rows that were not taken: {self.failed}, the first is {self.reason}")
            fact = f"a session on table {self._table!r} was left open; {'; '.join(parts)}"
            step = "open it as 'with table.session() as session:', or call close(), which raises what went wrong"
            warnings.warn_explicit(f"{fact}; {step}", UnwrittenRows, *self.opened)
        self.is_settled = True


_accounts: weakref.WeakSet[Account] = weakref.WeakSet()


@atexit.register
def _tell_all() -> None:
    for account in list(_accounts):
        account.tell()


def caller() -> OpeningLine:
    """Return the line outside of the client that called into it."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_CLIENT):
        frame = frame.f_back
    return OpeningLine(frame.f_code.co_filename, frame.f_lineno)
