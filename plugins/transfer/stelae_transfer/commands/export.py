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


def export(
    file: Annotated[Path, typer.Argument(help="The file to write: .csv, .tsv, .jsonl, .parquet, .arrow; .gz or .zst.")],
    directory: DirOption = None,
    connect: ConnectOption = "",
    tables: TablesOption = None,
    table: TableOption = "",
    columns: ColumnsOption = "",
    where: WhereOption = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Most rows to write.")] = None,
    at: AtOption = "",
    since: SinceOption = "",
    form: Annotated[str, typer.Option("--format", help="csv, tsv, jsonl, parquet or arrow; else by the name.")] = "",
    overwrite: OverwriteOption = False,
    progress: ProgressOption = None,
    timeout_s: TimeoutOption = 30.0,
    as_json: JsonOption = False,
) -> None:
    """Write the rows of a table to a file, in key order, all of one time.

    The file appears when it is whole; one that is broken off leaves nothing. What is exported can be imported again and
    gives the same rows: null and empty text differ, bytes are base64 in CSV and JSON. The time is printed, for `--at`.

    With `--since` it writes what has changed since then, as `stelae scan` prints it; the time that is printed is the
    one to go on from.

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
