"""Progress on standard error: a line that moves on a terminal, a line each second elsewhere if it was asked for."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from stelae.cli.kit.output import note
from stelae.cli.kit.pace import Pace

EVERY_S = 1.0
"""Seconds between two lines where there is no terminal."""

LIVE_EVERY_S = 0.2

ProgressOption = Annotated[
    bool | None,
    typer.Option("--progress/--no-progress", help="Show progress; by default on a terminal.", show_default=False),
]


class RowsProgress:
    """Shows how far rows have come.

    Args:
        what: word in front of each line.
        wanted: ``None``: on a terminal alone.
        before: rows that were done before this run.
    """

    def __init__(self, what: str, wanted: bool | None, before: int = 0) -> None:
        self._what = what
        self._live = sys.stderr.isatty()
        self._shows = self._live if wanted is None else wanted
        self._pace = Pace(time.monotonic(), before)
        self._told_s = time.monotonic()
        self._width = 0

    def update(self, rows: int, done: float | None = None) -> None:
        """So many rows are done in this run, and so much of the whole; ``None``: nobody knows how much."""
        now_s = time.monotonic()
        pace = self._pace
        pace.note(now_s, rows, done or 0.0)
        if self._shows and now_s - self._told_s >= (LIVE_EVERY_S if self._live else EVERY_S):
            self._told_s = now_s
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
