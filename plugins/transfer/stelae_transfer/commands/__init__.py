"""The commands of the plugin. Each imports what is heavy inside the command, so that ``--help`` is quick."""

from __future__ import annotations

import typer

from stelae_transfer.commands import export, get, import_, scan, sql


def register(app: typer.Typer) -> None:
    """Add all commands to the root application."""
    for module in (import_, export, scan, get, sql):
        module.register(app)
