"""``stelae scan``: read the rows of a table."""

from __future__ import annotations

from typing import Annotated

import typer

from stelae.cli.kit.connection import (
    AtOption,
    ColumnsOption,
    ConnectOption,
    DirOption,
    FormatOption,
    OutputOption,
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


def register(app: typer.Typer) -> None:
    """Add the command to the root application."""
    app.command("scan", context_settings={"allow_extra_args": True})(scan)


def scan(
    context: typer.Context,
    directory: DirOption = None,
    connect: ConnectOption = "",
    tables: TablesOption = None,
    table: TableOption = "",
    columns: ColumnsOption = "",
    where: WhereOption = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Read at most this many rows.")] = None,
    at: AtOption = "",
    since: SinceOption = "",
    form: FormatOption = "",
    output: OutputOption = None,
    overwrite: OverwriteOption = False,
    count: Annotated[bool, typer.Option("--count", help="Print only the number of rows.")] = False,
    timeout_s: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Print a snapshot of a table in key order.

    The scan shows every write that was acknowledged before it began. With `--at` it shows the table at an older time.
    On a terminal it prints a table that fits the width, elsewhere tab-separated lines with a header. `--json` prints
    one document with `columns` and `rows`. The tablets apply the conditions of `--where`.

    With `--since` it prints the rows that have changed since that time, as they are now or at `--at`. Of a deleted row
    it prints the key, with `is_deleted` true. The time to pass to the next `--since` is printed on standard error.

    Example: stelae scan --connect 127.0.0.1:7051 --table readings --where "celsius > 20" --limit 10"""
    from stelae_transfer.commands.run_scan import BadScan, ScanOptions, run_scan

    if context.args:
        word = context.args[0]
        raise BadScan(f"unexpected argument {word!r}; pass a table as --table {word}, and a condition with --where")
    options = ScanOptions(
        target=Target(directory=directory, connect=connect, tables=tables, table=table, timeout_s=timeout_s),
        columns=split(columns),
        where=conditions(where),
        limit=limit,
        at=at,
        since=since,
        form="json" if as_json else form,
        output=output,
        overwrite=overwrite,
        count=count,
    )
    raise typer.Exit(run_scan(options))
