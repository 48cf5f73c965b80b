"""The command group ``stelae bench``."""

from __future__ import annotations

from typing import Any

import typer

from stelae_bench.cluster_command import cluster
from stelae_bench.copy_command import copy
from stelae_bench.spark_command import spark
from stelae_bench.wal_command import wal


def register(app: Any) -> None:
    """Add the group to the root application."""
    group = typer.Typer(
        no_args_is_help=True,
        rich_markup_mode=None,
        help="Measure the performance of this installation on this machine.",
    )
    group.callback()(_group)
    group.command("cluster")(cluster)
    group.command("wal")(wal)
    group.command("spark")(spark)
    group.command("copy")(copy)
    app.add_typer(group, name="bench")


def _group() -> None:
    """Measure the performance of this installation on this machine."""
