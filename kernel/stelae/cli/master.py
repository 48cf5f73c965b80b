"""``stelae master``: run a master."""

from __future__ import annotations

from typing import Annotated

import typer

from stelae.cli.output import command_group

commands = command_group("Masters: nodes that keep the catalog, and see that every tablet is where it should be.")


def register(app: typer.Typer) -> None:
    """Add the commands to the root application."""
    app.add_typer(commands, name="master")


@commands.callback()
def _group() -> None:
    """Masters: nodes that keep the catalog, and see that every tablet is where it should be."""


@commands.command("run")
def run(
    config: Annotated[str, typer.Option("--config", help="The node.toml of this node.")],
    until_stdin_closes: Annotated[
        bool,
        typer.Option(
            "--until-stdin-closes", help="Stop when standard input ends: a parent's death then ends this node too."
        ),
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log every detail.")] = False,
) -> None:
    """Run one master until it is interrupted (Ctrl-C or SIGTERM); logs go to standard error.

    Its node.toml lists all masters under [masters], as that of every tablet server does, and has no [tablet]. The
    directory must be formatted once, with `stelae fs format --config`. The number of masters is odd; a majority of them
    keeps the catalog."""
    from stelae.cli.run_node import run_node

    raise typer.Exit(run_node(config, until_stdin_closes=until_stdin_closes, verbose=verbose, is_master=True))
