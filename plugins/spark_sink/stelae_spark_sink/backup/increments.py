"""Decides whether a backup continues an earlier one, and finds what it has to know for that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from stelae.client import ScanToken, Table, to_datetime
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


def whole_if_new(tokens: Iterable[ScanToken], parent: Manifest) -> Iterator[ScanToken]:
    """Yield the tokens of a diff, with scans of all rows for the tablets that the parent does not have.

    The time of the parent is not enough for these: the clock of the leader of a new tablet may be behind it."""
    before = {*parent.tablets}
    for token in tokens:
        known = tuple(part for part in token.parts or () if part.tablet_id in before)
        new = tuple(part for part in token.parts or () if part.tablet_id not in before)
        if known:
            yield msgspec.structs.replace(token, parts=known)
        if new:
            yield msgspec.structs.replace(token, parts=new, since=None)


def older_rows(table: Table, parent: Manifest, timeout_s: float) -> Mapping[int, Any] | None:
    """Return the values, by id, that columns added since the parent have in rows that are older than the column.

    The tablets of the parent are read as of its time: there, every row is older than these columns, so any row shows
    the values. Rows of other tablets may be newer, because the clocks of their leaders may be behind. This also checks
    that all tablets still keep the history since the parent.

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
            found = _any_row(table, [*added], parent, timeout_s)
    except TooOld as error:
        floor = to_datetime(error.floor).isoformat()
        fact = f"the last backup of table {table.name!r} is of {parent.time}, and its history is kept since {floor}"
        setting = "The setting maintenance.history_retention_s of the nodes says how long history is kept"
        raise CannotContinue(f"{fact}; {TAKE_FULL}. {setting}") from None
    if not added:
        return {}
    return {added[name]: value for name, value in found[0].items()} if found else None


def _any_row(table: Table, columns: Sequence[str], parent: Manifest, timeout_s: float) -> list[Any]:
    """Return one row of the tablets of the parent, at its time, or none if they have no rows."""
    before = {*parent.tablets}
    for token in table.scan(columns, limit=1, at=parent.at, timeout_s=timeout_s).tokens():
        if before.issuperset(token.tablet_ids):
            found = table.open(token, timeout_s=timeout_s).to_pylist()
            if found:
                return found
    return []
