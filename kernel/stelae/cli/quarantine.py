"""``stelae tablet quarantine``: list, purge and restore the data of deleted replicas that a node keeps."""

from __future__ import annotations

from typing import Annotated

import typer

from stelae.cli.fs import ConfigOption, DirectoryArgument
from stelae.cli.kit.output import JsonOption, command_group

commands = command_group(
    """List, purge or restore the data of deleted replicas that a node keeps in quarantine.

    Works on the directory of one node. A node purges what exceeds the limits of its section [quarantine]."""
)

NameOption = Annotated[str, typer.Option("--name", help="Name of a directory in `list`: <tablet-id>.<number>.")]


@commands.command("list")
def list_quarantine(
    directory: DirectoryArgument = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """List the directories in quarantine: tablet, time and reason of the deletion, size. Works while the node runs."""
    from stelae.cli.run_quarantine import run_list

    raise typer.Exit(run_list(directory, config, as_json=as_json))


@commands.command("purge")
def purge(
    directory: DirectoryArgument = None,
    config: ConfigOption = None,
    name: Annotated[list[str], typer.Option("--name", help="Name of a directory in `list`. Repeat it for more.")] = [],  # noqa: B006 - typer needs a list
    older_than_s: Annotated[
        float | None,
        typer.Option("--older-than-s", min=0, help="Every directory that was deleted more than this many seconds ago."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every directory.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete directories in quarantine for good. The node must not run. The tombstones of the replicas stay.

    Example: stelae tablet quarantine purge /var/lib/stelae --older-than-s 86400"""
    from stelae.cli.run_quarantine import run_purge

    raise typer.Exit(run_purge(directory, config, name, older_than_s, everything=everything, as_json=as_json))


@commands.command("restore")
def restore(
    name: NameOption, directory: DirectoryArgument = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Restore a deleted replica from quarantine. The node must not run.

    Only the last deletion of a tablet can be undone, and only if the log in quarantine has every entry that the replica
    has acknowledged. Older data are refused, because the replica would forget acknowledged entries. Term and vote do
    not change. Masters delete the replica again if its table is gone, or if it is no longer a member of its tablet."""
    from stelae.cli.run_quarantine import run_restore

    raise typer.Exit(run_restore(directory, config, name, as_json=as_json))
