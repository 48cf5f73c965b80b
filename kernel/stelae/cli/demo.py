"""``stelae demo``: kill a tablet server and the leading master of a cluster, and check that no row is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stelae.cli.kit.output import JsonOption


def register(app: typer.Typer) -> None:
    """Add the command to the root application."""
    app.command("demo")(demo)


def demo(
    input_file: Annotated[
        Path | None, typer.Option("--input", help="Load this .csv or .parquet file. Needs --key.")
    ] = None,
    key: Annotated[str, typer.Option("--key", help="Columns that identify a row, separated by commas.")] = "",
    keep: Annotated[
        Path | None,
        typer.Option(
            "--keep",
            help="Create the cluster in this new folder and keep it running. "
            "Then try `stelae scan --dir DIR`, and stop it with `stelae demo --down DIR`.",
        ),
    ] = None,
    down: Annotated[Path | None, typer.Option("--down", help="Stop a cluster that --keep has kept running.")] = None,
    election_timeout_ms: Annotated[
        int, typer.Option(min=200, max=60_000, help="Election timeout of the nodes.")
    ] = 1000,
    wal: Annotated[str, typer.Option(help="Log engine of the tablet servers, or one for each: a,b,c.")] = "segmented",
    store: Annotated[
        str, typer.Option(help="Tablet store of the tablet servers, or one for each: a,b,c.")
    ] = "columnar",
    as_json: JsonOption = False,
) -> None:
    """Load a real data set into a cluster while nodes are killed and a disk is lost, then check every row.

    Three masters and three tablet servers run as processes on this machine. The command loads every named character
    that Python knows, or your own file, into a table of four tablets. At 20 % of the rows it sends SIGKILL to the
    tablet server that leads most tablets, at 50 % to the leading master. Both are started again. At 75 % it destroys a
    tablet server with its directory; another one joins, and the masters replace the lost replicas. At the end all
    replicas must agree, `stelae check` must find no problem, and every acknowledged row is compared with the source.

    Exit code 0: no row is lost or wrong, all replicas agree, and writes and table creation were unavailable for at most
    two election timeouts and one second after the first two kills. 1: one of these conditions does not hold."""
    from stelae.cli.run_demo import DemoOptions, run_demo, take_down

    if down is not None:
        raise typer.Exit(take_down(down, as_json=as_json))
    columns = tuple(name.strip() for name in key.split(",") if name.strip())
    options = DemoOptions(
        input_file=input_file,
        key=columns,
        keep=keep,
        election_timeout_ms=election_timeout_ms,
        engines={"wal": wal, "store": store},
        as_json=as_json,
    )
    raise typer.Exit(run_demo(options))
