"""``stelae cluster``: run a whole cluster on this machine, for trials; and see a cluster balance itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stelae.cli.cluster_describe import register as register_describe
from stelae.cli.kit.output import JsonOption, command_group
from stelae.cli.kit.sigterm import sigterm_as_interrupt
from stelae.cli.rebalance import register as register_rebalance

commands = command_group(
    """Run a local cluster: masters and tablet servers as processes on this machine.

    The nodes listen on the loopback interface only, and store everything in one folder. `describe` and `rebalance`
    are for every cluster."""
)

FolderArgument = Annotated[Path, typer.Argument(help="Folder of the cluster.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the root application."""
    app.add_typer(commands, name="cluster")


@commands.command("up")
def up(
    directory: FolderArgument,
    masters: Annotated[
        int, typer.Option("--masters", min=1, max=7, help="Number of masters of a new cluster. Must be odd.")
    ] = 3,
    servers: Annotated[
        int, typer.Option("--servers", min=1, max=32, help="Number of tablet servers of a new cluster.")
    ] = 3,
    wal: Annotated[
        str,
        typer.Option(
            "--wal", help="Log engine of the tablet servers, or a comma-separated list for the servers in turn."
        ),
    ] = "",
    store: Annotated[
        str,
        typer.Option(
            "--store", help="Tablet store of the tablet servers, or a comma-separated list for the servers in turn."
        ),
    ] = "",
    timeout_s: Annotated[
        float, typer.Option("--timeout-s", min=1, max=300, help="Seconds to wait for the cluster.")
    ] = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Start a cluster. Create it first if the folder is empty.

    Nodes that are running already are not restarted. The command returns when every node answers and the masters have
    heard from every tablet server. The processes keep running: stop them with `stelae cluster down`. The command prints
    the addresses of the masters. Clients connect to any of them.

    Example: stelae cluster up /tmp/try --servers 3"""
    from stelae.cli.run_cluster import run_up

    engines = {kind: name for kind, name in (("wal", wal), ("store", store)) if name}
    with sigterm_as_interrupt():
        code = run_up(directory, masters, servers, engines, timeout_s, as_json=as_json)
    raise typer.Exit(code)


@commands.command("add-server")
def add_server(
    directory: FolderArgument,
    timeout_s: Annotated[
        float, typer.Option("--timeout-s", min=1, max=300, help="Seconds to wait for the cluster.")
    ] = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Add a tablet server to a cluster, and start it.

    It has the settings and engines of the last server. The masters move replicas to it, for balance or in place of lost
    ones. To take a server out again, use `stelae tserver retire`.

    Example: stelae cluster add-server /tmp/try"""
    from stelae.cli.run_cluster import run_add_server

    raise typer.Exit(run_add_server(directory, timeout_s, as_json=as_json))


@commands.command("status")
def status(directory: FolderArgument, as_json: JsonOption = False) -> None:
    """Show the processes, the leading master and the tables of a cluster.

    Asks every node. A node is shown as silent, with the reason, if its process runs but does not answer, or if it is a
    tablet server that the masters do not hear from. `stelae check` shows more.

    Exit code 0: every node works. 1: a node is down or silent, or the masters do not serve."""
    from stelae.cli.run_cluster import run_status

    raise typer.Exit(run_status(directory, as_json=as_json))


@commands.command("down")
def down(
    directory: FolderArgument,
    timeout_s: Annotated[
        float,
        typer.Option(
            "--timeout-s",
            min=1,
            max=300,
            help="Seconds to wait for the tablet servers to stop, and then for the masters. Processes that still run "
            "are killed.",
        ),
    ] = 20,
    as_json: JsonOption = False,
) -> None:
    """Stop every process of a cluster. Its data are kept, and `up` starts it again.

    Exit code 1: a process still runs after SIGKILL, perhaps because it waits for the disk."""
    from stelae.cli.run_cluster import run_down

    raise typer.Exit(run_down(directory, timeout_s, as_json=as_json))


register_describe(commands)
register_rebalance(commands)
