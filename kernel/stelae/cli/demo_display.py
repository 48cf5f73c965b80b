"""Output of the demo: a progress bar on a terminal, a line for each event, and the summary at the end."""

from __future__ import annotations

import os
import time

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from stelae.cli.kit.output import note, print_json, print_table
from stelae.local.demo_report import DemoReport

PROGRESS_INTERVAL_S = 0.1


class Display:
    """A ``DemoListener`` that prints the progress of the demo on standard error.

    Args:
        quiet: show no progress bar, even on a terminal.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._live = self._console.is_terminal and not quiet
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[rows]}"),
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
            self._task = self._bar.add_task(what, rows="")
        rows = f"{done:,} of {total:,} rows" if total else ""
        self._bar.update(self._task, description=what, completed=done, total=total or None, rows=rows)

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


def show(report: DemoReport, source: str, seconds: float, *, as_json: bool) -> None:
    """Print the result of a demo on standard output, and its problems on standard error."""
    if as_json:
        print_json({**report.document(), "seconds": round(seconds, 1)})
    else:
        print(f"{source}: {report.rows_source:,} rows in {seconds:.1f} s\n")
        most = f"at most {report.gap_ms_max:,} ms"
        rows = [
            ("acknowledged", f"{report.rows_acked:,}"),
            ("read back", f"{report.rows_read:,}"),
            ("lost", f"{report.rows_lost:,}"),
            ("wrong", f"{report.rows_wrong:,}"),
            ("rows per second", f"{report.rows_per_s:,}"),
            ("replicas agree", f"yes, of {report.tablets} tablets" if report.replicas_agree else "NO"),
            ("cluster healthy", "yes" if report.healthy else "NO"),
        ]
        print_table(("what", "result"), rows)
        for kill in report.kills:
            print(f"\n{kill.what}, at {kill.acked_at_kill:,} rows:")
            print(f"  {kill.missing} for {kill.unavailable_ms:,} ms ({most})")
        print(f"\n{'ok' if report.ok else 'NOT OK'}")
    for problem in report.problems:
        note(f"problem: {problem}")
    if report.problems:
        note(f"note: the load average of this machine is {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
