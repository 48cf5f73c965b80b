"""``stelae sim``: simulate whole clusters with a virtual clock, network and disk, each from one seed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from stelae.cli.kit.errors import EXIT_FAILED
from stelae.cli.kit.output import JsonOption, note, print_json, print_table
from stelae.cli.seeds import PROGRESS_EVERY, chosen_seeds, faults_to_keep, over_processes
from stelae.cli.sim_masters import run_masters

if TYPE_CHECKING:
    from stelae.sim.report import RunResult, RunTotals


commands = typer.Typer(
    no_args_is_help=True,
    help="""Simulate replicated tablets with faults, and check invariants.

    A run is determined by its seed, so a seed that fails will fail again.
    """,
)


def register(app: typer.Typer) -> None:
    """Add the commands to the root application."""
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
    shrink: Annotated[
        bool, typer.Option("--shrink", help="Search for a smaller plan that fails in the same way.")
    ] = False,
    jobs: Annotated[int, typer.Option(min=0, help="Number of processes. 0: one for each core.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Run one seed or a range of seeds.

    If a run fails, the last line on standard error is the command that reproduces it.

    Exit code 1: an invariant did not hold."""
    from stelae.sim.report import RunTotals, reproduce_command

    chosen = chosen_seeds(seed, seeds)
    kept = faults_to_keep(faults)
    totals = RunTotals()
    for result in _results(chosen, kept, operations_max, jobs):
        totals.add(result)
        if totals.seeds % PROGRESS_EVERY == 0:
            note(f"{totals.seeds} of {len(chosen)} seeds, {len(totals.failed)} failed")
    if as_json:
        print_json(totals.as_document())
    else:
        _print_totals(totals)
    if totals.failed:
        command = reproduce_command(totals.failed[0].seed, kept, operations_max)
        _exit_failed(totals, command, shrink=shrink)


@commands.command("plan")
def show_plan(seed: Annotated[int, typer.Option(help="The seed.")], as_json: JsonOption = False) -> None:
    """Show the settings and the planned faults of a seed."""
    import dataclasses

    import msgspec

    from stelae.sim.fault_plan import draw_plan
    from stelae.sim.profile import draw_profile
    from stelae.sim.report import describe_plan

    profile = draw_profile(seed)
    plan = draw_plan(seed, profile)
    if as_json:
        document = {"profile": dataclasses.asdict(profile), "faults": msgspec.to_builtins(plan)}
        print_json({"seed": seed, **document})
        return
    print_table(("SETTING", "VALUE"), list(dataclasses.asdict(profile).items()))
    print("\nFaults:\n" + "\n".join(describe_plan(plan)))


def _run_one(seed: int, *, faults: frozenset[int] | None, operations_max: int | None) -> RunResult:
    """Run one seed without the log of its nodes, which would report thousands of planned failures.

    After the first run of a process, the imported modules are excluded from garbage collection, which took an eighth of
    the time of a run."""
    import gc
    import logging

    from stelae.sim.run import run_seed

    logger = logging.getLogger("stelae")
    is_first = not logger.handlers
    if is_first:
        logger.addHandler(logging.NullHandler())
    result = run_seed(seed, faults=faults, operations_max=operations_max)
    if is_first:
        gc.collect()
        gc.freeze()
    return result


def _results(
    chosen: range, faults: frozenset[int] | None, operations_max: int | None, jobs: int
) -> Iterator[RunResult]:
    """Yield the result of every seed, in the order of the seeds."""
    from functools import partial

    yield from over_processes(partial(_run_one, faults=faults, operations_max=operations_max), chosen, jobs)


def _print_totals(totals: RunTotals) -> None:
    print(
        f"{totals.seeds} seeds, {totals.events} events, "
        f"{totals.writes_acknowledged} writes acknowledged, {len(totals.failed)} violations"
    )
    rows = [(name, count) for name, count in totals.coverage().items() if "metric." not in name]
    print_table(("COVERAGE", "COUNT"), rows)


def _exit_failed(totals: RunTotals, command: str, *, shrink: bool) -> None:
    """Print every failure and the command that reproduces the first one, and exit."""
    for result in totals.failed:
        _print_failure(result)
    note(_shrunk_command(totals.failed[0]) if shrink else command)
    raise typer.Exit(EXIT_FAILED)


def _print_failure(result: RunResult) -> None:
    violation = result.violation
    assert violation is not None
    note(
        f"seed {result.seed}: {violation.invariant} does not hold at {violation.at_us / 1e6:.6f} s: {violation.detail}"
    )


def _shrunk_command(failed: RunResult) -> str:
    """Shrink the plan of a failure, print the remaining faults, and return the command that reproduces it."""
    from stelae.sim.report import describe_plan, reproduce_command
    from stelae.sim.shrink import Shrinker

    def rerun(faults: frozenset[int], operations_max: int | None) -> RunResult:
        return _run_one(failed.seed, faults=faults, operations_max=operations_max)

    shrunk = Shrinker(failed, rerun).shrink()
    note(f"shrunk in {shrunk.runs} runs to {len(shrunk.faults)} of {len(failed.plan)} faults:")
    for line in describe_plan(shrunk.result.plan):
        note(line)
    _print_failure(shrunk.result)
    return reproduce_command(failed.seed, shrunk.faults, shrunk.operations_max)
