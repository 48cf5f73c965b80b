"""``stelae metrics``: print the metrics of nodes side by side, without Prometheus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stelae.cli.kit.output import JsonOption


def register(app: typer.Typer) -> None:
    """Add the command to the root application."""
    app.command("metrics")(metrics)


def metrics(
    addresses: Annotated[
        list[str] | None, typer.Argument(help="Metrics addresses HOST:PORT of nodes, as their logs print them.")
    ] = None,
    directory: Annotated[
        Path | None, typer.Option("--dir", help="Folder of a local cluster: show all its nodes.")
    ] = None,
    match: Annotated[str, typer.Option("--match", help="Show only metrics whose name contains this text.")] = "stelae_",
    everything: Annotated[bool, typer.Option("--all", help="Also show metrics that are zero on every node.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the metrics of nodes side by side.

    A histogram is shown as its count, its mean, and upper bounds of its median and its 99th percentile. The table omits
    metrics that are zero on every node. `docs/reference/metrics.md` explains each metric.

    Exit code 1: the metrics of a node cannot be read. The other nodes are shown.

    Example: stelae metrics --dir /tmp/try --match write"""
    from stelae.cli.run_metrics import run_metrics

    raise typer.Exit(run_metrics(addresses or [], directory, match, everything=everything, as_json=as_json))
