"""``stelae tserver retire``, ``maintenance`` and ``activate``: what masters do with the replicas of a tablet server."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from stelae.cli.kit.connection import NAME_HELP, ConnectOption, TimeoutOption
from stelae.cli.kit.output import JsonOption
from stelae.cli.kit.progress import ProgressOption
from stelae.cli.table import MasterDirOption

ServerArgument = Annotated[str, typer.Argument(metavar="SERVER", help=NAME_HELP.format("tablet server", "tserver-1"))]


def register(commands: typer.Typer) -> None:
    """Add the commands to the group ``stelae tserver``."""
    commands.command("retire")(retire)
    commands.command("maintenance")(maintenance)
    commands.command("activate")(activate)


def retire(
    name: ServerArgument,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the server has no replicas.")] = False,
    wait_s: Annotated[
        float, typer.Option("--wait-s", min=0.0, max=1e7, help="Longest wait in seconds. 0: as long as it takes.")
    ] = 0.0,
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 10.0,
    progress: ProgressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Move all replicas away from a tablet server, so that it can be stopped for good.

    The server serves until its last replica is gone. It gets no new replicas, and hands over leaderships. The masters
    move the replicas one change at a time for each tablet. They continue even if the command exits or another master
    becomes leader. Repeat the command to see how many are left. `stelae tserver activate` ends the retirement.

    Example: stelae tserver retire 127.0.0.1:7053 --connect 127.0.0.1:7051 --wait"""
    from stelae.cli.masters_target import MastersTarget
    from stelae.cli.run_server_modes import run_retire
    from stelae.spi.errors import CallerError

    if wait_s and not wait:
        raise CallerError("--wait-s needs --wait")
    cluster = MastersTarget(directory, connect, timeout_s)
    raise typer.Exit(
        run_retire(cluster, name, wait_s=(wait_s or math.inf) if wait else None, progress=progress, as_json=as_json)
    )


def maintenance(
    name: ServerArgument,
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Say that a tablet server will be down for planned work, so that its replicas are not replaced meanwhile.

    It hands over its leaderships, and gets no new replicas. The tablets have one replica less while it is down: put no
    second server into maintenance. End it with `stelae tserver activate`."""
    from stelae.cli.masters_target import MastersTarget
    from stelae.cli.run_server_modes import run_mode
    from stelae.protocol.catalog_names import ServerMode

    raise typer.Exit(
        run_mode(MastersTarget(directory, connect, timeout_s), name, ServerMode.MAINTENANCE, as_json=as_json)
    )


def activate(
    name: ServerArgument,
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """End the retirement or the maintenance of a tablet server: it gets replicas again."""
    from stelae.cli.masters_target import MastersTarget
    from stelae.cli.run_server_modes import run_mode
    from stelae.protocol.catalog_names import ServerMode

    raise typer.Exit(run_mode(MastersTarget(directory, connect, timeout_s), name, ServerMode.NORMAL, as_json=as_json))
