"""``stelae import``: load a file into a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stelae.cli.kit.connection import ConnectOption, DirOption, TableOption, TablesOption, TimeoutOption
from stelae.cli.kit.output import JsonOption
from stelae.cli.kit.progress import ProgressOption


def register(app: typer.Typer) -> None:
    """Add the command to the root application."""
    app.command("import")(import_file)


FileArgument = Annotated[
    Path, typer.Argument(help="A .csv, .tsv, .jsonl, .parquet or .arrow file; also with .gz or .zst.")
]
KeyOption = Annotated[str, typer.Option("--key", help="Key columns, separated by commas; compared with the table's.")]
HashOption = Annotated[
    list[str] | None, typer.Option("--hash", help="COLUMNS:BUCKETS, how rows are spread; may be given again.")
]
ModeOption = Annotated[
    str, typer.Option(help="upsert, insert, insert-ignore, update, update-ignore, delete or delete-ignore.")
]
SkipOption = Annotated[bool, typer.Option("--skip-unknown", help="Leave columns out that the table does not have.")]
FormOption = Annotated[str, typer.Option("--format", help="csv, tsv, jsonl, parquet or arrow; else by the name.")]
DelimiterOption = Annotated[str, typer.Option(help="Between cells of CSV; a comma, or a tab in .tsv.")]
NullOption = Annotated[str, typer.Option(help="Text that is null in CSV, as an empty cell is; for example NA.")]
ShowOption = Annotated[bool, typer.Option("--show-schema", help="Print the table that the file would make, and stop.")]
DryOption = Annotated[bool, typer.Option("--dry-run", help="Read and judge every row, write none.")]
JournalOption = Annotated[Path | None, typer.Option(help="Where progress is kept; FILE.TABLE.import unless given.")]
RestartOption = Annotated[bool, typer.Option("--restart", help="Begin again instead of going on.")]
BadRowsOption = Annotated[
    Path | None, typer.Option("--bad-rows", help="Where bad rows are told; FILE.TABLE.bad.jsonl unless given.")
]
BadRowsMaxOption = Annotated[int, typer.Option(min=0, help="Bad rows above which the import stops.")]


def import_file(
    context: typer.Context,
    file: FileArgument,
    directory: DirOption = None,
    connect: ConnectOption = "",
    tables: TablesOption = None,
    table: TableOption = "",
    key: KeyOption = "",
    hash_levels: HashOption = None,
    mode: ModeOption = "upsert",
    columns: Annotated[str, typer.Option(help="Columns of the file to load, separated by commas.")] = "",
    skip_unknown: SkipOption = False,
    form: FormOption = "",
    delimiter: DelimiterOption = "",
    null: NullOption = "",
    show_schema: ShowOption = False,
    dry_run: DryOption = False,
    journal: JournalOption = None,
    restart: RestartOption = False,
    bad_rows: BadRowsOption = None,
    bad_rows_max: BadRowsMaxOption = 10_000,
    progress: ProgressOption = None,
    timeout_s: TimeoutOption = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Load a file into a table, and go on where an earlier try was interrupted.

    Columns are found by their names; what does not fit goes to a file of bad rows with its reason, and the rest goes
    on. A table that is missing is made if the cluster has masters, and `--key` says which columns tell its rows apart;
    `--show-schema` infers columns and types and prints what describes it. Types lose nothing: whole numbers beyond 64
    bits become decimals, and a number that a double would round is a bad row. For a key of numbers with a fraction,
    make the table with `stelae table create`, which says their type.

    Whatever ends the command, even kill -9, the same command goes on behind the last acknowledged row. No row is
    left out. Some are sent twice, which changes nothing: an upsert writes the same again, and an insert that finds its
    own row counts as done.

    Exit code 1: some rows were bad, or it stopped before the end.

    Example: stelae import readings.csv --connect 127.0.0.1:7051 --table readings --key station,day"""
    from stelae_transfer.commands.run_import import options_of, run_import

    raise typer.Exit(run_import(options_of(context.params)))
