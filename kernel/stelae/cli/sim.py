"""``stelae sim``: simulate whole clusters with a virtual clock, network and disk, each from one seed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from stelae.cli.kit.errors import EXIT_FAILED
from stelae.cli.kit.output import JsonOption, note, print_json, print_table
from stelae.cli.seeds import PROGRESS_EVERY, chosen_seeds, over_processes
from stelae.cli.sim_masters import run_masters
from stelae.cli.sim_runs import ProfileOption, note_violation, profile_kind, run_quietly, run_scope
from stelae.cli.sim_show import show_seed
from stelae.cli.sim_shrink import shrink_seed

if TYPE_CHECKING:
    from stelae.sim.profile import ProfileKind
    from stelae.sim.report import RunResult, RunTotals
    from stelae.sim.run_scope import RunScope


commands = typer.Typer(
    no_args_is_help=True,
    help="""Simulate replicated tablets with faults, and check invariants.

    A run is determined by its seed, so a seed that fails will fail again.
    """,
)


def register(app: typer.Typer) -> None:
    """Add the commands to the root application."""
    commands.command("shrink")(shrink_seed)
    commands.command("show")(show_seed)
    commands.command("masters")(run_masters)
    app.add_typer(commands, name="sim")


@commands.command("run")
def run_seeds(
    seed: Annotated[int | None, typer.Option(help="Run this one seed.")] = None,
    seeds: Annotated[
        str | None, typer.Option(metavar="A..B", help="Run every seed from A to B, both included.")
    ] = None,
    faults: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Keep only these faults of the plan. `none`: no faults.")
    ] = None,
    operations_max: Annotated[int | None, typer.Option(min=0, help="Most operations of each client.")] = None,
    changes_max: Annotated[int | None, typer.Option(min=0, help="Most changes of members.")] = None,
    profile: ProfileOption = "standard",
    jobs: Annotated[int, typer.Option(min=0, help="Number of processes. 0: one for each core.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Run one seed or a range of seeds.

    A run that fails is reported at once. At the end the last line on standard error is the command that reproduces the
    first of them. The two lines before it name the commands that show that run and shrink it.

    Exit code 1: an invariant did not hold."""
    from stelae.sim.report import RunTotals

    chosen = chosen_seeds(seed, seeds)
    scope, kind = run_scope(faults, operations_max, changes_max), profile_kind(profile)
    totals = RunTotals()
    for result in _results(chosen, kind, scope, jobs):
        totals.add(result)
        if result.violation is not None:
            note_violation(result)
        if totals.seeds % PROGRESS_EVERY == 0:
            note(f"{totals.seeds} of {len(chosen)} seeds, {len(totals.failed)} failed")
    if as_json:
        print_json(totals.as_document())
    else:
        _print_totals(totals)
    if totals.failed:
        _exit_failed(totals)


@commands.command("plan")
def show_plan(
    seed: Annotated[int, typer.Option(help="The seed.")],
    profile: ProfileOption = "standard",
    as_json: JsonOption = False,
) -> None:
    """Show the settings and the planned faults of a seed."""
    import dataclasses

    import msgspec

    from stelae.sim.fault_plan import draw_plan
    from stelae.sim.profile import draw_profile
    from stelae.sim.report import describe_plan

    settings = draw_profile(seed, profile_kind(profile))
    plan = draw_plan(seed, settings)
    if as_json:
        document = {"profile": dataclasses.asdict(settings), "faults": msgspec.to_builtins(plan)}
        print_json({"seed": seed, **document})
        return
    print_table(("SETTING", "VALUE"), list(dataclasses.asdict(settings).items()))
    print("\nFaults:\n" + "\n".join(describe_plan(plan)))


def _results(chosen: range, kind: ProfileKind, scope: RunScope, jobs: int) -> Iterator[RunResult]:
    """Yield the result of every seed, in the order of the seeds."""
    from functools import partial

    yield from over_processes(partial(run_quietly, kind=kind, scope=scope), chosen, jobs)


def _print_totals(totals: RunTotals) -> None:
    print(
        f"{totals.seeds} seeds, {totals.events} events, "
        f"{totals.writes_acknowledged} writes acknowledged, {len(totals.failed)} violations"
    )
    rows = [(name, count) for name, count in totals.coverage().items() if "metric." not in name]
    print_table(("COVERAGE", "COUNT"), rows)


def _exit_failed(totals: RunTotals) -> None:
    """Print the seeds that failed, and the commands that show, shrink and reproduce the first one. Then exit."""
    from stelae.sim.report import reproduce_command, show_command, shrink_command

    note(f"failed seeds: {', '.join(str(result.seed) for result in totals.failed)}")
    first = totals.failed[0]
    note(f"show the run:   {show_command(first)}")
    note(f"shrink the run: {shrink_command(first)}")
    note(reproduce_command(first))
    raise typer.Exit(EXIT_FAILED)
