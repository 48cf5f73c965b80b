"""``stelae export``: write the rows of a table to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stelae.cli.kit.connection import (
    AtOption,
    ColumnsOption,
    ConnectOption,
    DirOption,
    OverwriteOption,
    SinceOption,
    TableOption,
    TablesOption,
    Target,
    TimeoutOption,
    WhereOption,
    conditions,
    split,
)
from stelae.cli.kit.output import JsonOption
from stelae.cli.kit.progress import ProgressOption


def register(app: typer.Typer) -> None:
    """Add the command to the root application."""
    app.command("export")(export)


FileArgument = Annotated[
    Path, typer.Argument(help="File to write: .csv, .tsv, .jsonl, .parquet or .arrow, also with .gz or .zst.")
]
FormOption = Annotated[
    str, typer.Option("--format", help="csv, tsv, jsonl, parquet or arrow. Default: by the file name.")
]


def export(
    file: FileArgument,
    directory: DirOption = None,
    connect: ConnectOption = "",
    tables: TablesOption = None,
    table: TableOption = "",
    columns: ColumnsOption = "",
    where: WhereOption = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Write at most this many rows.")] = None,
    at: AtOption = "",
    since: SinceOption = "",
    form: FormOption = "",
    overwrite: OverwriteOption = False,
    progress: ProgressOption = None,
    timeout_s: TimeoutOption = 30.0,
    as_json: JsonOption = False,
) -> None:
    """Write a snapshot of a table to a file, in key order.

    The file appears only when it is complete. Importing it gives the same rows: null and empty text stay different, and
    bytes are base64 in CSV and JSON. The command prints the time of the snapshot, which `--at` takes.

    With `--since` it writes the rows that have changed since that time, as `stelae scan` does. Pass the printed time to
    the next `--since`.

    Example: stelae export readings.parquet --connect 127.0.0.1:7051 --table readings"""
    from stelae_transfer.commands.run_scan import ScanOptions, run_export

    options = ScanOptions(
        target=Target(directory=directory, connect=connect, tables=tables, table=table, timeout_s=timeout_s),
        columns=split(columns),
        where=conditions(where),
        limit=limit,
        at=at,
        since=since,
        form=form,
        output=file,
        overwrite=overwrite,
    )
    raise typer.Exit(run_export(options, progress=progress, as_json=as_json))
