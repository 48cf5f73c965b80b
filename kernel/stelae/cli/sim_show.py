"""``stelae sim show``: the space-time trace of a run, as text or as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from stelae.cli.kit.output import JsonOption, print_json
from stelae.cli.seeds import faults_to_keep
from stelae.cli.sim_runs import ProfileOption, mute_nodes, profile_kind
from stelae.spi.errors import CallerError

if TYPE_CHECKING:
    from stelae.sim.trace.records import TraceKind


def show_seed(
    seed: Annotated[int, typer.Argument(help="The seed of the run.")],
    faults: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Keep only these faults of the plan. `none`: no faults.")
    ] = None,
    operations_max: Annotated[int | None, typer.Option(min=0, help="Most operations of each client.")] = None,
    profile: ProfileOption = "standard",
    from_s: Annotated[float | None, typer.Option("--from", metavar="S", min=0, help="First second to show.")] = None,
    to_s: Annotated[float | None, typer.Option("--to", metavar="S", min=0, help="Last second to show.")] = None,
    node: Annotated[list[int] | None, typer.Option(min=0, help="Show only this node. Can be repeated.")] = None,
    only: Annotated[
        str | None, typer.Option(metavar="KIND,...", help="Show only these kinds of records. `all`: every kind.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what happened in a run: one line for each event, one column for each node.

    Faults, elections and differences between logs are shown. Replication is shown too if the run, or the chosen part of
    it, has few records. The last line says what was left out.

    Kinds: violation, fault, role, vote, append, refusal, probe, reply, message, heartbeat, term, truncate, persist,
    commit, apply, client."""
    from stelae.sim.run import record_seed
    from stelae.sim.trace.selection import TraceFilter, select
    from stelae.sim.trace.text import text_lines

    wanted = TraceFilter(
        from_us=_microseconds(from_s) or 0, to_us=_microseconds(to_s), nodes=frozenset(node or ()), kinds=_kinds(only)
    )
    kept = faults_to_keep(faults)
    mute_nodes()
    selected = select(record_seed(seed, kind=profile_kind(profile), faults=kept, operations_max=operations_max), wanted)
    if as_json:
        from stelae.sim.trace.document import trace_document

        print_json(trace_document(selected))
        return
    for line in text_lines(selected):
        print(line)


def _microseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1_000_000)


def _kinds(only: str | None) -> frozenset[TraceKind] | None:
    """Return the kinds of ``--only``; ``None`` for the default.

    Raises:
        CallerError: a kind is unknown.
    """
    from stelae.sim.trace.records import TraceKind

    if only is None:
        return None
    if only == "all":
        return frozenset(TraceKind)
    names = only.split(",")
    known = [kind.value for kind in TraceKind]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise CallerError(f"--only does not know {', '.join(unknown)}; pass all, or some of {', '.join(known)}")
    return frozenset(TraceKind(name) for name in names)
