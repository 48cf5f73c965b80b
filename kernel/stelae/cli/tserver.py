"""``stelae tserver``: run a tablet server."""

from __future__ import annotations

from typing import Annotated

import typer

from stelae.cli.output import command_group

commands = command_group("Tablet servers: nodes that hold replicas and serve reads and writes.")


def register(app: typer.Typer) -> None:
    """Add the commands to the root application."""
    app.add_typer(commands, name="tserver")


@commands.callback()
def _group() -> None:
    """Tablet servers: nodes that hold replicas and serve reads and writes."""


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
    """Run one node until it is interrupted (Ctrl-C or SIGTERM); logs go to standard error.

    The directory that node.toml names must be formatted once, with `stelae fs format --config`.
    A SIGKILL at any time loses nothing that was acknowledged."""
    from stelae.cli.run_node import run_node

    raise typer.Exit(run_node(config, until_stdin_closes=until_stdin_closes, verbose=verbose))
