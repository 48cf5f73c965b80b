"""``stelae tserver``: run, list and describe tablet servers."""

from __future__ import annotations

from typing import Annotated

import typer

from stelae.cli import server_modes
from stelae.cli.kit.connection import NAME_HELP, ConnectOption, TimeoutOption
from stelae.cli.kit.output import JsonOption, LogFormatOption, command_group
from stelae.cli.table import MasterDirOption

commands = command_group(
    "Run, list and describe tablet servers: the nodes that have replicas and serve reads and writes."
)


def register(app: typer.Typer) -> None:
    """Add the commands to the root application."""
    server_modes.register(commands)
    app.add_typer(commands, name="tserver")


@commands.callback()
def _group() -> None:
    """Run, list and describe tablet servers: the nodes that have replicas and serve reads and writes."""


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
    """Run one tablet server until Ctrl-C or SIGTERM. It logs to standard error.

    Format the directory that node.toml names once with `stelae fs format --config`. A SIGKILL at any time loses no
    acknowledged write."""
    from stelae.cli.run_node import run_node

    raise typer.Exit(run_node(config, until_stdin_closes=until_stdin_closes, verbose=verbose, log_format=log_format))


@commands.command("list")
def list_servers(
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """List the tablet servers: state, last heartbeat, replicas, size, free space and location of each."""
    from stelae.cli.masters_target import MastersTarget
    from stelae.cli.run_nodes import run_servers

    raise typer.Exit(run_servers(MastersTarget(directory, connect, timeout_s), as_json=as_json))


@commands.command("describe")
def describe(
    name: Annotated[str, typer.Argument(help=NAME_HELP.format("tablet server", "tserver-1"))],
    settings: Annotated[bool, typer.Option("--settings", help="Also show all its settings.")] = False,
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Show one tablet server: its state, replicas, connections, disk, clock, quarantine and engines."""
    from stelae.cli.masters_target import MastersTarget
    from stelae.cli.run_nodes import run_server

    cluster = MastersTarget(directory, connect, timeout_s)
    raise typer.Exit(run_server(cluster, name, settings=settings, as_json=as_json))
