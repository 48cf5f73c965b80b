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
    limit: Annotated[int | None, typer.Option(min=1, help="Most rows to read.")] = None,
    at: AtOption = "",
    since: SinceOption = "",
    form: FormatOption = "",
    output: OutputOption = None,
    overwrite: OverwriteOption = False,
    count: Annotated[bool, typer.Option("--count", help="Print only how many rows.")] = False,
    timeout_s: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Print the rows of a table in key order, all of one snapshot.

    The scan sees every write that was acknowledged before it began, or with `--at` the table as it was. On a terminal
    it prints a table that fits; elsewhere tab-separated lines with a header; `--json` one document with `columns` and
    `rows`. Conditions of `--where` are joined by `and`, and judged where the rows are.

    With `--since` it prints what has changed since then: rows as they are now, or at `--at`, and the keys of those that
    are gone, whose `is_deleted` is true. From which time to go on is told on standard error.

    Example: stelae scan --connect 127.0.0.1:7051 --table readings --where "celsius > 20" --limit 10"""
    from stelae_transfer.commands.run_scan import BadScan, ScanOptions, run_scan

    if context.args:
        word = context.args[0]
        raise BadScan(f"{word!r} stands alone: a table is named with --table {word}, a condition with --where")
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
