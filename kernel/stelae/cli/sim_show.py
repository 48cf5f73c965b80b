"""``stelae sim show``: the space-time trace of a run, as text, as JSON or as a page for a browser."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stelae.cli.kit.output import JsonOption, note, print_json
from stelae.cli.sim_runs import ProfileOption, mute_nodes, profile_kind, run_scope
from stelae.spi.errors import CallerError

if TYPE_CHECKING:
    from stelae.sim.trace.records import RunTrace, TraceKind
    from stelae.sim.trace.selection import TraceFilter


def show_seed(
    seed: Annotated[int, typer.Argument(help="The seed of the run.")],
    faults: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Keep only these faults of the plan. `none`: no faults.")
    ] = None,
    operations_max: Annotated[int | None, typer.Option(min=0, help="Most operations of each client.")] = None,
    changes_max: Annotated[int | None, typer.Option(min=0, help="Most changes of members.")] = None,
    profile: ProfileOption = "standard",
    from_s: Annotated[float | None, typer.Option("--from", metavar="S", min=0, help="First second to show.")] = None,
    to_s: Annotated[float | None, typer.Option("--to", metavar="S", min=0, help="Last second to show.")] = None,
    node: Annotated[list[int] | None, typer.Option(min=0, help="Show only this node. Can be repeated.")] = None,
    only: Annotated[
        str | None, typer.Option(metavar="KIND,...", help="Show only these kinds of records. `all`: every kind.")
    ] = None,
    html: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write a page for a browser to this file; `-`: standard output.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what happened in a run: one line for each event, one column for each node.

    Faults, elections and differences between logs are shown. Replication is shown too if the run, or the chosen part of
    it, has few records. The last line says what was left out.

    --html writes one page that needs no network: a lane for each node, messages as arrows, roles and faults as coloured
    spans. In the page you choose kinds and nodes, and read the text of each record.

    Kinds: violation, fault, role, vote, append, refusal, probe, reply, message, heartbeat, term, truncate, persist,
    commit, config, apply, client."""
    from stelae.sim.report import reproduce_command
    from stelae.sim.run import record_seed
    from stelae.sim.trace.selection import TraceFilter

    wanted = TraceFilter(
        from_us=_microseconds(from_s) or 0, to_us=_microseconds(to_s), nodes=frozenset(node or ()), kinds=_kinds(only)
    )
    scope, kind = run_scope(faults, operations_max, changes_max), profile_kind(profile)
    page = _page_file(html, as_json=as_json)
    mute_nodes()
    trace = record_seed(seed, kind=kind, scope=scope)
    if page is None:
        _print_trace(trace, wanted, as_json=as_json)
    else:
        _write_page(page, trace, wanted, reproduce_command(trace.result))


def _print_trace(trace: RunTrace, wanted: TraceFilter, *, as_json: bool) -> None:
    from stelae.sim.trace.document import trace_document
    from stelae.sim.trace.selection import select
    from stelae.sim.trace.text import text_lines

    selected = select(trace, wanted)
    if as_json:
        print_json(trace_document(selected))
        return
    for line in text_lines(selected):
        print(line)


def _page_file(name: str | None, *, as_json: bool) -> Path | None:
    """Return the file of ``--html``, or ``None`` without it. A path that cannot be written is refused before the run.

    Raises:
        CallerError: the path is a directory, its directory does not exist, or ``--json`` is given too.
    """
    if name is None:
        return None
    if as_json:
        raise CallerError("--html and --json exclude each other; pass one of them")
    path = Path(name)
    if name == "-":
        return path
    if os.path.isdir(path):
        raise CallerError(
            f"--html cannot write {name}: it is a directory; pass the name of a file, or - for standard output"
        )
    if not os.path.isdir(path.parent):
        raise CallerError(f"--html cannot write {name}: there is no directory {path.parent}; create it first")
    return path


def _write_page(path: Path, trace: RunTrace, wanted: TraceFilter, command: str) -> None:
    """Write the page of a trace.

    Raises:
        CallerError: the file cannot be written.
    """
    from stelae.sim.trace.page import trace_page
    from stelae.sim.trace.page_html import page_html

    text = page_html(trace_page(trace, wanted, command))
    if str(path) == "-":
        sys.stdout.write(text)
        return
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CallerError(
            f"--html cannot write {path}: {error.strerror}; pass another file, or - for standard output"
        ) from error
    note(f"wrote {path}: open it in a browser")


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
