"""``stelae get``: read one row by its key."""

from __future__ import annotations

from typing import Annotated

import typer

from stelae.cli.kit.connection import (
    AtOption,
    ColumnsOption,
    ConnectOption,
    DirOption,
    TableOption,
    TablesOption,
    Target,
    TimeoutOption,
    split,
)
from stelae.cli.kit.output import JsonOption
from stelae_transfer.commands.negative_values import ValuesCommand


def register(app: typer.Typer) -> None:
    """Add the command to the root application."""
    app.command("get", cls=ValuesCommand)(get)


def get(
    key: Annotated[list[str], typer.Argument(help="Values of the key columns, in key order, as separate arguments.")],
    directory: DirOption = None,
    connect: ConnectOption = "",
    tables: TablesOption = None,
    table: TableOption = "",
    columns: ColumnsOption = "",
    at: AtOption = "",
    timeout_s: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Print one row by its key, one line for each column.

    Pass one argument for each key column, in key order, as written in CSV: dates as 2026-06-01, bytes as base64. A
    number may be negative, as in `stelae get -5`. Text that begins with a dash needs `--` before the first value. The
    read is linearizable. With `--at` it reads an older time.

    Exit code 1: the table has no such row.

    Example: stelae get Lisbon 2026-06-02 --connect 127.0.0.1:7051 --table readings"""
    from stelae_transfer.commands.run_scan import run_get

    target = Target(directory=directory, connect=connect, tables=tables, table=table, timeout_s=timeout_s)
    raise typer.Exit(run_get(target, key, split(columns), at, as_json=as_json))
