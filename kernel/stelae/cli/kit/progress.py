"""Progress of work on rows, on standard error."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from stelae.cli.kit.pace import Pace
from stelae.cli.kit.status_line import StatusLine

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
        self._line = StatusLine(wanted)
        self._pace = Pace(time.monotonic(), before)

    def update(self, rows: int, done: float | None = None) -> None:
        """Report the rows done in this run, and the fraction of the whole work. ``None``: the fraction is unknown."""
        self._pace.note(time.monotonic(), rows, done or 0.0)
        if self._line.is_due:
            self._line.show(f"{self._what}: {self._pace if done is not None else self._pace.without_end()}")

    def __enter__(self) -> RowsProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.__exit__()
