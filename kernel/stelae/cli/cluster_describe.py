"""``stelae cluster describe``: the whole map of a cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from stelae.cli.kit.connection import ConnectOption, TimeoutOption
from stelae.cli.kit.output import JsonOption
from stelae.cli.table import MasterDirOption

TablesOption = Annotated[
    str, typer.Option("--tables", metavar="TABLE,TABLE", help="Show the tablets of these tables only. Default: all.")
]
BriefOption = Annotated[bool, typer.Option("--brief", help="Leave out the tablets.")]


def register(commands: typer.Typer) -> None:
    """Add the command to the group ``stelae cluster``."""
    commands.command("describe")(describe)


def describe(
    tables: TablesOption = "",
    brief: BriefOption = False,
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Show the whole map of a cluster: masters, tablet servers, tables, and where each replica is.

    A replica that is no follower, or does not run, has its role or its state after its address. The size of a tablet is
    that of its largest replica. `stelae check` says what is wrong, and `stelae table describe` shows columns.

    Exit code 1: no master leads, so that only the masters can be shown.

    Example: stelae cluster describe --connect 127.0.0.1:7051"""
    from stelae.cli.kit.connection import split
    from stelae.cli.masters_target import MastersTarget
    from stelae.cli.run_cluster_describe import run_cluster_describe

    target = MastersTarget(directory, connect, timeout_s)
    raise typer.Exit(run_cluster_describe(target, tables=split(tables), brief=brief, as_json=as_json))
