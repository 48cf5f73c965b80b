"""``stelae sql``: run a query over tables with DuckDB."""

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
    query: Annotated[str, typer.Argument(help="One SELECT in the SQL of DuckDB. Tables are used by their names.")],
    directory: DirOption = None,
    connect: ConnectOption = "",
    tables: TablesOption = None,
    at: AtOption = "",
    form: FormatOption = "",
    output: OutputOption = None,
    overwrite: OverwriteOption = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print what each scan asked of the tablets, on standard error.")
    ] = False,
    timeout_s: TimeoutOption = 30.0,
    as_json: JsonOption = False,
) -> None:
    """Run an SQL query. All its tables are read at one snapshot time.

    Tablets send only the columns that the query needs. They apply its comparisons, `in` and `is null`. DuckDB applies
    the other conditions, and all comparisons of floating-point numbers, because it orders NaN above other numbers. A
    query may also read files: `SELECT ... FROM readings JOIN 'stations.csv' USING (station)`. Needs DuckDB:
    pip install 'stelae[sql]'.

    Example: stelae sql "SELECT station, avg(celsius) FROM readings GROUP BY ALL" --connect 127.0.0.1:7051"""
    from stelae_transfer.commands.run_sql import run_sql

    target = Target(directory=directory, connect=connect, tables=tables, table="", timeout_s=timeout_s)
    raise typer.Exit(run_sql(target, query, at, "json" if as_json else form, output, overwrite, explain))
