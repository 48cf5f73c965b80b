"""``stelae copy``: the copies of tablets that are in progress."""

from __future__ import annotations

import typer

from stelae.cli.kit.connection import ConnectOption, TimeoutOption
from stelae.cli.kit.output import JsonOption, command_group
from stelae.cli.table import MasterDirOption

commands = command_group("Show the copies of tablets to tablet servers.")


def register(app: typer.Typer) -> None:
    """Add the commands to the root application."""
    app.add_typer(commands, name="copy")


@commands.callback()
def _group() -> None:
    """Show the copies of tablets to tablet servers."""


@commands.command("list")
def list_copies(
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """List the copies that are in progress: tablet, source, target, bytes, and the expected time until the end.

    Copies begin and go on by themselves: the leader of a tablet starts one for each member that lacks a part of the log
    that it does not have any more. A copy that was interrupted fetches only what is missing. `[copy.streaming]` in
    node.toml limits their rate and their number. A tablet server that does not answer is named.

    Example: stelae copy list --connect 127.0.0.1:7051"""
    from stelae.cli.masters_target import MastersTarget
    from stelae.cli.run_copies import run_list

    raise typer.Exit(run_list(MastersTarget(directory, connect, timeout_s), as_json=as_json))
