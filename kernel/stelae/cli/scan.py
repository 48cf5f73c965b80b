"""``stelae scan``: read the rows of a tablet."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stelae.cli.output import JsonOption


def register(app: typer.Typer) -> None:
    """Add the command to the root application."""
    app.command("scan")(scan)


def scan(
    directory: Annotated[
        Path | None, typer.Option("--dir", help="Folder of a local cluster (`stelae demo --keep DIR`).")
    ] = None,
    connect: Annotated[str, typer.Option(help="Addresses host:port of nodes, separated by commas.")] = "",
    tablet: Annotated[str, typer.Option(help="The tablet; with --dir that of the cluster unless given.")] = "",
    columns: Annotated[str, typer.Option(help="Columns to read, separated by commas; all unless given.")] = "",
    limit: Annotated[int | None, typer.Option(min=1, help="Most rows to print.")] = None,
    count: Annotated[bool, typer.Option("--count", help="Print only how many rows.")] = False,
    timeout_s: Annotated[float, typer.Option(min=0.1, help="How long to retry.")] = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Print the rows of a tablet in key order, all of one snapshot.

    The scan is linearizable: it sees every write that was acknowledged before it began. Text
    output is tab-separated with a header; `--json` prints one document with `columns` and `rows`."""
    from stelae.cli.run_scan import ScanOptions, run_scan

    options = ScanOptions(
        directory=directory,
        addresses=_split(connect),
        tablet=tablet,
        columns=_split(columns),
        limit=limit,
        count=count,
        timeout_s=timeout_s,
        as_json=as_json,
    )
    raise typer.Exit(run_scan(options))


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
