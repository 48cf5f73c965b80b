"""One line on standard error that says how far something is. On a terminal it is rewritten, otherwise repeated."""

from __future__ import annotations

import sys
import time

from stelae.cli.kit.output import note

EVERY_S = 1.0
"""Seconds between two lines if standard error is not a terminal."""

LIVE_EVERY_S = 0.2
"""Seconds between two updates of the line on a terminal."""


class StatusLine:
    """Shows texts one after the other, no more often than people can read.

    Args:
        wanted: whether to show anything. ``None``: only on a terminal.
    """

    def __init__(self, wanted: bool | None = None) -> None:
        self._live = sys.stderr.isatty()
        self._shows = self._live if wanted is None else wanted
        self._shown_s = time.monotonic()
        self._text = ""

    @property
    def is_due(self) -> bool:
        """Whether :meth:`show` would show a text now."""
        return self._shows and time.monotonic() - self._shown_s >= (LIVE_EVERY_S if self._live else EVERY_S)

    def show(self, text: str, *, at_once: bool = False) -> None:
        """Show a text if it is due, or ``at_once``. On a terminal it replaces the last one."""
        if not (self.is_due or (at_once and self._shows)):
            return
        self._shown_s = time.monotonic()
        if not self._live:
            note(text)
            return
        sys.stderr.write("\r" + text.ljust(len(self._text)))
        sys.stderr.flush()
        self._text = text

    def __enter__(self) -> StatusLine:
        return self

    def __exit__(self, *_: object) -> None:
        """Clear the line."""
        if self._live and self._text:
            sys.stderr.write("\r" + " " * len(self._text) + "\r")
            sys.stderr.flush()
