"""``stelae master``: run, list, describe and change masters, and work on the directories of stopped ones."""

from __future__ import annotations

from typing import Annotated

import typer

from stelae.cli import master_members, master_offline
from stelae.cli.kit.connection import NAME_HELP, ConnectOption, TimeoutOption
from stelae.cli.kit.output import JsonOption, LogFormatOption, command_group
from stelae.cli.table import MasterDirOption

commands = command_group("Run, list and change masters: the nodes that keep the catalog and place tablets.")


def register(app: typer.Typer) -> None:
    """Add the commands to the root application."""
    master_members.register(commands)
    master_offline.register(commands)
    app.add_typer(commands, name="master")


@commands.callback()
def _group() -> None:
    """Run, list and change masters: the nodes that keep the catalog and place tablets."""


@commands.command("run")
def run(
    config: Annotated[str, typer.Option("--config", help="The node.toml of this node.")],
    until_stdin_closes: Annotated[
        bool,
        typer.Option(
            "--until-stdin-closes", help="Stop when standard input closes, such as when the parent process ends."
        ),
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log at level debug.")] = False,
    log_format: LogFormatOption = None,
) -> None:
    """Run one master until Ctrl-C or SIGTERM. It logs to standard error.

    Its node.toml has no section [tablet]. Format its directory once with `stelae fs format --config`; for a master that
    begins a new cluster, pass its --uuid from the list. In the section [masters] it lists the masters that begin a new
    cluster, an odd number, or the masters of the cluster that it joins. A master that joins does not list itself: it
    waits for `stelae master add`. Once a cluster has begun, its log has the masters, and the list is only for the first
    contact. The catalog is available while a majority of them runs."""
    from stelae.cli.run_node import run_node

    raise typer.Exit(
        run_node(config, until_stdin_closes=until_stdin_closes, verbose=verbose, log_format=log_format, is_master=True)
    )


@commands.command("list")
def list_masters(
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """List the masters: type, role, term, last and applied entry, release, uptime and state of each.

    Works without a leader, as long as one master answers."""
    from stelae.cli.masters_target import MastersTarget
    from stelae.cli.run_nodes import run_masters

    raise typer.Exit(run_masters(MastersTarget(directory, connect, timeout_s), as_json=as_json))


@commands.command("describe")
def describe(
    name: Annotated[str, typer.Argument(help=NAME_HELP.format("master", "master-1"))],
    settings: Annotated[bool, typer.Option("--settings", help="Also show all its settings.")] = False,
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Show one master: its role, log, connections, disk, clock and settings. Works without a leader.

    Give the address of a master that runs and was removed, or that waits to be added."""
    from stelae.cli.masters_target import MastersTarget
    from stelae.cli.run_nodes import run_master

    cluster = MastersTarget(directory, connect, timeout_s)
    raise typer.Exit(run_master(cluster, name, settings=settings, as_json=as_json))
