"""``stelae wal``: look into the log of a node that does not run, check it, give it to another engine."""

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
    from stelae.convert.reading import LogReport
    from stelae.spi.ids import LogId
    from stelae.spi.wal import WalEngine

ENTRIES_MAX = 100_000
"""Entries that one `wal dump` prints at most: it holds them all, so that columns fit."""

commands = command_group(
    """The log of a node that does not run: look into it, check it, change its engine.

    These commands take the lock of the node's directory, and open its log as a start of the node does,
    recovery included. While the node runs they are refused.
    """
)

DirectoryArgument = Annotated[str | None, typer.Argument(help="Directory of the node.", show_default=False)]
ConfigOption = Annotated[
    str | None,
    typer.Option("--config", help="Its node.toml: names the directory, and the engines' settings.", show_default=False),
]


def register(app: typer.Typer) -> None:
    """Add the commands to the root application."""
    app.add_typer(commands, name="wal")


@commands.command("dump")
def dump(
    directory: DirectoryArgument = None,
    config: ConfigOption = None,
    tablet: Annotated[str | None, typer.Option(help="Only the logs of this tablet.")] = None,
    first: Annotated[int, typer.Option("--from", min=1, help="Index of the first entry.")] = 1,
    limit: Annotated[int, typer.Option(min=1, max=ENTRIES_MAX, help="Entries at most, of all logs together.")] = 1000,
    bodies: Annotated[bool, typer.Option("--bodies", help="Print bodies too, in hexadecimal.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the entries of the log: op id, kind, hybrid timestamp, bytes, and what a write contains.

    Entries that were collected are gone: a log begins after its base. A log that is damaged is printed up to there,
    and the logs behind it are printed too; the exit code is 1."""
    from stelae.convert.showing import entry_document
    from stelae.spi.errors import Corrupt, StorageError

    rows: list[dict[str, Any]] = []
    problems: list[str] = []
    with _engine(directory, config) as engine:
        for log in _chosen(engine, tablet):
            try:
                for entry in _some(engine, log, first, limit - len(rows)):
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
        note(f"stopped at {limit} entries; go on with --from, or raise --limit")
    for problem in problems:
        note(problem)
    if problems:
        raise typer.Exit(EXIT_FAILED)


@commands.command("verify")
def verify(directory: DirectoryArgument = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Read every entry of every log: checksums, indexes without a gap, terms that never go back.

    A log that is not whole is named with the file, the offset and its last good op id; the exit code is then 1. So it
    is if the disk cannot give back what stands there, which is no damage: nothing is known of these bytes."""
    from stelae.convert.reading import said_of
    from stelae.convert.showing import report_document

    with _engine(directory, config) as engine:
        reports = _checked(engine)
    bad = [report for report in reports if report.problem is not None]
    if as_json:
        print_json({"ok": not bad, "logs": [report_document(report) for report in reports]})
    else:
        rows = [(r.log, r.entries, r.state.last, "ok" if r.problem is None else r.problem) for r in reports]
        print_table(("LOG", "ENTRIES", "LAST", "STATE"), rows)
    if bad:
        note(said_of(reports))
        raise typer.Exit(EXIT_FAILED)


@commands.command("stats")
def stats(directory: DirectoryArgument = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show how much each log holds, and the engine's own figures. Reads every entry to count its bytes.

    Of a log that is not whole what stands before the fault is counted, and the exit code is 1: `verify` says more."""
    from stelae.convert.reading import said_of
    from stelae.convert.showing import report_document

    with _engine(directory, config) as engine:
        reports = _checked(engine)
        name, figures = engine.name, engine.stats()
    if as_json:
        print_json({"engine": name, "logs": [report_document(report) for report in reports], "stats": figures})
    else:
        _print_stats(reports, name, figures)
    if said := said_of(reports):
        note(f"{said}; `stelae wal verify` names the files")
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
        str | None, typer.Option(help="Engine that is to own the log; with --config, the one that it picks.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read and check the log, compare the space, stop.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Give the log of a node to another engine.

    Stop the node, set `[engines] wal` in its node.toml, run this with --config, start the node. Every log is copied
    into a new directory beside the old one and compared entry by entry; then one record in the file `instance`
    decides, and the old log moves to quarantine/. A crash at any moment leaves the old log or the new one, whole: the
    next start of the node, or of this command, ends what was begun. The other nodes may keep their engine."""
    from stelae.cli.offline_node import OfflineNode

    with OfflineNode.opened(directory, config) as node:
        if node.settled:
            note(node.settled)
        done = _convert(node, to, dry_run)
    if as_json:
        print_json(done)
    elif not done["from"]:
        print(f"the log of {done['directory']} is of engine {done['to']}")
    else:
        verb = "can be converted" if dry_run else "converted"
        figures = f"{done['logs']} logs, {done['entries']} entries, {done['body_bytes']} bytes"
        print(f"{verb} from {done['from']} to {done['to']}: {figures}")
    if done["from"] and not dry_run:
        _say_what_is_left(node, done["from"], done["to"])


def _say_what_is_left(node: OfflineNode, old: str, new: str) -> None:
    """Tell where the old log is, and what node.toml has to say before the node starts."""
    note(f"the old log is kept: remove {node.quarantined(old)} once the node has caught up")
    if node.configured not in (None, new):
        note(f'node.toml picks {node.configured!r}: write wal = "{new}" below [engines] before you start the node')


def _convert(node: OfflineNode, to: str | None, dry_run: bool) -> dict[str, Any]:
    import dataclasses

    from stelae.cli.offline_node import PrintingMeter

    wanted = to or node.configured
    if wanted is None and node.settled:
        wanted = node.wal_engine
    if wanted is None:
        raise CallerError(f"say which engine is to own the log, which is of {node.wal_engine!r} now: --to ENGINE")
    document: dict[str, Any] = {"directory": node.root, "from": None, "to": wanted, "dry_run": dry_run}
    if wanted == node.wal_engine:
        return document
    source = node.wal_engine
    plan = node.convert(wanted, PrintingMeter(), dry_run=dry_run)
    return {**document, "from": source, **dataclasses.asdict(plan)}


@contextmanager
def _engine(directory: str | None, config: str | None) -> Iterator[WalEngine]:
    """The log of a node, opened; closed and unlocked at the end."""
    from stelae.cli.offline_node import OfflineNode

    with OfflineNode.opened(directory, config) as node, node.engine() as engine:
        yield engine


def _checked(engine: WalEngine) -> list[LogReport]:
    from stelae.cli.offline_node import PrintingMeter
    from stelae.convert.reading import check_logs

    return check_logs(engine, PrintingMeter())


def _chosen(engine: WalEngine, tablet: str | None) -> list[LogId]:
    logs = sorted(engine.logs())
    chosen = [log for log in logs if tablet in (None, log.tablet_id)]
    if tablet is not None and not chosen:
        known = ", ".join(sorted({log.tablet_id for log in logs})) or "none"
        raise CallerError(f"there is no log of tablet {tablet!r} here; tablets with a log: {known}")
    return chosen


def _some(engine: WalEngine, log: LogId, first: int, count: int) -> Iterator[Any]:
    """Up to ``count`` entries from index ``first`` on; a damaged log raises at its end."""
    from stelae.convert.reading import batches
    from stelae.spi.errors import Corrupt

    state = engine.logs()[log]
    start = max(first, state.base.index + 1)
    end = min(state.last.index + 1, start + count)
    for batch in batches(engine, log, start, end):
        yield from batch
    if state.damage is not None and start + count > state.last.index + 1:
        raise Corrupt(state.damage.detail, path=state.damage.path, offset=state.damage.offset)
