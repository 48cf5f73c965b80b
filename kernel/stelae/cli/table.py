"""``stelae table``: the tables of a cluster with masters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stelae.cli.kit.connection import ConnectOption, TimeoutOption, split
from stelae.cli.kit.output import JsonOption, command_group

commands = command_group("Tables: list, describe, create, alter, rename, drop and recall. Asks the masters.")

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
    from stelae.cli.masters_target import MastersTarget
    from stelae.cli.run_table import run_list

    raise typer.Exit(run_list(MastersTarget(directory, connect, timeout_s), as_json=as_json))


@commands.command("describe")
def describe(
    name: NameArgument,
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Show a table's columns, its key, and its tablets: the state of each, its leader, and where its replicas are."""
    from stelae.cli.masters_target import MastersTarget
    from stelae.cli.run_table import run_describe

    raise typer.Exit(run_describe(MastersTarget(directory, connect, timeout_s), name, as_json=as_json))


@commands.command("create")
def create(
    name: NameArgument,
    column: Annotated[
        list[str], typer.Option("--column", help="NAME:TYPE of a column, or NAME:TYPE=DEFAULT; repeat it.")
    ],
    key: Annotated[str, typer.Option("--key", help="Names of the key columns, separated by commas, in key order.")],
    hash_: Annotated[
        list[str], typer.Option("--hash", help="COLUMNS:BUCKETS: spread rows over tablets; repeat it for more levels.")
    ] = [],  # noqa: B006 - typer needs a list
    range_: Annotated[
        str, typer.Option("--range", help="COLUMN:BOUND,BOUND: cut the keys into ranges that meet at these values.")
    ] = "",
    replicas: Annotated[int, typer.Option("--replicas", help="Replicas of each tablet: 1, 3, 5 or 7.")] = 3,
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 30.0,
    as_json: JsonOption = False,
) -> None:
    """Create a table, and wait until every tablet of it takes writes.

    All but the key, and columns with a default, may be empty.

    Types: bool, int8, int16, int32, int64, float, double, decimal(P,S), string, binary, date, timestamp. To create one
    that fits a file, use `stelae import`.

    Example: stelae table create readings --column sensor:int64 --column celsius:double --key sensor --hash sensor:4"""
    from stelae.cli.masters_target import MastersTarget
    from stelae.cli.run_table import run_create

    cluster = MastersTarget(directory, connect, timeout_s)
    raise typer.Exit(run_create(cluster, name, column, split(key), hash_, range_, replicas, as_json=as_json))


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
    from stelae.cli.masters_target import MastersTarget
    from stelae.cli.run_table import run_drop

    raise typer.Exit(run_drop(MastersTarget(directory, connect, timeout_s), name, keep_s, as_json=as_json))


@commands.command("alter")
def alter(
    name: NameArgument,
    add: Annotated[list[str], typer.Option("--add", help="NAME:TYPE, or NAME:TYPE=DEFAULT: add a column.")] = [],  # noqa: B006
    drop_: Annotated[list[str], typer.Option("--drop", help="COLUMN: drop a column and its values.")] = [],  # noqa: B006
    rename_: Annotated[list[str], typer.Option("--rename", help="OLD:NEW: rename a column.")] = [],  # noqa: B006
    default: Annotated[list[str], typer.Option("--default", help="COLUMN=VALUE: of rows to come.")] = [],  # noqa: B006
    no_default: Annotated[list[str], typer.Option("--no-default", help="COLUMN: take its default away.")] = [],  # noqa: B006
    add_range: Annotated[list[str], typer.Option("--add-range", help="FROM..UNTIL: add a range of keys.")] = [],  # noqa: B006
    drop_range: Annotated[list[str], typer.Option("--drop-range", help="FROM..UNTIL: drop it with its rows.")] = [],  # noqa: B006
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 30.0,
    as_json: JsonOption = False,
) -> None:
    """Change a table: all of what is said, or nothing of it; returns when every tablet has come along.

    Options may be repeated; steps are taken in the order in which they are listed here. Either end of a range may be
    left out. Readers and writers of the table go on.

    Example: stelae table alter readings --add unit:string=C --rename celsius:degrees"""
    from stelae.cli.masters_target import MastersTarget
    from stelae.cli.run_table_alter import AlterOptions, run_alter

    wanted = AlterOptions(
        add=add,
        drop=drop_,
        rename=rename_,
        default=default,
        no_default=no_default,
        add_range=add_range,
        drop_range=drop_range,
    )
    raise typer.Exit(run_alter(MastersTarget(directory, connect, timeout_s), name, wanted, as_json=as_json))


@commands.command("rename")
def rename(
    name: NameArgument,
    to: Annotated[str, typer.Argument(help="Its name from now on.")],
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Call a table by another name; the old one is free at once."""
    from stelae.cli.masters_target import MastersTarget
    from stelae.cli.run_table_alter import run_rename

    raise typer.Exit(run_rename(MastersTarget(directory, connect, timeout_s), name, to, as_json=as_json))


@commands.command("recall")
def recall(
    table: Annotated[str, typer.Argument(help="Name or id of a table that was dropped with --keep-s.")],
    name: Annotated[
        str | None, typer.Option("--as", help="Its name from now on, if another table has taken the old one.")
    ] = None,
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 30.0,
    as_json: JsonOption = False,
) -> None:
    """Bring a dropped table back, with all its rows, as long as it is kept; `stelae table list` shows which are."""
    from stelae.cli.masters_target import MastersTarget
    from stelae.cli.run_table_alter import run_recall

    raise typer.Exit(run_recall(MastersTarget(directory, connect, timeout_s), table, name, as_json=as_json))
