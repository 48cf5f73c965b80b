"""Runs the demo and shows it: live progress on standard error, the summary on standard output."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from stelae.cli.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK
from stelae.cli.output import note, print_json, print_table
from stelae.local.cluster import ClusterOptions, LocalCluster, TabletSpec
from stelae.local.demo import Demo, DemoReport
from stelae.local.sources import BadSource, Source, characters, from_file
from stelae.spi.ids import TabletId

PROGRESS_INTERVAL_S = 0.1
STOP_POLL_S = 0.05
STOP_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """What the command line said."""

    input_file: Path | None
    key: tuple[str, ...]
    keep: Path | None
    election_timeout_ms: int
    engines: Mapping[str, str]
    as_json: bool


def run_demo(options: DemoOptions) -> int:
    """Run the demo; return the exit code.

    Raises:
        StelaeError: it could not be carried out. No process is left behind, kept or not.
    """
    source = _source(options)
    try:
        if options.keep is not None:
            return _run_in(options.keep, source, options)
        with tempfile.TemporaryDirectory(prefix="stelae-demo-") as directory:
            return _run_in(Path(directory), source, options)
    except KeyboardInterrupt:
        note("interrupted; every node was stopped")
        return EXIT_INTERRUPTED


def take_down(directory: Path) -> int:
    """Stop the nodes of a cluster that a demo kept; return the exit code.

    Raises:
        NotACluster: there is none in that folder.
    """
    cluster = LocalCluster.open(directory)
    pids = [pid for node in cluster.nodes if (pid := node.running_pid()) is not None]
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while any(node.running_pid() is not None for node in cluster.nodes):
        if time.monotonic() > deadline:
            note(f"some nodes have not stopped within {STOP_TIMEOUT_S:.0f} s; see {directory}")
            return EXIT_FAILED
        time.sleep(STOP_POLL_S)
    print(f"stopped {len(pids)} nodes; their data are still in {directory}")
    return EXIT_OK


def _source(options: DemoOptions) -> Source:
    if options.input_file is not None:
        return from_file(options.input_file, options.key)
    if options.key:
        raise BadSource("--key goes with --input FILE; the demo's own data have their own key")
    return characters()


def _run_in(directory: Path, source: Source, options: DemoOptions) -> int:
    spec = TabletSpec(tablet_id=TabletId("demo"), columns=source.columns, key=source.key)
    settings = {"consensus.raft": {"election_timeout_ms": options.election_timeout_ms}}
    cluster = LocalCluster.create(directory, spec, ClusterOptions(engines=options.engines, settings=settings))
    began = time.monotonic()
    kept = False
    try:
        with _Display(options.as_json) as display:
            demo = Demo(
                cluster,
                source,
                election_timeout_ms=options.election_timeout_ms,
                progress=display.update,
                outlive=options.keep is not None,
            )
            report = asyncio.run(demo.run())
        kept = options.keep is not None
    finally:
        if not kept:
            cluster.stop()
    _show(report, source, time.monotonic() - began, options)
    return EXIT_OK if report.ok else EXIT_FAILED


class _Display:
    """A progress bar on a terminal, a line per phase elsewhere; standard error either way."""

    def __init__(self, quiet: bool) -> None:
        self._console = Console(stderr=True)
        self._live = self._console.is_terminal and not quiet
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
        )
        self._task: TaskID | None = None
        self._phase = ""
        self._shown_at = 0.0

    def __enter__(self) -> _Display:
        if self._live:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def update(self, phase: str, done: int, total: int) -> None:
        """Show how far a phase is; a new phase is shown at once, the same one now and then."""
        now = time.monotonic()
        if phase == self._phase and now - self._shown_at < PROGRESS_INTERVAL_S and done < total:
            return
        self._shown_at = now
        new = phase != self._phase
        self._phase = phase
        if not self._live:
            if new:
                note(phase)
            return
        if phase.startswith("killed"):
            self._console.print(f"  {phase} ({done:,} rows acknowledged)")
            return
        if self._task is None:
            self._task = self._bar.add_task(phase)
        self._bar.update(self._task, description=phase, completed=done, total=total or None)


def _show(report: DemoReport, source: Source, seconds: float, options: DemoOptions) -> None:
    if options.as_json:
        print_json(report.document())
    else:
        print(f"{source.name}: {report.rows_source:,} rows in {seconds:.1f} s\n")
        rows: list[tuple[str, str]] = [
            ("acknowledged", f"{report.rows_acked:,}"),
            ("read back", f"{report.rows_read:,}"),
            ("lost", f"{report.rows_lost:,}"),
            ("wrong", f"{report.rows_wrong:,}"),
            ("rows per second", f"{report.rows_per_s:,}"),
            ("replicas agree", "yes" if report.replicas_agree else "NO"),
        ]
        for kill in report.kills:
            rows.append(
                (
                    kill.what,
                    f"at {kill.acked_at_kill:,} rows; no acknowledgement for "
                    f"{kill.unavailable_ms:,} ms (at most {report.gap_ms_max:,})",
                )
            )
        print_table(("what", "result"), rows)
        print(f"\n{'ok' if report.ok else 'NOT OK'}")
    if options.keep is not None:
        note(f"the cluster runs on: read it with `stelae scan --dir {options.keep}`,")
        note(f"stop it with `stelae demo --down {options.keep}`")
    for problem in report.problems:
        print(f"problem: {problem}", file=sys.stderr)
