"""``stelae sim shrink``: search for a smaller run of a seed that violates the same invariant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from stelae.cli.kit.output import JsonOption, note, print_json
from stelae.cli.seeds import faults_to_keep
from stelae.cli.sim_runs import ProfileOption, note_violation, profile_kind, run_quietly
from stelae.spi.errors import CallerError

if TYPE_CHECKING:
    from stelae.sim.report import RunResult
    from stelae.sim.shrink import ShrinkResult, ShrinkStep


def shrink_seed(
    seed: Annotated[int, typer.Argument(help="A seed that violates an invariant.")],
    faults: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Start from these faults of the plan. `none`: no faults.")
    ] = None,
    operations_max: Annotated[
        int | None, typer.Option(min=0, help="Start from at most this number of operations of each client.")
    ] = None,
    profile: ProfileOption = "standard",
    runs_max: Annotated[int, typer.Option(min=1, help="Most runs of the search.")] = 200,
    as_json: JsonOption = False,
) -> None:
    """Search for a smaller run of a seed that violates the same invariant.

    The search removes planned faults, then client operations, while the violation remains. Each step is reported on
    standard error. The result is the remaining faults and operations, and the commands that repeat and show the run.

    Exit code 2: the seed violates no invariant."""
    from stelae.sim.report import find_command
    from stelae.sim.shrink import Shrinker

    kind = profile_kind(profile)
    failed = run_quietly(seed, kind=kind, faults=faults_to_keep(faults), operations_max=operations_max)
    if failed.violation is None:
        raise CallerError(
            f"seed {seed} violates no invariant, so it cannot be shrunk; "
            f"find a seed that does with `{find_command(kind)}`"
        )
    note_violation(failed)

    def rerun(kept: frozenset[int], limit: int | None) -> RunResult:
        return run_quietly(seed, kind=kind, faults=kept, operations_max=limit)

    shrunk = Shrinker(failed, rerun, runs_max, operations_max=operations_max, on_step=_note_step).shrink()
    if as_json:
        print_json(_document(failed, shrunk))
    else:
        _print_result(failed, shrunk)


def _note_step(step: ShrinkStep) -> None:
    operations = "all operations" if step.operations_max is None else f"{step.operations_max} operations per client"
    outcome = "same violation" if step.smaller else "no such violation"
    note(f"run {step.runs}: {step.faults} faults, {operations}: {outcome}")


def _print_result(failed: RunResult, shrunk: ShrinkResult) -> None:
    from stelae.sim.report import describe_plan, reproduce_command, show_command

    result = shrunk.result
    assert result.violation is not None
    limit = "no limit" if shrunk.operations_max is None else f"at most {shrunk.operations_max} for each client"
    print(f"invariant     {result.violation.invariant}")
    print(f"violated at   {result.violation.at_us / 1e6:.6f} s: {result.violation.detail}")
    print(f"faults        {len(shrunk.faults)} of {len(failed.plan)}, found in {shrunk.runs} runs")
    for line in describe_plan(result.plan):
        print(line)
    print(f"operations    {limit}; {result.writes_acknowledged} writes acknowledged")
    print(f"repeat it     {reproduce_command(result.seed, shrunk.faults, shrunk.operations_max, result.kind)}")
    print(f"show it       {show_command(result.seed, shrunk.faults, shrunk.operations_max, result.kind)}")


def _document(failed: RunResult, shrunk: ShrinkResult) -> dict[str, Any]:
    import msgspec

    from stelae.sim.report import reproduce_command, show_command

    result = shrunk.result
    return {
        "seed": result.seed,
        "violation": msgspec.to_builtins(result.violation),
        "runs": shrunk.runs,
        "faults_planned": len(failed.plan),
        "faults": msgspec.to_builtins(result.plan),
        "operations_max": shrunk.operations_max,
        "writes_acknowledged": result.writes_acknowledged,
        "reproduce": reproduce_command(result.seed, shrunk.faults, shrunk.operations_max, result.kind),
        "show": show_command(result.seed, shrunk.faults, shrunk.operations_max, result.kind),
    }
