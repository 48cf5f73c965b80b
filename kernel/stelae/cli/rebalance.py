"""``stelae cluster rebalance``: what the masters still move until a cluster is balanced."""

from __future__ import annotations

from typing import Annotated

import typer

from stelae.cli.kit.connection import ConnectOption, TimeoutOption
from stelae.cli.kit.longest_wait import LongestWaitOption, longest_wait_s
from stelae.cli.kit.output import JsonOption
from stelae.cli.kit.progress import ProgressOption
from stelae.cli.table import MasterDirOption

PlanOption = Annotated[
    bool, typer.Option("--plan", help="List the changes that the policy would make now, with their reasons.")
]
WaitOption = Annotated[bool, typer.Option("--wait", help="Wait until nothing is left to do.")]
RateOption = Annotated[
    str, typer.Option("--rate", metavar="BYTES", help="For the estimate: bytes per second to a server without a limit.")
]


def register(commands: typer.Typer) -> None:
    """Add the command to the group ``stelae cluster``."""
    commands.command("rebalance")(rebalance)


def rebalance(
    plan: PlanOption = False,
    wait: WaitOption = False,
    wait_s: LongestWaitOption = 0.0,
    rate: RateOption = "50MiB",
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 10.0,
    progress: ProgressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what the masters still move until the replicas of a cluster are balanced, or wait for it.

    The masters repair and balance by themselves, whether this command runs or not. It asks them for the state of the
    cluster and for the settings of their policy, and computes what the policy would do: repairs, moves to balance
    servers, transfers of leaders. It looks several plans ahead, for the bytes that are still to copy and an estimate
    of the time, in which the limits of `stelae copy limit` count. The masters draw other random numbers, so they may
    choose another server of the same kind. With `[policy.placement] moves_max = 0` the masters repair and do not
    balance, which the command says.

    Exit code 1: with --wait, something is left to do after --wait-s.

    Example: stelae cluster rebalance --connect 127.0.0.1:7051 --plan"""
    from stelae.cli.masters_target import MastersTarget
    from stelae.cli.run_rebalance import run_rebalance

    target, longest_s = MastersTarget(directory, connect, timeout_s), longest_wait_s(wait, wait_s)
    raise typer.Exit(run_rebalance(target, plan=plan, wait_s=longest_s, rate=rate, progress=progress, as_json=as_json))
