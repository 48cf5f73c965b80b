"""The commands of the plugin. They import heavy libraries when they run, so that ``--help`` is quick."""

from __future__ import annotations

import typer

from stelae_transfer.commands import export, get, import_, scan, sql


def register(app: typer.Typer) -> None:
    """Add all commands to the root application."""
    for module in (import_, export, scan, get, sql):
        module.register(app)
