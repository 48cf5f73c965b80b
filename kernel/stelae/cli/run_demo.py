"""Carries out ``stelae demo``: prints events on standard error and the summary on standard output."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stelae.cli.demo_display import show
from stelae.cli.demo_file import BadSource, from_file
from stelae.cli.kit.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK
from stelae.cli.kit.output import note
from stelae.cli.kit.phase_display import Display
from stelae.cli.kit.sigterm import sigterm_as_interrupt
from stelae.cli.node_formatting import format_here
from stelae.cli.run_cluster import note_full_disk, run_down
from stelae.local.cluster import ClusterOptions, check_engines
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.local.demo import Demo
from stelae.local.demo_source import DemoSource, characters
from stelae.spi.errors import StelaeError

MASTERS = 3
SERVERS = 3
STOP_TIMEOUT_S = 20.0

QUICK_MASTERS = {
    "master": {"server_silent_ms": 2500, "server_dead_ms": 5000, "policy_interval_ms": 500, "action_retry_ms": 500},
    "tserver": {"follower_unhealthy_ms": 5000},
}
"""Settings with which masters give a server up after seconds: a demo should not be without an event for a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """The options of the command line."""

    input_file: Path | None
    key: tuple[str, ...]
    keep: Path | None
    election_timeout_ms: int
    engines: Mapping[str, str]
    as_json: bool


def run_demo(options: DemoOptions) -> int:
    """Run the demo and return the exit code.

    Raises:
        StelaeError: the demo failed. Every process has been stopped, also with ``--keep``.
    """
    check_engines(_cluster_options(options))
    source = _source(options)
    try:
        with sigterm_as_interrupt():
            if options.keep is not None:
                return _run_in(options.keep, source, options)
            return _run_in_temporary_folder(source, options)
    except KeyboardInterrupt:
        note("interrupted; every node was stopped")
        return EXIT_INTERRUPTED


def take_down(directory: Path, *, as_json: bool) -> int:
    """Stop the nodes of a cluster that ``--keep`` has kept running, and return the exit code.

    Raises:
        NotACluster: the folder has no cluster.
    """
    return run_down(directory, STOP_TIMEOUT_S, as_json=as_json)


def _source(options: DemoOptions) -> DemoSource:
    if options.input_file is not None:
        return from_file(options.input_file, options.key)
    if options.key:
        raise BadSource("--key needs --input FILE; the built-in data have a key")
    return characters()


def _cluster_options(options: DemoOptions) -> ClusterOptions:
    settings = {"consensus.raft": {"election_timeout_ms": options.election_timeout_ms}, **QUICK_MASTERS}
    return ClusterOptions(node_count=SERVERS, engines=options.engines, settings=settings)


def _run_in_temporary_folder(source: DemoSource, options: DemoOptions) -> int:
    """Run the demo in a temporary folder. Keep the folder, with the logs of the nodes, if something is wrong."""
    directory = Path(tempfile.mkdtemp(prefix="stelae-demo-"))
    wrong = True
    try:
        code = _run_in(directory, source, options)
        wrong = code != EXIT_OK
    except KeyboardInterrupt:
        wrong = False
        raise
    finally:
        if wrong and any(directory.glob("*/node.log")):
            note(f"the logs and data of the nodes are kept: {directory}/*/node.log")
        else:
            shutil.rmtree(directory, ignore_errors=True)
    return code


def _run_in(directory: Path, source: DemoSource, options: DemoOptions) -> int:
    began = time.monotonic()
    cluster = ClusterWithMasters.create(directory, _cluster_options(options), masters=MASTERS, formatted=format_here)
    kept = False
    try:
        with Display(quiet=options.as_json) as display:
            demo = Demo(
                cluster,
                source,
                election_timeout_ms=options.election_timeout_ms,
                listener=display,
                outlive=options.keep is not None,
            )
            report = asyncio.run(demo.run())
        kept = options.keep is not None
    except StelaeError:
        note_full_disk(directory)
        raise
    finally:
        if not kept:
            cluster.kill()
    show(report, source.name, time.monotonic() - began, as_json=options.as_json)
    if options.keep is not None:
        note(f"the cluster keeps running: read it with `stelae scan --dir {options.keep}`, check it with")
        note(f"`stelae check --dir {options.keep}`, and stop it with `stelae demo --down {options.keep}`")
    return EXIT_OK if report.ok else EXIT_FAILED
