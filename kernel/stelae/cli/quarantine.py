"""``stelae tablet quarantine``: what a node has set aside of the replicas that it deleted."""

from __future__ import annotations

from typing import Annotated

import typer

from stelae.cli.fs import ConfigOption, DirectoryArgument
from stelae.cli.kit.output import JsonOption, command_group

commands = command_group(
    """What a node has set aside of the replicas that it deleted: list it, purge it, bring it back.

    Works on the directory of one node. A node purges by itself what is above the limits of [quarantine]."""
)

NameOption = Annotated[str, typer.Option("--name", help="A directory, as `list` names it: <tablet-id>.<number>.")]


@commands.command("list")
def list_quarantine(
    directory: DirectoryArgument = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """List what is set aside: of which tablet, since when, why, and how large it is. Works while the node runs."""
    from stelae.cli.run_quarantine import run_list

    raise typer.Exit(run_list(directory, config, as_json=as_json))


@commands.command("purge")
def purge(
    directory: DirectoryArgument = None,
    config: ConfigOption = None,
    name: Annotated[
        list[str], typer.Option("--name", help="A directory, as `list` names it; repeat it for more.")
    ] = [],  # noqa: B006 - typer needs a list
    older_than_s: Annotated[
        float | None,
        typer.Option("--older-than-s", min=0, help="All that was deleted longer ago than so many seconds."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of it.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove what is set aside, for good. The node must not run. Tombstones stay, and vote on.

    Example: stelae tablet quarantine purge /var/lib/stelae --older-than-s 86400"""
    from stelae.cli.run_quarantine import run_purge

    raise typer.Exit(run_purge(directory, config, name, older_than_s, everything=everything, as_json=as_json))


@commands.command("restore")
def restore(
    name: NameOption, directory: DirectoryArgument = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Make a deleted replica of what is set aside a replica again. The node must not run.

    Only the last deletion of a tablet can be taken back, and only if its log reaches up to all that the replica has
    acknowledged: anything older would go back in time, and is refused. Term and vote stay as they are. Masters delete a
    replica again whose table is gone, or that is no member of its tablet any more."""
    from stelae.cli.run_quarantine import run_restore

    raise typer.Exit(run_restore(directory, config, name, as_json=as_json))
