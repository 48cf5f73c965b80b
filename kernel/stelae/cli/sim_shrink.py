"""``stelae sim shrink``: search for a smaller run of a seed that violates the same invariant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from stelae.cli.kit.output import JsonOption, note, print_json
from stelae.cli.sim_runs import ProfileOption, note_violation, profile_kind, run_quietly, run_scope
from stelae.spi.errors import CallerError

if TYPE_CHECKING:
    from stelae.sim.report import RunResult
    from stelae.sim.run_scope import RunScope
    from stelae.sim.shrink import ShrinkResult, ShrinkStep


def shrink_seed(
    seed: Annotated[int, typer.Argument(help="A seed that violates an invariant.")],
    faults: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Start from these faults of the plan. `none`: no faults.")
    ] = None,
    operations_max: Annotated[
        int | None, typer.Option(min=0, help="Start from at most this number of operations of each client.")
    ] = None,
    changes_max: Annotated[
        int | None, typer.Option(min=0, help="Start from at most this number of changes of members.")
    ] = None,
    profile: ProfileOption = "standard",
    runs_max: Annotated[int, typer.Option(min=1, help="Most runs of the search.")] = 200,
    as_json: JsonOption = False,
) -> None:
    """Search for a smaller run of a seed that violates the same invariant.

    The search removes planned faults, then client operations, then changes of members, while the violation remains.
    Each step is reported on standard error. The result is what remains of them, and the commands that repeat and show
    the run.

    Exit code 2: the seed violates no invariant."""
    from stelae.sim.report import find_command
    from stelae.sim.shrink import Shrinker

    kind = profile_kind(profile)
    failed = run_quietly(seed, kind=kind, scope=run_scope(faults, operations_max, changes_max))
    if failed.violation is None:
        raise CallerError(
            f"seed {seed} violates no invariant, so it cannot be shrunk; "
            f"find a seed that does with `{find_command(kind)}`"
        )
    note_violation(failed)

    def rerun(scope: RunScope) -> RunResult:
        return run_quietly(seed, kind=kind, scope=scope)

    shrunk = Shrinker(failed, rerun, runs_max, on_step=_note_step).shrink()
    if as_json:
        print_json(_document(failed, shrunk))
    else:
        _print_result(failed, shrunk)


def _note_step(step: ShrinkStep) -> None:
    scope = step.scope
    operations = "all operations" if scope.operations_max is None else f"{scope.operations_max} operations per client"
    changes = "" if scope.changes_max is None else f", {scope.changes_max} changes of members"
    outcome = "same violation" if step.smaller else "no such violation"
    note(f"run {step.runs}: {step.faults} faults, {operations}{changes}: {outcome}")


def _print_result(failed: RunResult, shrunk: ShrinkResult) -> None:
    from stelae.sim.report import describe_plan, reproduce_command, show_command
    from stelae.sim.shrink import changes_members

    result, scope = shrunk.result, shrunk.result.scope
    assert result.violation is not None
    operations = "no limit" if scope.operations_max is None else f"at most {scope.operations_max} for each client"
    changes = "no limit" if scope.changes_max is None else f"at most {scope.changes_max} changes of members"
    print(f"invariant     {result.violation.invariant}")
    print(f"violated at   {result.violation.at_us / 1e6:.6f} s: {result.violation.detail}")
    print(f"faults        {len(result.plan)} of {len(failed.plan)}, found in {shrunk.runs} runs")
    for line in describe_plan(result.plan):
        print(line)
    print(f"operations    {operations}; {result.writes_acknowledged} writes acknowledged")
    if changes_members(result):
        print(f"members       {changes}")
    print(f"repeat it     {reproduce_command(result)}")
    print(f"show it       {show_command(result)}")


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
        "operations_max": result.scope.operations_max,
        "changes_max": result.scope.changes_max,
        "writes_acknowledged": result.writes_acknowledged,
        "reproduce": reproduce_command(result),
        "show": show_command(result),
    }
