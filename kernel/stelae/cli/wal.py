"""``stelae wal``: print, verify and convert the log of a stopped node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stelae.cli.kit.errors import EXIT_FAILED
from stelae.cli.kit.output import JsonOption, command_group, note, print_json, print_table
from stelae.spi.errors import CallerError

if TYPE_CHECKING:
    from stelae.cli.offline_node import OfflineNode
    from stelae.convert.log_check import LogReport
    from stelae.spi.ids import LogId
    from stelae.spi.wal import WalEngine

ENTRIES_MAX = 100_000
"""Most entries that `wal dump` prints. It keeps all of them in memory to compute the column widths."""

commands = command_group(
    """Print, verify or convert the log of a stopped node.

    These commands lock the directory of the node, and open its log as the node does when it starts, with recovery. They
    fail while the node runs.
    """
)

DirectoryArgument = Annotated[str | None, typer.Argument(help="Directory of the node.", show_default=False)]
ConfigOption = Annotated[
    str | None,
    typer.Option(
        "--config", help="The node.toml, which has the directory and the settings of the engines.", show_default=False
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands to the root application."""
    app.add_typer(commands, name="wal")


@commands.command("dump")
def dump(
    directory: DirectoryArgument = None,
    config: ConfigOption = None,
    tablet: Annotated[str | None, typer.Option(help="Print only the logs of this tablet.")] = None,
    first: Annotated[int, typer.Option("--from", min=1, help="Index of the first entry.")] = 1,
    limit: Annotated[
        int, typer.Option(min=1, max=ENTRIES_MAX, help="Print at most this many entries of all logs together.")
    ] = 1000,
    bodies: Annotated[bool, typer.Option("--bodies", help="Also print the bodies, in hexadecimal.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the entries of the log: op id, kind, hybrid timestamp, size, and a summary of each write.

    A log begins after its base: earlier entries have been garbage-collected. A damaged log is printed up to the damage,
    and the other logs are printed, too.

    Exit code 1: a log is damaged or cannot be read."""
    from stelae.convert.documents import entry_document
    from stelae.spi.errors import Corrupt, StorageError

    rows: list[dict[str, Any]] = []
    problems: list[str] = []
    with _engine(directory, config) as engine:
        for log in _logs_of(engine, tablet):
            try:
                for entry in _entries(engine, log, first, limit - len(rows)):
                    rows.append(entry_document(str(log), entry, bodies=bodies))
            except StorageError as error:
                what = "is damaged" if isinstance(error, Corrupt) else "cannot be read now"
                problems.append(f"log {log} {what}: {error}")
    if as_json:
        print_json({"entries": rows, "problems": problems})
    else:
        columns = ("log", "op_id", "kind", "timestamp", "size_bytes", "summary", *(("body",) if bodies else ()))
        print_table([name.upper() for name in columns], [[row[name] for name in columns] for row in rows])
    if len(rows) == limit:
        note(f"stopped after {limit} entries; continue with --from, or raise --limit")
    for problem in problems:
        note(problem)
    if problems:
        raise typer.Exit(EXIT_FAILED)


@commands.command("verify")
def verify(directory: DirectoryArgument = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Read every entry of every log, and verify checksums, consecutive indexes and non-decreasing terms.

    A damaged log is reported with the file, the offset and its last good op id. A disk that cannot return the bytes is
    reported, too. That is not damage: the bytes may be correct. A log is lost if a replica on this node must have it,
    and it does not exist or lacks entries that the replica has acknowledged.

    Exit code 1: a log is damaged, lost, or cannot be read."""
    from stelae.cli.offline_node import OfflineNode
    from stelae.convert.documents import report_document
    from stelae.convert.log_check import problem_counts
    from stelae.lifecycle.startup_decisions import lost_logs

    with OfflineNode.opened(directory, config) as node, node.engine() as engine:
        reports, lost = _checked(engine), lost_logs(node.findings(engine))
    bad = [report for report in reports if report.problem is not None]
    if as_json:
        document = {"ok": not (bad or lost), "logs": [report_document(report) for report in reports]}
        print_json({**document, "lost": [{"tablet_id": one.tablet_id, "reason": one.failure} for one in lost]})
    else:
        rows = [(r.log, r.entries, r.state.last, "ok" if r.problem is None else r.problem) for r in reports]
        print_table(("LOG", "ENTRIES", "LAST", "STATE"), rows)
    if bad:
        note(problem_counts(reports))
    for one in lost:
        note(f"tablet {one.tablet_id}: {one.failure}")
    if bad or lost:
        raise typer.Exit(EXIT_FAILED)


@commands.command("stats")
def stats(directory: DirectoryArgument = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show the size of each log and the statistics of the engine. Reads every entry.

    Of a damaged log, the entries before the damage are counted. `verify` shows the details.

    Exit code 1: a log is damaged or cannot be read."""
    from stelae.convert.documents import report_document
    from stelae.convert.log_check import problem_counts

    with _engine(directory, config) as engine:
        reports = _checked(engine)
        name, figures = engine.name, engine.stats()
    if as_json:
        print_json({"engine": name, "logs": [report_document(report) for report in reports], "stats": figures})
    else:
        _print_stats(reports, name, figures)
    if problems := problem_counts(reports):
        note(f"{problems}; `stelae wal verify` names the files")
        raise typer.Exit(EXIT_FAILED)


def _print_stats(reports: Sequence[LogReport], name: str, figures: Mapping[str, float]) -> None:
    rows = [(r.log, r.state.base, r.state.last, r.state.commit_hint, r.entries, r.body_bytes) for r in reports]
    print_table(("LOG", "BASE", "LAST", "COMMIT_HINT", "ENTRIES", "BODY_BYTES"), rows)
    print()
    print_table((f"ENGINE {name}", "VALUE"), [(key, f"{value:g}") for key, value in sorted(figures.items())])


@commands.command("convert")
def convert(
    directory: DirectoryArgument = None,
    config: ConfigOption = None,
    to: Annotated[
        str | None, typer.Option(help="New log engine. Default: the engine in the node.toml of --config.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read and check the log and the free space, and change nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Convert the log of a node to another engine.

    Stop the node, set `[engines] wal` in its node.toml, run this command with --config, and start the node. The command
    copies every log into a new directory and compares the copy entry by entry. Then it switches to the copy with one
    record in the file `instance`, and moves the old log to quarantine/. After a crash at any time, either the old or
    the new log is complete, and the next start of the node or of this command finishes the conversion. Other nodes may
    keep their engine."""
    from stelae.cli.offline_node import OfflineNode

    with OfflineNode.opened(directory, config) as node:
        if node.settled:
            note(node.settled)
        done = _convert(node, to, dry_run)
    if as_json:
        print_json(done)
    elif not done["from"]:
        print(f"nothing to convert: the log of {done['directory']} already has the engine {done['to']}")
    else:
        verb = "can be converted" if dry_run else "converted"
        figures = f"{done['logs']} logs, {done['entries']} entries, {done['body_bytes']} bytes"
        print(f"{verb} from {done['from']} to {done['to']}: {figures}")
    if done["from"] and not dry_run:
        _print_next_steps(node, done["to"])


def _print_next_steps(node: OfflineNode, new: str) -> None:
    """Print where the old log is, and the engine that node.toml must name before the node starts."""
    note(f"the old log is kept; remove {node.set_aside} when the node has caught up")
    if node.configured is None:
        note(f'write wal = "{new}" in [engines] of its node.toml before you start the node')
    elif node.configured != new:
        note(f'node.toml chooses {node.configured!r}; write wal = "{new}" in [engines] before you start the node')


def _convert(node: OfflineNode, to: str | None, dry_run: bool) -> dict[str, Any]:
    import dataclasses

    from stelae.cli.offline_node import PrintingMeter

    wanted = to or node.configured
    if wanted is None and node.settled:
        wanted = node.wal_engine
    if wanted is None:
        raise CallerError(f"no engine to convert to; pass --to ENGINE (the log has the engine {node.wal_engine!r} now)")
    document: dict[str, Any] = {"directory": node.root, "from": None, "to": wanted, "dry_run": dry_run}
    if wanted == node.wal_engine:
        return document
    source = node.wal_engine
    plan = node.convert(wanted, PrintingMeter(), dry_run=dry_run)
    return {**document, "from": source, **dataclasses.asdict(plan)}


@contextmanager
def _engine(directory: str | None, config: str | None) -> Iterator[WalEngine]:
    """Open the log of a node. Close and unlock it at the end."""
    from stelae.cli.offline_node import OfflineNode

    with OfflineNode.opened(directory, config) as node, node.engine() as engine:
        yield engine


def _checked(engine: WalEngine) -> list[LogReport]:
    from stelae.cli.offline_node import PrintingMeter
    from stelae.convert.log_check import check_logs

    return check_logs(engine, PrintingMeter())


def _logs_of(engine: WalEngine, tablet: str | None) -> list[LogId]:
    logs = sorted(engine.logs())
    chosen = [log for log in logs if tablet in (None, log.tablet_id)]
    if tablet is not None and not chosen:
        known = ", ".join(sorted({log.tablet_id for log in logs})) or "none"
        raise CallerError(f"no log of tablet {tablet!r}; tablets with a log: {known}")
    return chosen


def _entries(engine: WalEngine, log: LogId, first: int, count: int) -> Iterator[Any]:
    """Yield up to ``count`` entries from index ``first`` on. Raises ``Corrupt`` at the damage of a log."""
    from stelae.convert.log_check import batches
    from stelae.spi.errors import Corrupt

    state = engine.logs()[log]
    start = max(first, state.base.index + 1)
    end = min(state.last.index + 1, start + count)
    for batch in batches(engine, log, start, end):
        yield from batch
    if state.damage is not None and start + count > state.last.index + 1:
        raise Corrupt(state.damage.detail, path=state.damage.path, offset=state.damage.offset)
