"""Names of folders: one for each table, and in it one for each backup. Pure.

A name has only characters that are safe on every file system and in Spark's paths. The folder of a table has its id,
so two tables never share one; it begins with the name of the table at the time of the backup."""

from __future__ import annotations

import re

from stelae_spark_sink.backup.manifest import Kind, time_text

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_NAME_LENGTH_MAX = 100
_BACKUP = re.compile(r"\d{8}T\d{6}\.\d{6}Z-(full|incremental)-[0-9a-f]{8}")
_ID_LENGTH = 8


def table_folder(table: str, table_id: str) -> str:
    """Return the name of the folder for the backups of a table."""
    return f"{table_prefix(table)}{_UNSAFE.sub('_', table_id)}"


def table_prefix(table: str) -> str:
    """Return how the folders of tables of a name begin. Those of other names may begin in the same way."""
    return f"{_UNSAFE.sub('_', table)[:_NAME_LENGTH_MAX]}."


def table_suffix(table_id: str) -> str:
    """Return how the folders of a table end, whatever its names were."""
    return f".{_UNSAFE.sub('_', table_id)}"


def backup_folder(at: int, kind: Kind, backup_id: str) -> str:
    """Return the name of the folder for a backup. In the order of names, backups are in the order of their times.

    The id is in the name because a table without writes has the same time again, for a backup after one that failed."""
    return f"{time_text(at).replace('-', '').replace(':', '')}-{kind.value}-{backup_id[:_ID_LENGTH]}"


def is_backup_folder(name: str) -> bool:
    """Return whether a folder has the name of a backup, whole or not."""
    return _BACKUP.fullmatch(name) is not None
