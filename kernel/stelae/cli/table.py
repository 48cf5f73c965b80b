"""``stelae table``: the tables of a cluster with masters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stelae.cli.connection import ConnectOption, TimeoutOption, split
from stelae.cli.output import JsonOption, command_group

commands = command_group("Tables: list them, describe one, create and drop. Asks the masters.")

MasterDirOption = Annotated[
    Path | None, typer.Option("--dir", help="Folder of a local cluster (`stelae cluster up DIR`).")
]
NameArgument = Annotated[str, typer.Argument(help="Name of the table.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the root application."""
    app.add_typer(commands, name="table")


@commands.command("list")
def list_tables(
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """List the tables, and the state of each."""
    from stelae.cli.run_table import Cluster, run_list

    raise typer.Exit(run_list(Cluster(directory, connect, timeout_s), as_json=as_json))


@commands.command("describe")
def describe(
    name: NameArgument,
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Show a table's columns, its key, and its tablets: the state of each, its leader, and where its replicas are."""
    from stelae.cli.run_table import Cluster, run_describe

    raise typer.Exit(run_describe(Cluster(directory, connect, timeout_s), name, as_json=as_json))


@commands.command("create")
def create(
    name: NameArgument,
    column: Annotated[
        list[str], typer.Option("--column", help="NAME:TYPE of a column; repeat it. All but the key may be empty.")
    ],
    key: Annotated[str, typer.Option("--key", help="Names of the key columns, separated by commas, in key order.")],
    hash_: Annotated[
        list[str], typer.Option("--hash", help="COLUMNS:BUCKETS: spread rows over tablets; repeat it for more levels.")
    ] = [],  # noqa: B006 - typer needs a list
    replicas: Annotated[int, typer.Option("--replicas", min=1, max=7, help="Replicas of each tablet; odd.")] = 3,
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 30.0,
    as_json: JsonOption = False,
) -> None:
    """Create a table, and wait until every tablet of it takes writes.

    Types: bool, int8, int16, int32, int64, float, double, decimal(P,S), string, binary, date, timestamp. To create one
    that fits a file, use `stelae import`.

    Example: stelae table create readings --column sensor:int64 --column celsius:double --key sensor --hash sensor:4"""
    from stelae.cli.run_table import Cluster, run_create

    cluster = Cluster(directory, connect, timeout_s)
    raise typer.Exit(run_create(cluster, name, column, split(key), hash_, replicas, as_json=as_json))


@commands.command("drop")
def drop(
    name: NameArgument,
    keep_s: Annotated[
        float, typer.Option("--keep-s", min=0, help="Seconds for which the table can still be recalled; 0: for good.")
    ] = 0.0,
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Drop a table with all its rows."""
    from stelae.cli.run_table import Cluster, run_drop

    raise typer.Exit(run_drop(Cluster(directory, connect, timeout_s), name, keep_s, as_json=as_json))
