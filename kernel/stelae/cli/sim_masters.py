"""``stelae sim masters``: simulate masters, tablet servers and clients, each run from one seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from stelae.cli.kit.errors import EXIT_FAILED
from stelae.cli.kit.output import JsonOption, note, print_json, print_table
from stelae.cli.seeds import PROGRESS_EVERY, chosen_seeds, faults_to_keep, over_processes

if TYPE_CHECKING:
    from stelae.sim.masters.run import MastersRunResult


def run_masters(
    seed: Annotated[int | None, typer.Option(help="Run this one seed.")] = None,
    seeds: Annotated[
        str | None, typer.Option(metavar="A..B", help="Run every seed from A to B, both included.")
    ] = None,
    faults: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Keep only these faults of the plan. `none`: no faults.")
    ] = None,
    changes_max: Annotated[int | None, typer.Option(min=0, help="Most changes of each client.")] = None,
    jobs: Annotated[int, typer.Option(min=0, help="Number of processes. 0: one for each core.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Simulate masters that crash, pause and lose their network.

    A run that fails is reported at once. At the end the last line on standard error is the command that reproduces the
    first of them.

    Exit code 1: an invariant did not hold."""
    from stelae.sim.masters.run import reproduce_command

    chosen, kept = chosen_seeds(seed, seeds), faults_to_keep(faults)
    run_one = partial(_run_one, faults=kept, changes_max=changes_max)
    results = _with_progress(over_processes(run_one, chosen, jobs), len(chosen))
    coverage: Counter[str] = Counter()
    for result in results:
        coverage.update(result.coverage)
    failed = [result for result in results if result.violation is not None]
    events, entries = sum(r.events for r in results), sum(r.entries for r in results)
    if as_json:
        violations = [{"seed": r.seed, **_violation(r), "reproduce": reproduce_command(r.seed)} for r in failed]
        document = {"seeds": len(results), "events": events, "entries": entries, "violations": violations}
        print_json({**document, "coverage": dict(sorted(coverage.items()))})
    else:
        print(f"{len(results)} seeds, {events} events, {entries} entries of the catalog, {len(failed)} violations")
        print_table(("COVERAGE", "COUNT"), sorted(coverage.items()))
    if failed:
        note(f"failed seeds: {', '.join(str(result.seed) for result in failed)}")
        note(reproduce_command(failed[0].seed, kept, changes_max))
        raise typer.Exit(EXIT_FAILED)


def _with_progress(runs: Iterable[MastersRunResult], count: int) -> list[MastersRunResult]:
    """Return the results of all runs. Print each run that fails when it has ended, and how many have ended."""
    results: list[MastersRunResult] = []
    failed = 0
    for result in runs:
        results.append(result)
        if result.violation is not None:
            failed += 1
            found = _violation(result)
            note(f"seed {result.seed}: {found['invariant']} does not hold at {found['at_us']} us: {found['detail']}")
        if len(results) % PROGRESS_EVERY == 0:
            note(f"{len(results)} of {count} seeds, {failed} failed")
    return results


def _run_one(seed: int, *, faults: frozenset[int] | None, changes_max: int | None) -> MastersRunResult:
    """Run a seed without its masters' log: thousands of planned failures are no news."""
    import logging

    from stelae.sim.masters.run import run_seed

    logger = logging.getLogger("stelae")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return run_seed(seed, faults=faults, changes_max=changes_max)


def _violation(result: MastersRunResult) -> dict[str, object]:
    assert result.violation is not None
    return {"invariant": result.violation.invariant, "detail": result.violation.detail, "at_us": result.violation.at_us}
