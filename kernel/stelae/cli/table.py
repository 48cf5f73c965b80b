"""``stelae table``: manage the tables of a cluster with masters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stelae.cli.kit.connection import ConnectOption, TimeoutOption, split
from stelae.cli.kit.longest_wait import LongestWaitOption, longest_wait_s
from stelae.cli.kit.output import JsonOption, command_group
from stelae.cli.kit.progress import ProgressOption

commands = command_group("List, describe, create, alter, rename, drop and recall tables.")

MasterDirOption = Annotated[
    Path | None, typer.Option("--dir", help="Folder of a local cluster (`stelae cluster up DIR`).")
]
StalenessOption = Annotated[
    float,
    typer.Option(
        "--staleness-s",
        min=0.0,
        max=1e9,
        help="Seconds that the answer may be old. Then one master is enough, also if none leads. 0: ask the leader.",
    ),
]
NameArgument = Annotated[str, typer.Argument(help="Name of the table.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the root application."""
    app.add_typer(commands, name="table")


@commands.command("list")
def list_tables(
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    staleness_s: StalenessOption = 0.0,
    timeout_s: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """List the tables and their states."""
    from stelae.cli.masters_target import MastersTarget
    from stelae.cli.run_table import run_list

    raise typer.Exit(run_list(MastersTarget(directory, connect, timeout_s), staleness_s, as_json=as_json))


@commands.command("describe")
def describe(
    name: NameArgument,
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    staleness_s: StalenessOption = 0.0,
    timeout_s: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Show the columns, the key and the tablets of a table, with the state, leader and replicas of each tablet."""
    from stelae.cli.masters_target import MastersTarget
    from stelae.cli.run_table import run_describe

    raise typer.Exit(run_describe(MastersTarget(directory, connect, timeout_s), name, staleness_s, as_json=as_json))


@commands.command("create")
def create(
    name: NameArgument,
    column: Annotated[
        list[str], typer.Option("--column", help="NAME:TYPE or NAME:TYPE=DEFAULT. Repeat it for each column.")
    ],
    key: Annotated[str, typer.Option("--key", help="Key columns in key order, separated by commas.")],
    hash_: Annotated[
        list[str], typer.Option("--hash", help="COLUMNS:BUCKETS: hash rows into tablets. Repeat it for more levels.")
    ] = [],  # noqa: B006 - typer needs a list
    range_: Annotated[
        str, typer.Option("--range", help="COLUMN:BOUND,BOUND: split the keys into ranges at these values.")
    ] = "",
    replicas: Annotated[int, typer.Option("--replicas", help="Replicas of each tablet: 1, 3, 5 or 7.")] = 3,
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 30.0,
    as_json: JsonOption = False,
) -> None:
    """Create a table, and wait until all its tablets accept writes.

    Columns are nullable, except the key columns and columns with a default.

    Types: bool, int8, int16, int32, int64, float, double, decimal(P,S), string, binary, date, timestamp. To create a
    table that fits a file, use `stelae import`.

    Example: stelae table create readings --column sensor:int64 --column celsius:double --key sensor --hash sensor:4"""
    from stelae.cli.masters_target import MastersTarget
    from stelae.cli.run_table import run_create

    cluster = MastersTarget(directory, connect, timeout_s)
    raise typer.Exit(run_create(cluster, name, column, split(key), hash_, range_, replicas, as_json=as_json))


@commands.command("drop")
def drop(
    name: NameArgument,
    keep_s: Annotated[
        float,
        typer.Option(
            "--keep-s", min=0, help="Seconds during which the table can be recalled. 0: it cannot be recalled."
        ),
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
    add: Annotated[list[str], typer.Option("--add", help="NAME:TYPE or NAME:TYPE=DEFAULT: add a column.")] = [],  # noqa: B006
    drop_: Annotated[list[str], typer.Option("--drop", help="COLUMN: drop a column and its values.")] = [],  # noqa: B006
    rename_: Annotated[list[str], typer.Option("--rename", help="OLD:NEW: rename a column.")] = [],  # noqa: B006
    default: Annotated[list[str], typer.Option("--default", help="COLUMN=VALUE: default for new rows.")] = [],  # noqa: B006
    no_default: Annotated[list[str], typer.Option("--no-default", help="COLUMN: remove its default.")] = [],  # noqa: B006
    add_range: Annotated[list[str], typer.Option("--add-range", help="FROM..UNTIL: add a range of keys.")] = [],  # noqa: B006
    drop_range: Annotated[list[str], typer.Option("--drop-range", help="FROM..UNTIL: drop a range and its rows.")] = [],  # noqa: B006
    replicas: Annotated[int | None, typer.Option("--replicas", help="Replicas of each tablet: 1, 3, 5 or 7.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until all tablets have their replicas.")] = False,
    wait_s: LongestWaitOption = 0.0,
    progress: ProgressOption = None,
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 30.0,
    as_json: JsonOption = False,
) -> None:
    """Change a table, and wait until all its tablets have changed.

    Either all changes are made or none. Options may be repeated. The changes are made in the order of the options
    below. Either bound of a range may be empty. The table can be read and written meanwhile.

    The masters add or remove replicas after the change. With --wait, the command shows how far they are, and returns
    once all tablets have their replicas. A repeated command changes nothing, and waits on.

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
        replicas=replicas,
    )
    cluster, longest_s = MastersTarget(directory, connect, timeout_s), longest_wait_s(wait, wait_s)
    raise typer.Exit(run_alter(cluster, name, wanted, wait_s=longest_s, progress=progress, as_json=as_json))


@commands.command("rename")
def rename(
    name: NameArgument,
    to: Annotated[str, typer.Argument(help="New name of the table.")],
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Rename a table. The old name is free at once."""
    from stelae.cli.masters_target import MastersTarget
    from stelae.cli.run_table_alter import run_rename

    raise typer.Exit(run_rename(MastersTarget(directory, connect, timeout_s), name, to, as_json=as_json))


@commands.command("recall")
def recall(
    table: Annotated[str, typer.Argument(help="Name or id of a table that was dropped with --keep-s.")],
    name: Annotated[str | None, typer.Option("--as", help="New name, if another table has taken the old one.")] = None,
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 30.0,
    as_json: JsonOption = False,
) -> None:
    """Recall a dropped table with all its rows. `stelae table list` shows the tables that can be recalled."""
    from stelae.cli.masters_target import MastersTarget
    from stelae.cli.run_table_alter import run_recall

    raise typer.Exit(run_recall(MastersTarget(directory, connect, timeout_s), table, name, as_json=as_json))
