"""The commands that change the masters: ``stelae master add``, ``remove``, ``replace`` and ``transfer``."""

from __future__ import annotations

from typing import Annotated

import typer

from stelae.cli.kit.connection import ConnectOption, TimeoutOption
from stelae.cli.kit.output import JsonOption
from stelae.cli.kit.progress import ProgressOption
from stelae.cli.table import MasterDirOption
from stelae.cli.tablet_members import ConfigIdOption

_MASTER_HELP = "Master: its address, or its uuid, of which four letters are enough. With --dir also its name."
MasterArgument = Annotated[str, typer.Argument(metavar="MASTER", help=_MASTER_HELP)]
NewArgument = Annotated[
    str, typer.Argument(metavar="HOST:PORT", help="Address of the new master, at which every node reaches it.")
]


def register(commands: typer.Typer) -> None:
    """Add the commands to the group ``stelae master``."""
    commands.command("add")(add)
    commands.command("remove")(remove)
    commands.command("replace")(replace)
    commands.command("transfer")(transfer)


def add(
    address: NewArgument,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the master has its vote.")] = False,
    config_id: ConfigIdOption = "",
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 60.0,
    progress: ProgressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add a master that runs with a new, empty directory. For a present master, change its address.

    On its machine, write a node.toml with the same [cluster] and [masters] as that of a tablet server. Then run `stelae
    fs format --config` and `stelae master run --config`. It waits until this command lets it join. No other node has to
    be restarted, and no other file to be edited.

    The new master has no vote at first. The leader sends it the catalog, and gives it its vote once it has caught up.
    That goes on by itself, whether the command waits or not. A master that stops answering before is removed
    again. The command can be repeated.

    Example: stelae master add 10.0.0.4:7051 --connect 10.0.0.1:7051 --wait"""
    from stelae.cli.run_master_members import ChangeTarget, run_add

    target = ChangeTarget(directory, connect, timeout_s, config_id, progress)
    raise typer.Exit(run_add(target, address, wait=wait, as_json=as_json))


def remove(
    master: MasterArgument,
    config_id: ConfigIdOption = "",
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 30.0,
    progress: ProgressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove a master, which may be down for good. If it runs, it serves no more requests, and can be stopped.

    A leader hands over its leadership first. A change after which the masters that answer would be no majority is
    refused. The command can be repeated: a node that is no master is no error."""
    from stelae.cli.run_master_members import ChangeTarget, run_remove

    target = ChangeTarget(directory, connect, timeout_s, config_id, progress)
    raise typer.Exit(run_remove(target, master, as_json=as_json))


def replace(
    master: MasterArgument,
    address: NewArgument,
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 300.0,
    progress: ProgressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replace a master, lost or not: add another one, wait until it has its vote, then remove the old one.

    Prepare the new one as for `stelae master add`. It may take over the address of a lost one; its uuid is new. If the
    command is stopped or times out, repeat it: it goes on where it was.

    Example: stelae master replace 10.0.0.3:7051 10.0.0.4:7051 --connect 10.0.0.1:7051"""
    from stelae.cli.run_master_members import ChangeTarget, run_replace

    target = ChangeTarget(directory, connect, timeout_s, progress=progress)
    raise typer.Exit(run_replace(target, master, address, as_json=as_json))


def transfer(
    to: Annotated[str, typer.Option("--to", help=f"{_MASTER_HELP} Default: the most up-to-date one.")] = "",
    config_id: ConfigIdOption = "",
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 30.0,
    as_json: JsonOption = False,
) -> None:
    """Hand over the leadership of the masters. Changes of tables wait for at most one election timeout."""
    from stelae.cli.run_master_members import ChangeTarget, run_transfer

    raise typer.Exit(run_transfer(ChangeTarget(directory, connect, timeout_s, config_id), to, as_json=as_json))
