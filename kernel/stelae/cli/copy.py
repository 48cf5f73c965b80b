"""``stelae copy``: the copies of tablets that are in progress, and control of them."""

from __future__ import annotations

from typing import Annotated

import typer

from stelae.cli.kit.connection import NAME_HELP, ConnectOption, TimeoutOption
from stelae.cli.kit.output import JsonOption, command_group
from stelae.cli.table import MasterDirOption

commands = command_group("Show, pause, cancel and limit the copies of tablets to tablet servers.")

ToOption = Annotated[
    str, typer.Option("--to", metavar="SERVER", help=NAME_HELP.format("tablet server that gets the copy", "tserver-1"))
]
TabletArgument = Annotated[
    str | None, typer.Argument(metavar="[TABLET]", help="Id of the tablet in `copy list`, or its first four letters.")
]
AllOption = Annotated[bool, typer.Option("--all", help="Every copy to the server, instead of one tablet.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the root application."""
    app.add_typer(commands, name="copy")


@commands.callback()
def _group() -> None:
    """Show, pause, cancel and limit the copies of tablets to tablet servers."""


@commands.command("list")
def list_copies(
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """List the copies that are in progress or wait: tablet, source, target, bytes, and the expected time until the end.

    Copies begin and go on by themselves: the leader of a tablet starts one for each member that lacks a part of the log
    that it does not have any more. A copy that was interrupted fetches only what is missing. Once it has all bytes, it
    is verified and installed, and the time until the end is not known. --json has the phase: PREPARING, FETCHING,
    VERIFYING, INSTALLING or ENDING. A copy waits if all slots of the server are in use, or if it is paused. The limits
    of bytes per second are shown if a server has any. A tablet server that does not answer is named.

    Example: stelae copy list --connect 127.0.0.1:7051"""
    from stelae.cli.masters_target import MastersTarget
    from stelae.cli.run_copies import run_list

    raise typer.Exit(run_list(MastersTarget(directory, connect, timeout_s), as_json=as_json))


@commands.command("pause")
def pause(
    to: ToOption,
    tablet: TabletArgument = None,
    everything: AllOption = False,
    for_s: Annotated[
        float, typer.Option("--for-s", min=1, max=86_400, help="Seconds until the copy resumes.")
    ] = 3_600.0,
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Pause the copy of one tablet to a server, or all copies to it.

    A paused copy fetches nothing more and keeps what has arrived. With `--all`, copies that have not begun wait too.
    The masters wait for a paused copy, and place no other replica meanwhile. The source keeps its log for it, so a
    pause ends by itself after `--for-s`, or when the server restarts. Repeat the command to pause for longer.

    Example: stelae copy pause --all --to 127.0.0.1:7053 --connect 127.0.0.1:7051"""
    from stelae.cli.masters_target import MastersTarget
    from stelae.cli.run_copy_orders import run_pause

    target = MastersTarget(directory, connect, timeout_s)
    raise typer.Exit(run_pause(target, to, tablet, everything=everything, for_s=for_s, as_json=as_json))


@commands.command("resume")
def resume(
    to: ToOption,
    tablet: TabletArgument = None,
    everything: AllOption = False,
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """End the pause of the copy of one tablet, or of all copies to a server.

    It also lets a copy begin again that was cancelled a short time ago. To resume what is not paused changes nothing.

    Example: stelae copy resume --all --to 127.0.0.1:7053 --connect 127.0.0.1:7051"""
    from stelae.cli.masters_target import MastersTarget
    from stelae.cli.run_copy_orders import run_resume

    target = MastersTarget(directory, connect, timeout_s)
    raise typer.Exit(run_resume(target, to, tablet, everything=everything, as_json=as_json))


@commands.command("cancel")
def cancel(
    to: ToOption,
    tablet: TabletArgument = None,
    everything: AllOption = False,
    not_for_s: Annotated[
        float, typer.Option("--not-for-s", min=1, max=86_400, help="Seconds during which the server refuses this copy.")
    ] = 600.0,
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Cancel the copy of one tablet to a server, or all copies to it, and remove what they have fetched.

    The replica is then what it was before the copy: it keeps its vote if it had one. The server stays a member of the
    tablet, whose leader asks for the copy again and again: the server refuses for `--not-for-s`. Meanwhile the masters
    place the replica on another server, if there is one. Otherwise the copy begins again, from the start. To keep what
    has arrived, pause the copy instead. A copy that is complete is not undone.

    Example: stelae copy cancel 3f2a --to 127.0.0.1:7053 --connect 127.0.0.1:7051"""
    from stelae.cli.masters_target import MastersTarget
    from stelae.cli.run_copy_orders import run_cancel

    target = MastersTarget(directory, connect, timeout_s)
    raise typer.Exit(run_cancel(target, to, tablet, everything=everything, not_for_s=not_for_s, as_json=as_json))


@commands.command("limit")
def limit(
    server: Annotated[str, typer.Argument(metavar="SERVER", help=NAME_HELP.format("tablet server", "tserver-1"))],
    incoming: Annotated[
        str | None,
        typer.Option(
            "--in",
            metavar="BYTES",
            help="Limit in bytes per second for all copies to the server together, such as 20MiB, or none.",
        ),
    ] = None,
    outgoing: Annotated[
        str | None,
        typer.Option(
            "--out",
            metavar="BYTES",
            help="Limit in bytes per second for all copies from the server together, such as 20MiB, or none.",
        ),
    ] = None,
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Limit the bytes per second of copies to and from a server, or show its limits.

    A limit holds at once, also for copies in progress, and until the server restarts: then
    `[copy.streaming] fetch_bytes_per_s_max` and `serve_bytes_per_s_max` of its node.toml apply again. 0 and `none` mean
    no limit. Units are binary: 1k is 1024 bytes. Without `--in` and `--out` nothing is changed.

    Example: stelae copy limit 127.0.0.1:7053 --in 20MiB --connect 127.0.0.1:7051"""
    from stelae.cli.masters_target import MastersTarget
    from stelae.cli.run_copy_orders import run_limit

    target = MastersTarget(directory, connect, timeout_s)
    raise typer.Exit(run_limit(target, server, incoming, outgoing, as_json=as_json))
