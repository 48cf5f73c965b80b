"""The commands on the directory of a stopped master: ``stelae master rewrite`` and ``stelae master copy``."""

from __future__ import annotations

from typing import Annotated

import typer

from stelae.cli.kit.output import JsonOption
from stelae.cli.kit.progress import ProgressOption

ConfigOption = Annotated[str, typer.Option("--config", help="The node.toml of the stopped master.")]
MembersArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="UUID=HOST:PORT...", help="All masters, including this one. `stelae fs uuid` prints the uuid of each."
    ),
]


def register(commands: typer.Typer) -> None:
    """Add the commands to the group ``stelae master``."""
    commands.command("rewrite")(rewrite)
    commands.command("copy")(copy)


def rewrite(
    members: MembersArgument,
    config: ConfigOption,
    timeout_s: Annotated[
        float, typer.Option("--timeout-s", min=0.1, max=300.0, help="Timeout of each change, in seconds.")
    ] = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Rewrite which masters there are, in the directory of a stopped master that is the only one.

    Needs no other node. The masters are part of the log, so the command adds entries to it, as a running master would:
    new masters without a vote, which they get once they run and have the log, new addresses, and removals. This master
    stays the only voter until then, so nothing can be lost. The command can be repeated.

    It is refused while the node runs, and if there are other voters: their config changes with `stelae master add`,
    `remove` and `replace`, or, if the majority is lost for good, with `stelae recover`. It is refused for an even
    number of masters, and for a uuid that had a vote before.

    Where a cluster can run meanwhile, `stelae master add` needs no downtime.

    Example: stelae master rewrite 0f3c...=master-1:7051 8d21...=master-2:7051 c4a0...=master-3:7051 --config node.toml
    """
    from stelae.cli.run_master_rewrite import run_rewrite

    raise typer.Exit(run_rewrite(config, members, timeout_s, as_json=as_json))


def copy(
    source: Annotated[str, typer.Option("--from", metavar="HOST:PORT", help="Address of a running master.")],
    config: ConfigOption,
    timeout_s: Annotated[
        float, typer.Option("--timeout-s", min=0.1, max=300.0, help="Seconds until a leader has to answer.")
    ] = 30.0,
    progress: ProgressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy the catalog from running masters to the directory of a stopped one, which is formatted and empty.

    The leader says from whom, and that this node never had a vote. Afterwards the master can be started. If no config
    lists it yet, let it join then, with `stelae master replace` or `stelae master add`. A command that was interrupted
    is repeated: it goes on with what has arrived. A directory that has the catalog is not changed.

    It is refused while the node runs, and for a uuid that has, or had, a vote: an empty directory does not know what
    it has promised.

    A master can also be started with an empty directory, and gets the catalog when it joins.

    Example: stelae master copy --from master-1:7051 --config node.toml"""
    from stelae.cli.run_master_copy import run_copy

    raise typer.Exit(run_copy(config, source, timeout_s, progress, as_json=as_json))
