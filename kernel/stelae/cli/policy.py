"""``stelae policy``: show the plan of a placement policy for a cluster, and simulate a policy in a large cluster."""

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
"""Most actions that `policy explain` prints. It keeps all rows in memory to compute the column widths."""

commands = command_group(
    """Show what a placement policy plans, and why.

    A policy chooses the server of each replica and the leader of each tablet. It only plans and changes nothing, so it
    can be run for any cluster, also for one that does not exist.
    """
)

PolicyOption = Annotated[str, typer.Option("--policy", help="Name of the policy. `stelae plugins list` lists them.")]
SeedOption = Annotated[int, typer.Option(min=0, help="Seed of the random choices. The same seed gives the same plan.")]
SnapshotArgument = Annotated[
    Path | None,
    typer.Argument(help="JSON file with a snapshot of a cluster, instead of --dir or --connect.", show_default=False),
]
TabletOption = Annotated[
    str | None, typer.Option("--tablet", help="Show only this tablet: its id, or the first letters of it.")
]


def register(app: typer.Typer) -> None:
    """Add the commands to the root application."""
    app.add_typer(commands, name="policy")


@commands.command("explain")
def explain(
    snapshot: SnapshotArgument = None,
    directory: MasterDirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 10.0,
    save: Annotated[Path | None, typer.Option(help="Write the snapshot of the cluster to this file.")] = None,
    policy: PolicyOption = "placement",
    seed: SeedOption = 0,
    tablet: TabletOption = None,
    limit: Annotated[int, typer.Option(min=1, max=ROWS_MAX, help="Print at most this many actions.")] = 1000,
    as_json: JsonOption = False,
) -> None:
    """Print the plan of a policy for a cluster, with the reason of each action.

    The most urgent actions come first. The state of the cluster comes from its leading master or from a file. This
    command changes nothing: the masters carry out their own plans, which begin with other random numbers. Tablets with
    too few replicas, or with one on a server that retires, and no action are listed with what they wait for. The policy
    runs with its default settings; `stelae cluster rebalance` uses those of the masters.

    Example: stelae policy explain --dir /tmp/try"""
    from stelae.cli.kit.name_lookup import pick
    from stelae.cli.masters_target import MastersTarget
    from stelae.cli.policy_explain import action_document, fetch_snapshot, plan_for, read_snapshot, unmet_needs
    from stelae.cli.policy_text import print_plan

    if snapshot is not None and (directory is not None or connect or save is not None):
        raise CallerError("pass either a snapshot file or a cluster with --dir or --connect, not both")
    target = MastersTarget(directory, connect, timeout_s)
    seen = fetch_snapshot(target, save) if snapshot is None else read_snapshot(snapshot)
    actions = plan_for(_policy(policy), seen, seed)
    waits = unmet_needs(seen, actions)
    if tablet is not None:
        tablet = pick("tablet", tablet, {name: name for name in seen.tablets}, "stelae tablet list")
        actions = [action for action in actions if action.tablet_id == tablet]
        waits = {tablet_id: why for tablet_id, why in waits.items() if tablet_id == tablet}
    counts = Counter(action.kind.value for action in actions)
    if as_json:
        plan = {"policy": policy, "seed": seed, "counts": counts}
        print_json({**plan, "actions": [action_document(action) for action in actions[:limit]], "waiting": waits})
    else:
        print_plan(seen, actions, waits, limit)


@commands.command("simulate")
def simulate(
    servers: Annotated[int, typer.Option(min=1, max=10_000, help="Number of tablet servers.")] = 1000,
    tablets: Annotated[int, typer.Option(min=1, max=1_000_000, help="Number of tablets.")] = 100_000,
    replication: Annotated[int, typer.Option(min=1, max=9, help="Replicas of each tablet. Must be odd.")] = 3,
    seed: SeedOption = 0,
    plans: Annotated[int, typer.Option(min=1, max=10_000, help="Most plans in each phase.")] = 5,
    policy: PolicyOption = "placement",
    as_json: JsonOption = False,
) -> None:
    """Simulate a policy on a cluster in memory, and show how evenly it distributes the tablets.

    The servers are in three data centres with racks of twenty servers. Every fourth server has a disk of twice the
    size. In five phases, tablets are created, tablets grow to different sizes, a server dies, servers join, and a
    server retires. After each phase the command prints the distribution of replicas, leaders and bytes, in percent of
    the share of each server in the total disk space."""
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
