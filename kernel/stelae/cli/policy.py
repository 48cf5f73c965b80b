"""``stelae policy``: what the masters' policy would change about a cluster and why, and how it fares in a large one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stelae.cli.kit.connection import ConnectOption, TimeoutOption
from stelae.cli.kit.output import JsonOption, command_group, print_json
from stelae.cli.table import MasterDirOption
from stelae.spi.errors import CallerError

if TYPE_CHECKING:
    from stelae.spi.policy import MasterPolicy

ROWS_MAX = 100_000
"""Rows that one `policy explain` prints at most: it holds them all, so that columns fit."""

commands = command_group(
    """What the policy of the masters would change, and why.

    A policy says which server each replica should be on and which replica should lead. It decides and does nothing,
    so it can be asked about any cluster, and about one that does not exist.
    """
)

PolicyOption = Annotated[str, typer.Option("--policy", help="Name of the policy; see `stelae plugins list`.")]
SeedOption = Annotated[int, typer.Option(min=0, help="Seed of the random source: the same plan each time.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the root application."""
    app.add_typer(commands, name="policy")


@commands.command("explain")
def explain(
    snapshot: Annotated[
        Path | None, typer.Argument(help="File with a snapshot of a cluster, as JSON, instead.", show_default=False)
    ] = None,
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 10.0,
    save: Annotated[Path | None, typer.Option(help="Write the snapshot that was asked of the masters here.")] = None,
    policy: PolicyOption = "placement",
    seed: SeedOption = 0,
    tablet: Annotated[
        str | None, typer.Option(help="Only what concerns this tablet; the beginning of its id will do.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=ROWS_MAX, help="Actions to print at most.")] = 1000,
    as_json: JsonOption = False,
) -> None:
    """Print what a policy plans for a cluster, most urgent first, each action with its reason.

    The cluster is asked of its leading master, or read from a file. The command itself carries nothing out. Of such a
    plan masters carry out PLACE and TRANSFER; ADD, REMOVE and CHANGE_ROLE, and with them re-replication, are only
    planned in this release. Tablets that are not whole and get no action are listed with what they wait for. The policy
    has its default settings.

    Example: stelae policy explain --dir /tmp/try"""
    from stelae.cli.kit.name_lookup import pick
    from stelae.cli.masters_target import MastersTarget
    from stelae.cli.policy_explain import action_document, asked_snapshot, plan_for, read_snapshot, waiting
    from stelae.cli.policy_text import CARRIED_OUT, print_plan

    if snapshot is not None and (directory is not None or connect or save is not None):
        raise CallerError("give a file with a snapshot, or say with --dir or --connect which cluster to ask; not both")
    target = MastersTarget(directory, connect, timeout_s)
    seen = asked_snapshot(target, save) if snapshot is None else read_snapshot(snapshot)
    actions = plan_for(_policy(policy), seen, seed)
    waits = waiting(seen, actions)
    if tablet is not None:
        tablet = pick("tablet", tablet, {name: name for name in seen.tablets}, "stelae tablet list")
        actions = [action for action in actions if action.tablet_id == tablet]
        waits = {tablet_id: why for tablet_id, why in waits.items() if tablet_id == tablet}
    counts = Counter(action.kind.value for action in actions)
    if as_json:
        plan = {"policy": policy, "seed": seed, "counts": counts, "carried_out": CARRIED_OUT}
        print_json({**plan, "actions": [action_document(action) for action in actions[:limit]], "waiting": waits})
    else:
        print_plan(seen, actions, waits, limit)


@commands.command("simulate")
def simulate(
    servers: Annotated[int, typer.Option(min=1, max=10_000, help="Tablet servers.")] = 1000,
    tablets: Annotated[int, typer.Option(min=1, max=1_000_000, help="Tablets.")] = 100_000,
    replication: Annotated[int, typer.Option(min=1, max=9, help="Replicas of each tablet; an odd number.")] = 3,
    seed: SeedOption = 0,
    plans: Annotated[int, typer.Option(min=1, max=10_000, help="Plans at most for each thing that happens.")] = 5,
    policy: PolicyOption = "placement",
    as_json: JsonOption = False,
) -> None:
    """Let a policy run a cluster that exists in memory only, and show how evenly it spreads it.

    Servers are in three data centres with racks of twenty, every fourth with twice the disk. Tablets are created, grow
    to sizes of their own, a server dies, servers join, one retires. After each, the spread of replicas, leaders and
    bytes is shown beside each server's share of all disk space, which is the ideal."""
    from stelae.cli.policy_simulate import PolicySimulation, phase_lines

    simulation = PolicySimulation(_policy(policy), servers=servers, tablets=tablets, replication=replication, seed=seed)
    phases = []
    for phase in simulation.run(plans):
        phases.append(phase)
        if not as_json:
            for line in phase_lines(phase):
                print(line)
            print(flush=True)
    if as_json:
        print_json({"policy": policy, "seed": seed, "phases": phases})


def _policy(name: str) -> type[MasterPolicy]:
    from stelae.config.contracts import EngineKind
    from stelae.config.registry import Registry

    found: Any = Registry.installed().engine(EngineKind.POLICY, name)
    return found  # type: ignore[no-any-return]
