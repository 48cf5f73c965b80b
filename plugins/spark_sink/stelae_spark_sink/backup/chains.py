"""Finds the backups that make up a table as of a time. Pure.

An incremental backup continues its parent, and so on down to a full one: these are its chain. A restore writes the full
backup first, and then each incremental one in order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from stelae.spi.errors import CallerError
from stelae_spark_sink.backup.manifest import Kind, Manifest, check_same_key, time_text


class NoBackup(CallerError, code="NO_BACKUP"):
    """There is no backup of the table, or none as old as the time asked for."""


class BrokenChain(CallerError, code="BROKEN_BACKUP_CHAIN"):
    """A backup continues one that is not there."""


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup and its folder."""

    folder: str
    manifest: Manifest


def latest(backups: Iterable[Backup], table: str, at: int | None = None) -> Backup:
    """Return the latest backup of a table.

    Args:
        backups: all backups that can be chosen.
        table: name of the table at the time of the backup.
        at: hybrid timestamp; only backups of this time or before are chosen. ``None``: all.

    Raises:
        NoBackup: there is none.
    """
    every = [*backups]
    named = [one for one in every if one.manifest.table == table]
    if not named:
        known = ", ".join(sorted({one.manifest.table for one in every})) or "none"
        raise NoBackup(f"there is no backup of a table {table!r}; tables with backups: {known}")
    found = [one for one in named if at is None or one.manifest.at <= at]
    if not found:
        first = min(one.manifest.at for one in named)
        fact = f"table {table!r} has no backup of {time_text(at or 0)} or before"
        raise NoBackup(f"{fact}; the first is of {time_text(first)}: choose this time or a later one")
    return max(found, key=lambda one: one.manifest.at)


def chain(backups: Iterable[Backup], last: Backup) -> Sequence[Backup]:
    """Return the chain of a backup, from the full one to itself.

    Raises:
        BrokenChain: a backup of the chain is missing, or does not fit the one that continues it.
    """
    by_id: Mapping[str, Backup] = {one.manifest.id: one for one in backups}
    found = [last]
    while found[-1].manifest.kind is not Kind.FULL:
        child = found[-1].manifest
        parent = by_id.get(child.parent)
        if parent is None:
            fact = f"the backup of {child.table!r} of {child.time} continues one of {time_text(child.since)}"
            raise BrokenChain(f"{fact}, which is missing; choose a time before, or put the folder back")
        if parent.manifest.at != child.since or parent.manifest.table_id != child.table_id or parent in found:
            raise BrokenChain(f"{found[-1].folder} does not continue {parent.folder}, as its manifest says")
        check_same_key(parent.manifest, child)
        found.append(parent)
    return found[::-1]


def superfluous(backups: Iterable[Backup], before: int) -> Sequence[Backup]:
    """Return the backups that can be removed, those that continue others first.

    For each table, all backups of ``before`` or later are kept, the last one before under each name of the table, and
    the chains of these. So a restore to ``before``, or to any later time, has the same result as now.

    Args:
        backups: all backups of some tables.
        before: hybrid timestamp.

    Raises:
        BrokenChain: a backup that is kept continues one that is missing.
    """
    every = sorted(backups, key=lambda one: one.manifest.at, reverse=True)
    kept: dict[str, Backup] = {}
    older: set[tuple[str, str]] = set()
    for one in every:
        is_older, table = one.manifest.at < before, (one.manifest.table_id, one.manifest.table)
        if not is_older or table not in older:
            kept |= {needed.manifest.id: needed for needed in chain(every, one)}
        if is_older:
            older.add(table)
    return [one for one in every if one.manifest.id not in kept]
