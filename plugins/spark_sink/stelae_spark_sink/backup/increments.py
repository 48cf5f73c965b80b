"""Decides whether a backup continues an earlier one, and finds what it has to know for that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stelae.client import Table, to_datetime
from stelae.spi.errors import CallerError, TooOld
from stelae_spark_sink.backup.backup_root import BackupRoot
from stelae_spark_sink.backup.chains import Backup, BrokenChain, NoBackup, chain
from stelae_spark_sink.backup.manifest import Kind, Manifest
from stelae_spark_sink.history_check import check_history

TAKE_FULL = "take a full backup: stelae-spark backup --full, or backup_table(kind='full')"


class CannotContinue(CallerError, code="BACKUP_CANNOT_CONTINUE"):
    """The last backup cannot be continued by an incremental one. A full backup is possible."""


def parent_of(root: BackupRoot, table: Table, wanted: Kind | None) -> Backup | None:
    """Return the backup that the next one of a table continues; ``None``: the next one is a full backup.

    Args:
        root: the folder of the backups.
        table: the table.
        wanted: the kind of backup that the user asks for; ``None``: incremental if there is a backup already.

    Raises:
        NoBackup: an incremental one is wanted, and there is no backup.
        CannotContinue: the last backup has lost its own parents.
    """
    if wanted is Kind.FULL:
        return None
    backups = root.backups_of(table.table_id)
    if not backups:
        if wanted is Kind.INCREMENTAL:
            raise NoBackup(f"table {table.name!r} has no backup in {root.path} to continue; {TAKE_FULL}")
        return None
    newest = max(backups, key=lambda one: one.manifest.at)
    try:
        chain(backups, newest)
    except BrokenChain as error:
        raise CannotContinue(f"{error}; or {TAKE_FULL}") from error
    return newest


def check_tablets(parent: Manifest, tablets: Iterable[str]) -> None:
    """Check that the tablets of the parent still exist. The rows of a dropped range are not among the changes.

    Raises:
        CannotContinue: a range was dropped.
    """
    if not {*parent.tablets} <= {*tablets}:
        fact = f"a range of table {parent.table!r} was dropped since the last backup, of {parent.time}"
        raise CannotContinue(f"{fact}, and its rows do not appear as deleted; {TAKE_FULL}")


def older_rows(table: Table, parent: Manifest, timeout_s: float) -> Mapping[int, Any] | None:
    """Return the values, by id, that columns added since the parent have in rows that are older than the column.

    The table is read as of the parent's time: there, every row is older than these columns, so any row shows the
    values. This also checks that all tablets still keep the history since the parent.

    Returns:
        ``None``: columns were added, and the table had no rows. Then all of its present rows have changed since.

    Raises:
        CannotContinue: the table does not keep its history since the parent any more.
    """
    added = {column.name: column.id for column in table.schema.columns if column.id not in parent.by_id}
    found: list[Any] = []
    try:
        check_history(table, parent.at, timeout_s)
        if added:
            found = table.scan([*added], limit=1, at=parent.at, timeout_s=timeout_s).to_pylist()
    except TooOld as error:
        floor = to_datetime(error.floor).isoformat()
        fact = f"the last backup of table {table.name!r} is of {parent.time}, and its history is kept since {floor}"
        setting = "The setting maintenance.history_retention_s of the nodes says how long history is kept"
        raise CannotContinue(f"{fact}; {TAKE_FULL}. {setting}") from None
    if not added:
        return {}
    return {added[name]: value for name, value in found[0].items()} if found else None
