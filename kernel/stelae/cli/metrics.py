"""``stelae metrics``: what nodes count, side by side, for people without Prometheus."""

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
        list[str] | None, typer.Argument(help="host:port at which nodes serve metrics, as their logs say.")
    ] = None,
    directory: Annotated[Path | None, typer.Option("--dir", help="A local cluster: all of its nodes.")] = None,
    match: Annotated[str, typer.Option("--match", help="Only metrics whose name holds this.")] = "stelae_",
    everything: Annotated[bool, typer.Option("--all", help="Also what is zero on every node.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the metrics of nodes side by side; exit code 1 unless all of them answer.

    Of a histogram: how many values, their mean, and bounds below which half and 99 % of them are. What is zero on every
    node is left out, of text. `docs/reference/metrics.md` says what each means.

    Example: stelae metrics --dir /tmp/try --match write"""
    from stelae.cli.run_metrics import run_metrics

    raise typer.Exit(run_metrics(addresses or [], directory, match, everything=everything, as_json=as_json))
