"""``stelae tserver retire``, ``maintenance`` and ``activate``: what masters do with the replicas of a tablet server."""

from __future__ import annotations

from typing import Annotated

import typer

from stelae.cli.kit.connection import NAME_HELP, ConnectOption, TimeoutOption
from stelae.cli.kit.longest_wait import LongestWaitOption, longest_wait_s
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
    wait_s: LongestWaitOption = 0.0,
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

    cluster, longest_s = MastersTarget(directory, connect, timeout_s), longest_wait_s(wait, wait_s)
    raise typer.Exit(run_retire(cluster, name, wait_s=longest_s, progress=progress, as_json=as_json))


def maintenance(
    name: ServerArgument,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until other servers lead its tablets.")] = False,
    wait_s: LongestWaitOption = 0.0,
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 10.0,
    progress: ProgressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say that a tablet server will be down for planned work, so that its replicas are not replaced meanwhile.

    It hands over its leaderships, and gets no new replicas. With --wait, the command returns once it leads no tablet
    that another replica could lead, so that writes do not wait for elections when it stops. It says if the server has
    the only full voter of a tablet, which is offline while the server is down. The tablets have one replica less while
    it is down: put no second server into maintenance. End it with `stelae tserver activate`.

    Example: stelae tserver maintenance 127.0.0.1:7053 --connect 127.0.0.1:7051 --wait"""
    from stelae.cli.masters_target import MastersTarget
    from stelae.cli.run_server_modes import run_maintenance

    cluster, longest_s = MastersTarget(directory, connect, timeout_s), longest_wait_s(wait, wait_s)
    raise typer.Exit(run_maintenance(cluster, name, wait_s=longest_s, progress=progress, as_json=as_json))


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
