"""Carries out ``stelae chaos``: checks the options, starts or opens the cluster, runs, and prints the report."""

from __future__ import annotations

import asyncio
import random
import secrets
import shutil
import signal
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from stelae.cli.kit.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK
from stelae.cli.kit.output import note
from stelae.cli.kit.phase_display import Display
from stelae.cli.kit.sigterm import sigterm_as_interrupt
from stelae.cli.node_formatting import format_here
from stelae.local.chaos.node_rules import enable_rules
from stelae.local.cluster import ClusterOptions, check_engines
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.spi.errors import CallerError
from stelae_chaos.fault_kinds import chosen_kinds
from stelae_chaos.final_files import add_orphan_files
from stelae_chaos.plan import FAULT_S
from stelae_chaos.report import ChaosReport
from stelae_chaos.report_text import show
from stelae_chaos.run import ChaosRun, RunOptions
from stelae_chaos.timeline import timeline

MASTERS, SERVERS = 3, 4
EVERY_S_MIN: Final = 5.0
"""Most faults last up to four seconds. After a longer one the next one begins later."""

HISTORY_FILE: Final = "chaos-history.jsonl"
REPORT_FILE: Final = "chaos-report.json"

_SMALL: Final = {"segment_bytes_first": 65536, "segment_bytes_max": 65536, "prewrite_bytes_min": 65536}
SETTINGS: Final = {
    "consensus.raft": {"election_timeout_ms": 500},
    "maintenance": {"flush_bytes": 65536, "flush_interval_ms": 200},
    "wal.segmented": _SMALL,
    "wal.shared": _SMALL,
    "master": {"server_silent_ms": 4000, "server_dead_ms": 8000, "policy_interval_ms": 500, "action_retry_ms": 1000},
    "tserver": {"follower_unhealthy_ms": 8000},
    "stage": {"age_s_max": 60, "interval_ms": 1000},
    "quarantine": {"age_s_max": 60, "interval_ms": 1000},
}
"""Small, so that during a short run logs are rolled and collected, stores flush and merge, masters replace what is
lost, and what copies and deletions leave behind becomes too old."""


