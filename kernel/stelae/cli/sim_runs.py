"""Runs one seed of the simulator for a command, and prints its violation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from stelae.cli.kit.output import note
from stelae.cli.seeds import faults_to_keep
from stelae.spi.errors import CallerError

if TYPE_CHECKING:
    from stelae.sim.profile import ProfileKind
    from stelae.sim.report import RunResult
    from stelae.sim.run_scope import RunScope

ProfileOption = Annotated[
    str,
    typer.Option(
        "--profile",
        metavar="KIND",
        help="Kind of runs: standard; membership, where members change; copies, where replicas are also copied and "
        "deleted; leases, where leaders also read by leases; lookups, where clients look keys up; or local, one node "
        "without peers.",
    ),
]


def profile_kind(name: str) -> ProfileKind:
    """Return the kind of runs of ``--profile``.

    Raises:
        CallerError: there is no such kind.
    """
    from stelae.sim.profile import ProfileKind

    known = [kind.value for kind in ProfileKind]
    if name not in known:
        raise CallerError(f"--profile does not know {name!r}; pass one of {', '.join(known)}")
    return ProfileKind(name)


def run_scope(faults: str | None, operations_max: int | None, changes_max: int | None) -> RunScope:
    """Return what a run keeps by the options ``--faults``, ``--operations-max`` and ``--changes-max``.

    Raises:
        CallerError: ``--faults`` is not a list of numbers.
    """
    from stelae.sim.run_scope import RunScope

    return RunScope(faults=faults_to_keep(faults), operations_max=operations_max, changes_max=changes_max)


def run_quietly(seed: int, *, kind: ProfileKind, scope: RunScope) -> RunResult:
    """Run one seed without the log of its nodes, which would report thousands of planned failures.

    After the first run of a process, the imported modules are excluded from garbage collection, which took an eighth of
    the time of a run."""
    import gc

    from stelae.sim.run import run_seed

    is_first = mute_nodes()
    result = run_seed(seed, kind=kind, scope=scope)
    if is_first:
        gc.collect()
        gc.freeze()
    return result


def mute_nodes() -> bool:
    """Drop the log of simulated nodes from now on. Return true at the first call in a process."""
    import logging

    logger = logging.getLogger("stelae")
    if logger.handlers:
        return False
    logger.addHandler(logging.NullHandler())
    return True


def note_violation(result: RunResult) -> None:
    """Print the violation of a failed run on standard error."""
    violation = result.violation
    assert violation is not None
    at_s = violation.at_us / 1_000_000
    note(f"seed {result.seed}: {violation.invariant} does not hold at {at_s:.6f} s: {violation.detail}")
