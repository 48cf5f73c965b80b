"""Progress on standard error: one line that is rewritten on a terminal, otherwise one line each second on request."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from stelae.cli.kit.output import note
from stelae.cli.kit.pace import Pace

EVERY_S = 1.0
"""Seconds between two lines if standard error is not a terminal."""

LIVE_EVERY_S = 0.2
"""Seconds between two updates of the line on a terminal."""

ProgressOption = Annotated[
    bool | None,
    typer.Option("--progress/--no-progress", help="Show progress. Default: on a terminal.", show_default=False),
]


class RowsProgress:
    """Shows the progress of work on rows.

    Args:
        what: the word at the beginning of each line.
        wanted: whether to show progress. ``None``: only on a terminal.
        before: rows that an earlier run has done.
    """

    def __init__(self, what: str, wanted: bool | None, before: int = 0) -> None:
        self._what = what
        self._live = sys.stderr.isatty()
        self._shows = self._live if wanted is None else wanted
        self._pace = Pace(time.monotonic(), before)
        self._shown_s = time.monotonic()
        self._width = 0

    def update(self, rows: int, done: float | None = None) -> None:
        """Report the rows done in this run, and the fraction of the whole work. ``None``: the fraction is unknown."""
        now_s = time.monotonic()
        pace = self._pace
        pace.note(now_s, rows, done or 0.0)
        if self._shows and now_s - self._shown_s >= (LIVE_EVERY_S if self._live else EVERY_S):
            self._shown_s = now_s
            self._show(f"{self._what}: {pace if done is not None else pace.without_end()}")

    def _show(self, text: str) -> None:
        if not self._live:
            note(text)
            return
        sys.stderr.write("\r" + text.ljust(self._width))
        sys.stderr.flush()
        self._width = len(text)

    def __enter__(self) -> RowsProgress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live and self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()
