"""Progress of a long command with phases: a progress bar on a terminal, and a line for each event."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from stelae.cli.kit.output import note

PROGRESS_INTERVAL_S = 0.1


class Display:
    """Prints the progress of a command on standard error. It is a ``DemoListener``.

    Args:
        quiet: show no progress bar, even on a terminal.
        unit: what is counted, in the plural.
    """

    def __init__(self, *, quiet: bool, unit: str = "rows") -> None:
        self._unit = unit
        self._console = Console(stderr=True, highlight=False)
        self._live = self._console.is_terminal and not quiet
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[counted]}"),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
        )
        self._task: TaskID | None = None
        self._phase = ""
        self._began = time.monotonic()
        self._shown_at = 0.0

    def __enter__(self) -> Display:
        if self._live:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def phase(self, what: str, done: int = 0, total: int = 0) -> None:
        """Show the progress of a phase. A new phase is shown at once, further progress at intervals."""
        now = time.monotonic()
        if what == self._phase and now - self._shown_at < PROGRESS_INTERVAL_S and done < total:
            return
        self._shown_at = now
        is_new, self._phase = what != self._phase, what
        if not self._live:
            if is_new:
                self._line(what)
            return
        if self._task is None:
            self._task = self._bar.add_task(what, counted="")
        counted = f"{done:,} of {total:,} {self._unit}" if total else ""
        self._bar.update(self._task, description=what, completed=done, total=total or None, counted=counted)

    def event(self, what: str) -> None:
        """Print an event on a line of its own."""
        self._line(what)

    def _line(self, text: str) -> None:
        """Print one line that begins with the seconds since the start."""
        stamped = f"{time.monotonic() - self._began:5.1f} s  {text}"
        if self._live:
            self._console.print(stamped, markup=False)
        else:
            note(stamped)
