"""Runs the demo and shows it: what happens on standard error, the summary on standard output."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stelae.cli.demo_display import Display, show
from stelae.cli.demo_file import BadSource, from_file
from stelae.cli.kit.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK
from stelae.cli.kit.output import note
from stelae.cli.node_formatting import format_here
from stelae.cli.run_cluster import run_down
from stelae.local.cluster import ClusterOptions, check_engines
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.local.demo import Demo
from stelae.local.sources import DemoSource, characters
from stelae.spi.errors import StelaeError

MASTERS = 3
SERVERS = 3
STOP_TIMEOUT_S = 20.0

SPACE_BYTES = 8 << 20
"""With less space than that left, nodes that wait for some are why a demo does not go on."""


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
    check_engines(_cluster_options(options))
    source = _source(options)
    try:
        if options.keep is not None:
            return _run_in(options.keep, source, options)
        return _run_in_passing(source, options)
    except KeyboardInterrupt:
        note("interrupted; every node was stopped")
        return EXIT_INTERRUPTED


def take_down(directory: Path) -> int:
    """Stop the nodes of a cluster that a demo kept; return the exit code.

    Raises:
        NotACluster: there is none in that folder.
    """
    return run_down(directory, STOP_TIMEOUT_S, as_json=False)


def _source(options: DemoOptions) -> DemoSource:
    if options.input_file is not None:
        return from_file(options.input_file, options.key)
    if options.key:
        raise BadSource("--key goes with --input FILE; the demo's own data have their own key")
    return characters()


def _cluster_options(options: DemoOptions) -> ClusterOptions:
    settings = {"consensus.raft": {"election_timeout_ms": options.election_timeout_ms}}
    return ClusterOptions(node_count=SERVERS, engines=options.engines, settings=settings)


def _run_in_passing(source: DemoSource, options: DemoOptions) -> int:
    """Run it in a folder that is gone afterwards, unless something is wrong: then its nodes' logs tell why."""
    directory = Path(tempfile.mkdtemp(prefix="stelae-demo-"))
    wrong = False
    try:
        code = _run_in(directory, source, options)
        wrong = code != EXIT_OK
    except StelaeError:
        wrong = True
        raise
    finally:
        if wrong and any(directory.glob("*/node.log")):
            note(f"what the nodes logged and stored is kept: {directory}/*/node.log")
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
                watcher=display,
                outlive=options.keep is not None,
            )
            report = asyncio.run(demo.run())
        kept = options.keep is not None
    except StelaeError:
        free_bytes = shutil.disk_usage(directory).free
        if free_bytes < SPACE_BYTES:
            note(f"remark: the disk of {directory} is full: {free_bytes >> 10:,} KiB are left")
        raise
    finally:
        if not kept:
            cluster.kill()
    show(report, source.name, time.monotonic() - began, as_json=options.as_json)
    if options.keep is not None:
        note(f"the cluster runs on: read it with `stelae scan --dir {options.keep}`, look after it with")
        note(f"`stelae check --dir {options.keep}`, and stop it with `stelae demo --down {options.keep}`")
    return EXIT_OK if report.ok else EXIT_FAILED
