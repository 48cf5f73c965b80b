"""The command ``stelae-spark``: backs up and restores tables with Spark."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from stelae.cli.kit.connection import ConnectOption, DirOption
from stelae.cli.kit.errors import report, report_file_error
from stelae.cli.kit.interrupt import reported_interrupt
from stelae.cli.kit.output import JsonOption, flushed_output
from stelae.cli.kit.progress import ProgressOption
from stelae.spi.errors import StelaeError
from stelae.spi.extras import MissingExtra

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Back up tables to Parquet files with Spark, and restore them.

The first backup of a table is full. The next ones are incremental: they have the rows that changed since. A restore
reads a full backup and the incremental ones after it, up to the time that it is asked for.

FOLDER has the backups of all tables. It is a path on any file system that Spark reaches: /backups, hdfs:///backups,
s3a://bucket/backups.

The session is that of `spark-submit`, or a local one. To run on a cluster:

    spark-submit --master ... $(stelae-spark path) backup readings s3a://bucket/backups --connect 127.0.0.1:7051""",
)

TableArgument = Annotated[str, typer.Argument(help="Name of the table.")]
FolderArgument = Annotated[str, typer.Argument(help="Folder of all backups.")]
TableOption = Annotated[str, typer.Option("--table", help="Only this table, with its earlier names. Default: all.")]
AtOption = Annotated[
    str, typer.Option("--at", help="The latest backup of this time or before, such as 2026-06-01T12:00:00Z.")
]


@app.command("backup")
def backup(
    table: TableArgument,
    folder: FolderArgument,
    directory: DirOption = None,
    connect: ConnectOption = "",
    full: Annotated[bool, typer.Option("--full", help="Read all rows, even if there is a backup.")] = False,
    incremental: Annotated[bool, typer.Option("--incremental", help="Fail if there is no backup to continue.")] = False,
    count_table: Annotated[
        bool,
        typer.Option("--count-table/--no-count-table", help="Count all rows of the table for an incremental backup."),
    ] = True,
    target_partition_bytes: Annotated[
        int | None, typer.Option("--target-partition-bytes", min=1 << 20, help="Bytes that one task reads.")
    ] = None,
    progress: ProgressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Back up a table as of now.

    The backup is incremental if FOLDER has a backup of the table, and full otherwise. The files are read again and
    compared with the table by counts and checksums. Only then does the backup exist: one that was stopped is not used,
    and its folder can be removed. Run the command again.

    An incremental backup writes the rows that changed since the last one. It also counts all rows of the table, with
    which a restore is compared, unless --no-count-table is given.

    An incremental backup needs the history of the table since the last one. Nodes keep it for a week
    (maintenance.history_retention_s). If it has expired, or a range of keys was dropped, take a backup with --full.

    Example: stelae-spark backup readings /backups --connect 127.0.0.1:7051"""
    from stelae_spark_sink.backup.run_command import masters_of, run_backup_command

    raise typer.Exit(
        run_backup_command(
            table,
            folder,
            masters_of(directory, connect),
            full=full,
            incremental=incremental,
            count_table=count_table,
            target_partition_bytes=target_partition_bytes,
            progress=progress,
            as_json=as_json,
        )
    )


@app.command("restore")
def restore(
    table: TableArgument,
    folder: FolderArgument,
    directory: DirOption = None,
    connect: ConnectOption = "",
    name: Annotated[str, typer.Option("--as", help="Name of the restored table. Default: the same.")] = "",
    at: AtOption = "",
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a table of the name when the restored one is complete.")
    ] = False,
    keep_s: Annotated[
        float, typer.Option("--keep-s", min=0, help="Seconds during which a replaced table can be recalled.")
    ] = 86_400.0,
    replicas: Annotated[
        int | None, typer.Option("--replicas", help="Replicas of each tablet. Default: as many as the table had.")
    ] = None,
    progress: ProgressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Restore a table from its backups.

    It is restored as of its latest backup, or as of an earlier one with --at.

    The files are compared with the manifests before anything is written. The rows go into a table whose name ends with
    .restoring-ID. It gets its own name when it is complete, so a table under its own name is never half restored. If
    the command fails, run it again: it continues. To give up, drop the table with `stelae table drop`.

    Example: stelae-spark restore readings /backups --connect 127.0.0.1:7051 --as monday --at 2026-06-01T12:00Z"""
    from stelae_spark_sink.backup.run_command import masters_of, run_restore_command

    raise typer.Exit(
        run_restore_command(
            table,
            folder,
            masters_of(directory, connect),
            name=name or table,
            at=at,
            replace=replace,
            keep_s=keep_s,
            replicas=replicas,
            progress=progress,
            as_json=as_json,
        )
    )


@app.command("list")
def list_(folder: FolderArgument, table: TableOption = "", as_json: JsonOption = False) -> None:
    """List the backups in a folder.

    The times are those that `restore --at` takes. Folders of backups that were stopped, or whose manifest is
    damaged, are listed with that state.

    Example: stelae-spark list /backups --table readings"""
    from stelae_spark_sink.backup.run_command import run_list_command

    raise typer.Exit(run_list_command(folder, table or None, as_json=as_json))


@app.command("verify")
def verify(
    folder: FolderArgument,
    table: TableOption = "",
    at: AtOption = "",
    progress: ProgressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check the files of backups.

    All files are read, and compared with the manifests by counts and checksums. With --table and --at it reads what
    a restore to this time would read. The exit code is 1 if a file is missing or damaged.

    Example: stelae-spark verify /backups --table readings"""
    from stelae_spark_sink.backup.run_command import run_verify_command

    raise typer.Exit(run_verify_command(folder, table or None, at, progress=progress, as_json=as_json))


@app.command("clean")
def clean(
    folder: FolderArgument,
    before: Annotated[
        str, typer.Option("--before", help="This time and later ones stay restorable, such as 2026-06-01T00:00:00Z.")
    ],
    table: TableOption = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the backups, and remove none.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove old backups.

    A backup is removed if no restore to the time --before, or to a later one, reads it. So the last backup of each
    table stays, however old it is. To make old chains superfluous, take a full backup from time to time. Folders of
    backups that were stopped stay; `list` shows them.

    Example: stelae-spark clean /backups --before 2026-06-01T00:00:00Z --dry-run"""
    from stelae_spark_sink.backup.run_command import run_clean_command

    raise typer.Exit(run_clean_command(folder, table or None, before, dry_run=dry_run, as_json=as_json))


@app.command("path")
def path() -> None:
    """Print the file of this command, for spark-submit.

    Example: spark-submit --master yarn $(stelae-spark path) list hdfs:///backups"""
    from pathlib import Path

    print(Path(__file__).with_name("__main__.py"))


def main() -> None:
    """Run the command line and exit with its exit code. Errors go to standard error."""
    try:
        from stelae_spark_sink.job_errors import SPARK_ERRORS, first_fact
    except ModuleNotFoundError:
        sys.exit(report(MissingExtra("pyspark", "spark", wanted_by="stelae-spark")))
    try:
        with reported_interrupt(), flushed_output():
            app()
    except StelaeError as error:
        sys.exit(report(error))
    except OSError as error:
        sys.exit(report_file_error(error))
    except SPARK_ERRORS as error:
        sys.exit(report(StelaeError(f"a Spark job failed: {first_fact(error)}")))
