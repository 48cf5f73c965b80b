"""Carries out the commands of ``stelae-spark``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from stelae.cli.kit.connection import Target
from stelae.cli.kit.errors import EXIT_FAILED, EXIT_OK
from stelae.cli.kit.output import note, print_json
from stelae.cli.kit.terminal_layout import bytes_text, print_facts, print_fitted
from stelae.client.counted import counted
from stelae.spi.errors import CallerError
from stelae_spark_sink import option_values
from stelae_spark_sink.backup import functions
from stelae_spark_sink.backup.backup_root import BackupEntry
from stelae_spark_sink.backup.chains import Backup
from stelae_spark_sink.local_session import check_spark, ignore_pandas_warning
from stelae_spark_sink.worker_python import choose_worker_python, is_submitted


def masters_of(directory: Path | None, connect: str) -> Sequence[str]:
    """Return the addresses of the cluster. ``BadTarget``: neither or both of the options are given."""
    return Target(directory=directory, connect=connect, tables=None, table="", timeout_s=0.0).addresses()


def run_backup_command(
    table: str,
    folder: str,
    masters: Sequence[str],
    *,
    full: bool,
    incremental: bool,
    count_table: bool,
    target_partition_bytes: int | None,
    progress: bool | None,
    as_json: bool,
) -> int:
    """Back up a table, print what was backed up, and return the exit code."""
    if full and incremental:
        raise CallerError("pass either --full or --incremental, not both")
    kind = "full" if full else "incremental" if incremental else "auto"
    made = functions.backup_table(
        _session("backup"),
        masters,
        table,
        folder,
        kind=kind,
        count_table=count_table,
        target_partition_bytes=target_partition_bytes,
        progress=progress,
    )
    if as_json:
        print_json(_document(made))
    else:
        print_facts(_facts(made))
    return EXIT_OK


def run_restore_command(
    table: str,
    folder: str,
    masters: Sequence[str],
    *,
    name: str,
    at: str,
    replace: bool,
    keep_s: float,
    replicas: int | None,
    progress: bool | None,
    as_json: bool,
) -> int:
    """Restore a table, print what was restored, and return the exit code."""
    restored = functions.restore_table(
        _session("restore"),
        masters,
        table,
        folder,
        name=name,
        at=_time("--at", at),
        replace=replace,
        keep_s=keep_s,
        replicas=replicas,
        progress=progress,
    )
    last = restored.backups[-1].manifest
    if as_json:
        backups = [_document(one) for one in restored.backups]
        facts = {"table": restored.table, "rows": restored.rows, "time": last.time}
        print_json({**facts, "replaced": restored.replaced or None, "backups": backups})
    else:
        text = f"{last.table} as of {last.time}, from {counted(len(restored.backups), 'backup')}"
        print_facts({"table": restored.table, "rows": f"{restored.rows:,}", "restored": text})
        if restored.replaced and keep_s:
            recall = f"stelae table recall {restored.replaced} --as NAME"
            note(f"the replaced table can be recalled for {keep_s:g} s with: {recall}")
    return EXIT_OK


def run_list_command(folder: str, table: str | None, *, as_json: bool) -> int:
    """Print the backups in a folder and return the exit code."""
    entries = functions.list_backups(_session("list"), folder, table)
    if as_json:
        print_json({"backups": [_entry_document(entry) for entry in entries]})
    elif not entries:
        wanted = f" of table {table!r}" if table else ""
        note(f"there is no backup{wanted} in {folder}; if you expected one, check the path and the name of the table")
    else:
        print_fitted(("TABLE", "TIME", "KIND", "ROWS", "DELETED", "SIZE", "FOLDER"), [_line(one) for one in entries])
    return EXIT_OK


def run_verify_command(folder: str, table: str | None, at: str, *, progress: bool | None, as_json: bool) -> int:
    """Check backups, print what is wrong, and return the exit code: 1 if something is."""
    found = functions.verify_backups(_session("verify"), folder, table, at=_time("--at", at), progress=progress)
    if as_json:
        print_json({"backups": [{**_document(one.backup), "problems": [*one.problems]} for one in found]})
    else:
        for one in found:
            manifest = one.backup.manifest
            result = "\n  ".join(one.problems) or f"{counted(manifest.rows, 'row')} as backed up"
            print(f"{manifest.table} {manifest.time} {manifest.kind.value}: {result}")
    return EXIT_FAILED if any(one.problems for one in found) else EXIT_OK


def run_clean_command(folder: str, table: str | None, before: str, *, dry_run: bool, as_json: bool) -> int:
    """Remove backups that are not needed, print them, and return the exit code."""
    time = _time("--before", before)
    if time is None:
        raise CallerError("--before needs a time, such as 2026-06-01T00:00:00Z")
    found = functions.clean_backups(_session("clean"), folder, table, before=time, dry_run=dry_run)
    if as_json:
        print_json({"dry_run": dry_run, "backups": [_document(one) for one in found]})
    else:
        for one in found:
            print(f"{'would remove' if dry_run else 'removed'} {one.folder}")
        note(f"{counted(len(found), 'backup')}, {bytes_text(sum(one.manifest.size_bytes for one in found))}")
    return EXIT_OK


def _session(command: str) -> SparkSession:
    """Return the session of ``spark-submit``, or a local one. ``NoSpark``: there is no Java for a local one."""
    if not is_submitted():
        check_spark("stelae-spark")
    choose_worker_python()
    ignore_pandas_warning()
    return SparkSession.builder.appName(f"stelae-spark {command}").getOrCreate()


def _time(option: str, text: str) -> int | None:
    if not text:
        return None
    try:
        return option_values.time(text)
    except ValueError as error:
        raise CallerError(f"{option} is {text!r}; expected {error}") from None


def _document(backup: Backup) -> dict[str, Any]:
    one = backup.manifest
    return {
        "id": one.id,
        "table": one.table,
        "table_id": one.table_id,
        "time": one.time,
        "at": one.at,
        "kind": one.kind.value,
        "parent": one.parent or None,
        "rows": one.rows,
        "deleted": one.deleted,
        "size_bytes": one.size_bytes,
        "files": len(one.files),
        "folder": backup.folder,
    }


def _entry_document(entry: BackupEntry) -> dict[str, Any]:
    state = {"state": entry.state.value}
    if entry.backup is None:
        return {**state, "folder": entry.folder, "problem": entry.problem}
    return {**state, **_document(entry.backup)}


def _facts(backup: Backup) -> dict[str, object]:
    one = backup.manifest
    rows = f"{one.rows:,}" + (f", of which {one.deleted:,} were deleted" if one.parent else "")
    size = f"{bytes_text(one.size_bytes)} in {counted(len(one.files), 'file')}"
    return {
        "table": one.table,
        "time": one.time,
        "kind": one.kind.value,
        "rows": rows,
        "size": size,
        "folder": backup.folder,
    }


def _line(entry: BackupEntry) -> tuple[object, ...]:
    if entry.backup is None:
        return ("-", "-", entry.state.value, "-", "-", "-", entry.folder)
    one = entry.backup.manifest
    return (one.table, one.time, one.kind.value, one.rows, one.deleted, bytes_text(one.size_bytes), entry.backup.folder)
