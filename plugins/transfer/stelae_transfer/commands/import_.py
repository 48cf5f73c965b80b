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
    Path, typer.Argument(help="File to load: .csv, .tsv, .jsonl, .parquet or .arrow, also with .gz or .zst.")
]
KeyOption = Annotated[
    str, typer.Option("--key", help="Key columns, separated by commas. Must match the key of an existing table.")
]
HashOption = Annotated[
    list[str] | None, typer.Option("--hash", help="COLUMNS:BUCKETS: hash rows into tablets. Repeat it for more levels.")
]
ModeOption = Annotated[
    str, typer.Option(help="upsert, insert, insert-ignore, update, update-ignore, delete or delete-ignore.")
]
SkipOption = Annotated[bool, typer.Option("--skip-unknown", help="Skip columns that the table does not have.")]
FormOption = Annotated[
    str, typer.Option("--format", help="csv, tsv, jsonl, parquet or arrow. Default: by the file name.")
]
DelimiterOption = Annotated[
    str, typer.Option(help="Character between cells of CSV. Default: a comma, or a tab in .tsv.")
]
NullOption = Annotated[str, typer.Option(help="Text that means null in CSV, in addition to an empty cell, such as NA.")]
ShowOption = Annotated[bool, typer.Option("--show-schema", help="Print the table that the file would make, and exit.")]
DryOption = Annotated[bool, typer.Option("--dry-run", help="Check every row, and write none.")]
JournalOption = Annotated[Path | None, typer.Option(help="File that records the progress. Default: FILE.TABLE.import.")]
RestartOption = Annotated[bool, typer.Option("--restart", help="Start over instead of resuming.")]
BadRowsOption = Annotated[
    Path | None, typer.Option("--bad-rows", help="File for bad rows. Default: FILE.TABLE.bad.jsonl.")
]
BadRowsMaxOption = Annotated[int, typer.Option(min=0, help="Stop when there are more bad rows than this.")]


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
    columns: Annotated[str, typer.Option(help="Columns of the file to load, separated by commas. Default: all.")] = "",
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
    """Load a file into a table. The same command resumes an interrupted import.

    Columns are matched by name. Rows that do not fit are written to a file of bad rows with the reason, and the import
    continues. If the table is missing and the cluster has masters, the command creates it with the key columns of
    `--key`. `--show-schema` prints the columns and types that it would have. No value loses precision: integers beyond
    64 bits become decimals, and a number that a double would round makes a bad row. If a key column has numbers with a
    fraction, choose its type with `stelae table create` first.

    After any interruption, even kill -9, the same command resumes after the last acknowledged row. No row is skipped.
    Some rows may be sent twice, which does not change the result: an upsert writes the same values again, and an insert
    that finds its own row counts it as written.

    Exit code 1: some rows were bad, or the import stopped before the end.

    Example: stelae import readings.csv --connect 127.0.0.1:7051 --table readings --key station,day"""
    from stelae_transfer.commands.run_import import options_of, run_import

    raise typer.Exit(run_import(options_of(context.params)))
