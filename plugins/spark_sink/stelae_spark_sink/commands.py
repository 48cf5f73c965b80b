"""The commands of the plugin: the group ``stelae spark``. They import PySpark when they run."""

from __future__ import annotations

from typing import Any

import typer

from stelae.cli.kit.output import JsonOption, command_group


def register(app: Any) -> None:
    """Add the group to the root application."""
    group = command_group("Run Spark on tables of Stelae.")
    group.callback()(_group)
    group.command("demo")(demo)
    app.add_typer(group, name="spark")


def _group() -> None:
    """Run Spark on tables of Stelae."""


def demo(as_json: JsonOption = False) -> None:
    """Write a real data set into a cluster with Spark while tablet servers are killed, then compare every row.

    One master and three tablet servers run as processes on this machine, and Spark runs with two tasks at a time. A
    stream reads CSV files with every named character that Python knows, and writes each file exactly once into a table
    of four tablets. After a third of the files the command sends SIGKILL to the tablet server that leads most tablets,
    and starts it again when two more files are written without it. Then every row is read back while another server is
    killed.

    Exit code 0: every row of the table equals its source, counts and sums that Spark computes equal those of the
    source, both jobs went on without the killed server, all replicas agree, and `stelae check` finds no problem. 1: one
    of these conditions does not hold."""
    from stelae_spark_sink.demo.run_demo import run_demo

    raise typer.Exit(run_demo(as_json=as_json))
