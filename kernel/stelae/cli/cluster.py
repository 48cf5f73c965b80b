"""``stelae cluster``: a whole cluster on this machine, for trying things out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stelae.cli.kit.output import JsonOption, command_group

commands = command_group(
    """A local cluster: masters and tablet servers as processes of this machine.

    They listen on loopback alone, and keep everything below one folder."""
)

FolderArgument = Annotated[Path, typer.Argument(help="Folder of the cluster.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the root application."""
    app.add_typer(commands, name="cluster")


@commands.command("up")
def up(
    directory: FolderArgument,
    masters: Annotated[int, typer.Option("--masters", min=1, max=7, help="Masters of a new cluster; odd.")] = 3,
    servers: Annotated[int, typer.Option("--servers", min=1, max=32, help="Tablet servers of a new cluster.")] = 3,
    wal: Annotated[str, typer.Option("--wal", help="Log engine; several, by commas, for the servers in turn.")] = "",
    store: Annotated[str, typer.Option("--store", help="Tablet store; several, by commas, for the servers.")] = "",
    timeout_s: Annotated[float, typer.Option("--timeout-s", min=1, max=300, help="How long to wait for it.")] = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Start a cluster, and make it first if the folder is empty; what runs already is left alone.

    Returns when every node answers, and the masters serve and have heard of every tablet server. The processes go on
    when this command ends: stop them with `stelae cluster down`. Clients connect to any master, as it is printed.

    Example: stelae cluster up /tmp/try --servers 3"""
    from stelae.cli.run_cluster import run_up

    engines = {kind: name for kind, name in (("wal", wal), ("store", store)) if name}
    raise typer.Exit(run_up(directory, masters, servers, engines, timeout_s, as_json=as_json))


@commands.command("status")
def status(directory: FolderArgument, as_json: JsonOption = False) -> None:
    """Show which processes run, who leads the masters, and which tables there are; exit code 1 unless all is well.

    Every node is asked. One is shown as silent, with the reason, if its process runs and does not answer, or if it is a
    tablet server that the masters do not hear; `stelae check` says more."""
    from stelae.cli.run_cluster import run_status

    raise typer.Exit(run_status(directory, as_json=as_json))


@commands.command("down")
def down(
    directory: FolderArgument,
    timeout_s: Annotated[
        float, typer.Option("--timeout-s", min=1, max=300, help="Then what still runs is killed.")
    ] = 20,
    as_json: JsonOption = False,
) -> None:
    """Stop every process of a cluster in an orderly way; its data stay. It can be started again with `up`."""
    from stelae.cli.run_cluster import run_down

    raise typer.Exit(run_down(directory, timeout_s, as_json=as_json))
