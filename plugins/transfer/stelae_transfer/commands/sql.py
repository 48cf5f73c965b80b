"""``stelae sql``: a query over tables, carried out by DuckDB."""

from __future__ import annotations

from typing import Annotated

import typer

from stelae.cli.kit.connection import (
    AtOption,
    ConnectOption,
    DirOption,
    FormatOption,
    OutputOption,
    OverwriteOption,
    TablesOption,
    Target,
    TimeoutOption,
)
from stelae.cli.kit.output import JsonOption


def register(app: typer.Typer) -> None:
    """Add the command to the root application."""
    app.command("sql")(sql)


def sql(
    query: Annotated[str, typer.Argument(help="One SELECT, in DuckDB's SQL; tables go by their names.")],
    directory: DirOption = None,
    connect: ConnectOption = "",
    tables: TablesOption = None,
    at: AtOption = "",
    form: FormatOption = "",
    output: OutputOption = None,
    overwrite: OverwriteOption = False,
    explain: Annotated[bool, typer.Option("--explain", help="Say on standard error what each scan was asked.")] = False,
    timeout_s: TimeoutOption = 30.0,
    as_json: JsonOption = False,
) -> None:
    """Answer a query; all tables of it show one time.

    Tablets send only the columns that the query needs, and judge what they can of its conditions: comparisons, `in` and
    `is null`, but none on floating numbers, where DuckDB orders NaN above all others. Files may be read along:
    `SELECT ... FROM readings JOIN 'stations.csv' USING (station)`. Needs DuckDB: pip install 'stelae[sql]'.

    Example: stelae sql "SELECT station, avg(celsius) FROM readings GROUP BY ALL" --connect 127.0.0.1:7051"""
    from stelae_transfer.commands.run_sql import run_sql

    target = Target(directory=directory, connect=connect, tables=tables, table="", timeout_s=timeout_s)
    raise typer.Exit(run_sql(target, query, at, "json" if as_json else form, output, overwrite, explain))