class BadChaosOptions(CallerError, code="BAD_CHAOS_OPTIONS"):
    """The options of a run contradict each other, or one is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOptions:
    """The options of the command line; see ``stelae_chaos.command``."""

    directory: Path | None
    up: bool
    seconds: float
    seed: int | None
    faults: str
    every_s: float | None
    servers: int | None
    clients: int
    keep: Path | None
    engines: Mapping[str, str]
    plot: Path | None
    as_json: bool


def run_command(options: CommandOptions) -> int:
    """Run, print the report, and return the exit code.

    Raises:
        BadChaosOptions, UnknownFault, NotACluster: the options cannot be used. Nothing was started or broken.
        StelaeError: the cluster does not serve. Nothing was broken.
    """
    kinds = chosen_kinds(options.faults)
    _check(options)
    seed = random.SystemRandom().getrandbits(32) if options.seed is None else options.seed
    plot = options.plot or Path(f"chaos-{seed}.svg")
    if plot.suffix.lower() != ".svg" or not plot.parent.is_dir():
        raise BadChaosOptions(f"--plot {plot}: give the name of an .svg file in an existing folder")
    run = RunOptions(
        seconds=options.seconds,
        seed=seed,
        kinds=kinds,
        clients=options.clients,
        name=secrets.token_hex(3),
        outlive=options.directory is not None,
        disposable=options.up,
        every_s=options.every_s,
    )
    if options.directory is not None:
        cluster = ClusterWithMasters.open(options.directory)
        _check_runs(cluster, options.directory)
        note(f"seed {seed}")
        report = _run(cluster, run, options)
        _write(report, plot, None if report.clean else options.directory)
    else:
        with sigterm_as_interrupt():
            report = _run_up(run, options, plot)
    show(report, plot, as_json=options.as_json)
    if not report.clean or report.unwritten:
        return EXIT_FAILED
    return EXIT_INTERRUPTED if report.interrupted else EXIT_OK


def _check(options: CommandOptions) -> None:
    if options.up == (options.directory is not None):
        fact = "give either --up, for a new cluster, or --dir DIR, for one that runs"
        raise BadChaosOptions(f"{fact}; not both" if options.up else fact)
    if options.seconds <= 0:
        raise BadChaosOptions("--minutes 0 injects no fault; give a time above 0, such as 0.5")
    if options.every_s is not None and options.every_s < EVERY_S_MIN:
        fact = f"--every {options.every_s:g} is too short: most faults last up to {FAULT_S[1]:g} s"
        raise BadChaosOptions(f"{fact}; give {EVERY_S_MIN:g} or more")
    if options.servers is not None and not options.up:
        raise BadChaosOptions("--servers needs --up; the cluster of --dir has its servers already")
    if options.keep is not None and not options.up:
        raise BadChaosOptions("--keep needs --up; the cluster of --dir is kept in any case")
    if options.engines and not options.up:
        raise BadChaosOptions("--wal and --store need --up; the cluster of --dir has its engines already")
    if options.up:
        check_engines(_cluster_options(options))


def _check_runs(cluster: ClusterWithMasters, directory: Path) -> None:
    down = [node.name for node in cluster.nodes if node.running_pid() is None]
    if down:
        raise BadChaosOptions(f"{', '.join(down)} of {directory} do not run; start them: stelae cluster up {directory}")


def _cluster_options(options: CommandOptions) -> ClusterOptions:
    return ClusterOptions(node_count=options.servers or SERVERS, engines=options.engines or None, settings=SETTINGS)


def _run_up(run: RunOptions, options: CommandOptions, plot: Path) -> ChaosReport:
    """Run on a new cluster. Its folder is removed after a clean run, unless it is to be kept."""
    directory = options.keep or Path(tempfile.mkdtemp(prefix="stelae-chaos-"))
    report: ChaosReport | None = None
    cluster = None
    try:
        cluster = ClusterWithMasters.create(
            directory, _cluster_options(options), masters=MASTERS, formatted=format_here
        )
        for node in cluster.nodes:
            enable_rules(node)
        note(f"seed {run.seed}")
        cluster.start()
        report = _run(cluster, run, options)
        _write(report, plot, directory if options.keep or not report.clean else None)
    finally:
        for node in () if cluster is None else cluster.nodes:
            node.kill()
        clean = report is not None and report.clean
        if options.keep is None and (clean or not any(directory.glob("*/node.log"))):
            shutil.rmtree(directory, ignore_errors=True)
        elif cluster is not None:
            note(f"the logs and data of the nodes are kept: {directory}/*/node.log")
    return report


def _run(cluster: ClusterWithMasters, run: RunOptions, options: CommandOptions) -> ChaosReport:
    """Run, and let Ctrl-C and SIGTERM end the faults. A second one ends the command at once."""

    async def until_judged(display: Display) -> ChaosReport:
        loop = asyncio.get_running_loop()
        started = ChaosRun(cluster, run, display)
        task = asyncio.current_task()
        assert task is not None

        def interrupted() -> None:
            if started.report.interrupted:
                task.cancel()
            else:
                display.event("interrupted: the cluster is healed, and what happened is judged; again to end at once")
                started.interrupt()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, interrupted)
        try:
            report = await started.run()
            if options.up:
                display.phase("stopping the tablet servers and looking for orphan files")
                await asyncio.to_thread(add_orphan_files, report, cluster.servers)
            return report
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    with Display(quiet=options.as_json, unit="s") as display:
        try:
            return asyncio.run(until_judged(display))
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None


def _write(report: ChaosReport, plot: Path, directory: Path | None) -> None:
    """Write the picture; with a folder, also the report and the history, for a look at the findings.

    The report has what cannot be written, and is shown all the same: a run may have taken hours."""
    _written(report, plot, [timeline(report).encode()])
    if directory is None:
        return
    kept = [_written(report, directory / REPORT_FILE, [msgspec.json.encode(report.document())])]
    kept.append(_written(report, directory / HISTORY_FILE, _history(report)))
    if all(kept):
        note(f"the history and the report are in {directory}: {HISTORY_FILE}, {REPORT_FILE}")


def _history(report: ChaosReport) -> Iterator[bytes]:
    return (msgspec.json.encode(one) + b"\n" for one in report.history.all())


def _written(report: ChaosReport, path: Path, parts: Iterable[bytes]) -> bool:
    try:
        with path.open("wb") as file:
            file.writelines(parts)
    except OSError as error:
        report.unwritten.append(f"{path} cannot be written: {error}")
        return False
    return True
